"""Time, writes and memory of batches that touch few keys of a large state, side by side with Spark SQL.

    python benchmarks/state.py
    python benchmarks/state.py --cases counters,windows --keys 20000,200000 --rounds 1

See `benchmarks/README.md` for the measurements and the method.
"""

import argparse
import shutil
import sys
import tempfile
import time
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from events import Tally
from machine import heading, machine
from memory import MemoryUse
from peers import new_session
from report import Run
from rich.console import Console
from state_input import Input
from state_jobs import COUNTERS, RESTART, STEADY, WRITTEN, Case
from state_report import Checked, Load, Restart, Results, Steady, Written
from state_runs import FilesWatch, Played, Store, every_few_seconds, first_batch_elsewhere
from throughput import names_of, numbers, setting

CASES = (*STEADY, "written", "restart")
console = Console(highlight=False) if sys.stdout.isatty() else Console(highlight=False, width=150)


def main() -> int:
    """Run the benchmark. Return 1 if results are wrong."""
    options = parse_options()
    described = machine()
    console.print(f"[bold]{heading(described)}[/bold]\n{settings_line(options)}", soft_wrap=True)
    results = Results()
    with tempfile.TemporaryDirectory(prefix="amadou-state-", dir=options.scratch) as scratch:
        spark = new_session(options.master, {"spark.local.dir": f"{scratch}/local"} | session_settings(options))
        try:
            benchmark = Benchmark(options, spark, Path(scratch), results)
            benchmark.warm_up()
            for case in options.cases:
                benchmark.run(case)
                if options.json:
                    results.write_json(options.json, described, settings(options))
        finally:
            spark.stop()
    return 0 if results.print(console) else 1


class Benchmark:
    """The cases, which share a Spark session."""

    def __init__(self, options: argparse.Namespace, spark: Any, scratch: Path, results: Results) -> None:
        self._options = options
        self._spark = spark
        self._scratch = scratch
        self._results = results

    def warm_up(self) -> None:
        """Run each peer once without measuring it: the first query of a session is slow, as it also loads code."""
        for peer in self._peers(COUNTERS):
            started = time.perf_counter()
            lines, store = self._stores("warm-up", COUNTERS, 1000, [peer], 3)
            lines.add_batches(3)
            store[0].run(self._spark)
            console.print(f"warmed up {peer} in {time.perf_counter() - started:.1f} s")
            self._clear()

    def run(self, name: str) -> None:
        """Run a case."""
        if name == "written":
            for state, case in WRITTEN.items():
                for keys in self._keys(case):
                    self._written(state, case, keys)
                    self._clear()
        elif name == "restart":
            for keys in self._keys(RESTART):
                self._restart(keys)
                self._clear()
        else:
            self._steady(name, STEADY[name])
            self._clear()

    def _steady(self, name: str, case: Case) -> None:
        """Store all keys, and then run all peers with all numbers of keys in turn, round by round."""
        options = self._options
        count = options.warmup + options.batches
        inputs = {
            keys: self._stores(name, case, keys, self._peers(case), count * options.rounds) for keys in self._keys(case)
        }
        for keys, (_, stores) in inputs.items():
            for store in stores:
                self._load(name, keys, store)
        for round_ in range(1, options.rounds + 1):
            for keys, (lines, stores) in inputs.items():
                lines.add_batches(count)
                for store in stores:
                    played = self._play(store, f"{name} {keys:,} keys {store.peer}", count)
                    run = Run.of(
                        store.peer, keys, options.events, round_, options.warmup, played.batches, Tally(), Tally()
                    )
                    console.print(f"{name:<8} {run.progress_line()}", soft_wrap=True)
                    self._results.steady.append(Steady(name, run, played.memory))
        for keys, (lines, stores) in inputs.items():
            if case.has_windows:
                lines.close_windows()
                for store in stores:
                    self._play(store, f"{name} {keys:,} keys {store.peer}, closing the windows", 1)
            self._check(name, keys, lines, stores)

    def _written(self, name: str, case: Case, keys: int) -> None:
        """Compare the bytes that batches write with the bytes that they change."""
        batches = self._options.written_batches
        lines, stores = self._stores(name, case, keys, self._peers(case), batches)
        for store in stores:
            self._load(name, keys, store)
        lines.add_batches(batches)
        for store in stores:
            with FilesWatch(store.checkpoint) as files:
                played = self._play(store, f"written {name} {keys:,} keys {store.peer}", batches)
            each = (sum(lines.changed) / batches, files.changelogs / batches, files.others / batches)
            self._results.written.append(Written(name, keys, store.peer, batches, *each, played.memory))
            console.print(f"written  {keys:>9,} keys  {store.peer:<9}  {files.changelogs / batches:,.0f} bytes a batch")
        self._check(f"written ({name})", keys, lines, stores)

    def _restart(self, keys: int) -> None:
        """Measure the first batch of new runs: first in this session, then in new sessions without local files."""
        options = self._options
        lines, stores = self._stores("restart", RESTART, keys, self._peers(RESTART), 2 * options.rounds)
        for store in stores:
            self._load("restart", keys, store)
        for kind in ("same machine", "state lost"):
            played: dict[str, list[Played]] = {store.peer: [] for store in stores}
            for _ in range(options.rounds):
                lines.add_batches(1)
                for store in stores:
                    mine = store.run(self._spark) if kind == "same machine" else self._elsewhere(store)
                    played[store.peer].append(mine)
                    console.print(f"restart  {keys:>9,} keys  {store.peer:<9}  {kind}: {mine.first:.2f} s")
            for peer, each in played.items():
                memory = maximum([run.memory for run in each])
                self._results.restarts.append(Restart(keys, peer, kind, [run.first for run in each], memory))
        self._check("restart", keys, lines, stores)

    def _elsewhere(self, store: Store) -> Played:
        with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as process:
            called = process.submit(first_batch_elsewhere, store, self._options.master, session_settings(self._options))
            played, store.found = called.result()
        return played

    def _stores(self, name: str, case: Case, keys: int, peers: list[str], batches: int) -> tuple[Input, list[Store]]:
        """Create the input with all keys, and an empty checkpoint for each peer."""
        directory = self._scratch / "case" / f"{name}-{keys}"
        lines = Input(directory / "lines", case, keys, self._options.events, batches, self._options.seed)
        lines.write_keys()
        checkpoints = [(peer, directory / peer) for peer in peers]
        return lines, [Store(case, peer, lines.directory, path, self._options.state) for peer, path in checkpoints]

    def _load(self, name: str, keys: int, store: Store) -> None:
        """Store all keys."""
        played = self._play(store, f"{name} {keys:,} keys {store.peer}, storing the keys", None)
        seconds = sum(batch.seconds for batch in played.batches)
        console.print(f"{name:<8} stored   {keys:>10,} keys  {store.peer:<9}  {seconds:8.1f} s", soft_wrap=True)
        self._results.loads.append(Load(name, keys, store.peer, seconds, played.memory))

    def _play(self, store: Store, doing: str, batches: int | None) -> Played:
        """Run a store, with a progress line every few seconds."""
        files = len(list(store.lines.iterdir()))
        total = f" of {batches or files:,}"

        def report(done: int) -> None:
            console.print(f"    {doing}: batch {done:,}{total}", soft_wrap=True)

        return store.run(self._spark, every_few_seconds(report))

    def _check(self, name: str, keys: int, lines: Input, stores: list[Store]) -> None:
        for store in stores:
            check = Checked(name, keys, store.peer, dict(store.found), lines.expected(store.peer))
            self._results.checked.append(check)
            if not check.agrees:
                console.print(f"[red]{name}, {keys:,} keys, {store.peer}: wrong results[/red]")

    def _keys(self, case: Case) -> tuple[int, ...]:
        return tuple(self._options.keys or case.keys)

    def _peers(self, case: Case) -> list[str]:
        return [peer for peer in case.peers if peer in self._options.peers]

    def _clear(self) -> None:
        shutil.rmtree(self._scratch / "case", ignore_errors=True)


def maximum(uses: list[MemoryUse]) -> MemoryUse:
    return MemoryUse(*(max(getattr(use, name) for use in uses) for name in ("jvm", "python", "mapped")))


def session_settings(options: argparse.Namespace) -> dict[str, str]:
    return {"spark.driver.memory": options.driver_memory} | dict(options.conf)


def settings(options: argparse.Namespace) -> dict[str, object]:
    """Return the options that affect the figures."""
    named = ("cases", "peers", "keys", "events", "warmup", "batches", "written_batches", "rounds", "state", "seed")
    return {name: getattr(options, name) for name in (*named, "master", "driver_memory")} | {"conf": dict(options.conf)}


def settings_line(options: argparse.Namespace) -> str:
    return (
        f"{options.events:,} events per batch; {options.warmup} batches to warm up, then {options.batches} measured, "
        f"in each of {options.rounds} rounds; {options.master}, {options.driver_memory} for the driver; state "
        f"{options.state}"
    )


def parse_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description="Batches that touch few keys of a large state: time, writes, restarts and memory, side by side "
        "with Spark SQL in one session. The full benchmark stores up to 10,000,000 keys per case and takes hours.",
        epilog="Cases: "
        + "; ".join(f"{name} stores {case.title}" for name, case in STEADY.items())
        + "; written compares the bytes that batches write with the bytes that they change; restart measures the "
        "seconds from the start of a run to the end of its first batch. Exit status: 0, or 1 if results are wrong.",
    )
    parser.add_argument(
        "--cases", type=names_of("case", CASES), default=",".join(CASES), help="comma-separated (default: all)"
    )
    parser.add_argument(
        "--peers",
        type=names_of("peer", ("amadou", "spark-sql")),
        default="amadou,spark-sql",
        help="(default: amadou,spark-sql)",
    )
    sizes = ", ".join(f"{name} {'/'.join(f'{keys:,}' for keys in case.keys)}" for name, case in STEADY.items())
    parser.add_argument(
        "--keys", type=numbers, help=f"numbers of stored keys for all cases, separated by commas (default: {sizes})"
    )
    parser.add_argument("--events", type=int, default=10_000, help="events in a batch (default: 10000)")
    parser.add_argument("--batches", type=int, default=10, help="measured batches in each run (default: 10)")
    parser.add_argument("--warmup", type=int, default=3, help="batches before the measured ones (default: 3)")
    parser.add_argument("--written-batches", type=int, default=200, help="batches of the case written (default: 200)")
    parser.add_argument("--rounds", type=int, default=3, help="measured runs of each peer and size (default: 3)")
    parser.add_argument("--state", choices=("groups", "log"), default="log", help="amadou's store (default: log)")
    parser.add_argument("--seed", type=int, default=1, help="random seed for the input files (default: 1)")
    parser.add_argument("--master", default="local[2]", help="Spark's master URL (default: local[2])")
    parser.add_argument("--driver-memory", default="4g", help="heap of the driver's JVM (default: 4g)")
    parser.add_argument("--conf", type=setting, action="append", default=[], metavar="K=V", help="a Spark setting")
    parser.add_argument(
        "--scratch",
        type=Path,
        metavar="DIR",
        help="directory for all files of the benchmark (default: a temporary one)",
    )
    parser.add_argument(
        "--json", type=Path, metavar="FILE", help="write the results and all batches to a file after each case"
    )
    options = parser.parse_args()
    counts = (options.events, options.batches, options.written_batches, options.rounds, *(options.keys or ()))
    if min(counts) < 1 or options.warmup < 0:
        parser.error(
            "--keys, --events, --batches, --written-batches and --rounds must be positive, --warmup not negative"
        )
    return options


if __name__ == "__main__":
    sys.exit(main())
