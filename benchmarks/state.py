"""Time, CPU time, writes and memory of batches that touch few keys of a large state, side by side with Spark SQL.

    python benchmarks/state.py
    python benchmarks/state.py --cases counters,windows --keys 20000,200000 --rounds 1

See `benchmarks/README.md` for the measurements and the method.
"""

import argparse
import shutil
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from statistics import median

from attrs import evolve
from events import Tally
from machine import heading, machine
from memory import MemoryUse
from report import Run, with_data
from rich.console import Console
from sessions import WARM_UP_BATCHES, WARM_UP_KEYS, OwnSession, fastest_settings, label_of
from state_input import Input
from state_jobs import RESTART, STEADY, WRITTEN, Case
from state_report import Checked, Load, Restart, Results, Steady, Written
from state_runs import FilesWatch, FinishedRun, Store, run_store
from throughput import names_of, numbers, setting

CASES = (*STEADY, "written", "restart")
TRIAL_KEYS = 100_000
console = Console(highlight=False) if sys.stdout.isatty() else Console(highlight=False, width=170)


def main() -> int:
    """Run the benchmark. Return 1 if results are wrong."""
    options = parse_options()
    described = machine()
    console.print(f"[bold]{heading(described)}[/bold]\n{settings_line(options)}", soft_wrap=True)
    results = Results()
    with tempfile.TemporaryDirectory(prefix="amadou-state-", dir=options.scratch) as scratch:
        benchmark = Benchmark(options, Path(scratch), results)
        for case in options.cases:
            benchmark.run(case)
            if options.json:
                results.write_json(options.json, described, settings(options))
    return 0 if results.print(console) else 1


class Benchmark:
    """The cases. Each run has a Spark session of its own."""

    def __init__(self, options: argparse.Namespace, scratch: Path, results: Results) -> None:
        self._options = options
        self._scratch = scratch
        self._results = results
        self._fastest: dict[tuple[str, str], dict[str, str]] = {}

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
                    finished = self._run(store, f"{name} {keys:,} keys {store.peer}", count)
                    run = Run.of(store.peer, keys, options.events, options.warmup, finished.batches, Tally(), Tally())
                    label = label_of(self._settings(case, store.peer))
                    run = evolve(run, round=round_, settings=label)
                    console.print(f"{name:<8} {run.progress_line()}", soft_wrap=True)
                    self._results.steady.append(Steady(name, run, finished.memory))
        for keys, (lines, stores) in inputs.items():
            if case.has_windows:
                lines.close_windows()
                for store in stores:
                    self._run(store, f"{name} {keys:,} keys {store.peer}, closing the windows", 1)
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
                finished = self._run(store, f"written {name} {keys:,} keys {store.peer}", batches)
            each = (sum(lines.changed) / batches, files.changelogs / batches, files.others / batches)
            self._results.written.append(Written(name, keys, store.peer, batches, *each, finished.memory))
            console.print(f"written  {keys:>9,} keys  {store.peer:<9}  {files.changelogs / batches:,.0f} bytes a batch")
        self._check(f"written ({name})", keys, lines, stores)

    def _restart(self, keys: int) -> None:
        """Measure the first batch of runs in new sessions without local files, and of another run in each session."""
        options = self._options
        lines, stores = self._stores("restart", RESTART, keys, self._peers(RESTART), 2 * options.rounds)
        for store in stores:
            self._load("restart", keys, store)
        runs: dict[tuple[str, str], list[FinishedRun]] = {}
        for _ in range(options.rounds):
            with ExitStack() as stack:
                sessions = [stack.enter_context(self._session(store.case, store.peer)) for store in stores]
                for kind in ("state lost", "same machine"):
                    lines.add_batches(1)
                    for store, own in zip(stores, sessions, strict=True):
                        finished = run_in(own, store, f"restart {keys:,} keys {store.peer}", 1)
                        runs.setdefault((kind, store.peer), []).append(finished)
                        console.print(f"restart  {keys:>9,} keys  {store.peer:<9}  {kind}: {finished.first:.2f} s")
        for (kind, peer), each in runs.items():
            memory = maximum([run.memory for run in each])
            self._results.restarts.append(Restart(keys, peer, kind, [run.first for run in each], memory))
        self._check("restart", keys, lines, stores)

    def _stores(self, name: str, case: Case, keys: int, peers: list[str], batches: int) -> tuple[Input, list[Store]]:
        """Create the input with all keys, and an empty checkpoint for each peer."""
        return self._stores_in(self._scratch / "case" / f"{name}-{keys}", case, keys, peers, batches)

    def _stores_in(
        self, directory: Path, case: Case, keys: int, peers: list[str], batches: int
    ) -> tuple[Input, list[Store]]:
        lines = Input(directory / "lines", case, keys, self._options.events, batches, self._options.seed)
        lines.write_keys()
        checkpoints = [(peer, directory / peer) for peer in peers]
        return lines, [Store(case, peer, lines.directory, path, self._options.state) for peer, path in checkpoints]

    def _load(self, name: str, keys: int, store: Store) -> None:
        """Store all keys."""
        files = len(list(store.lines.iterdir()))
        finished = self._run(store, f"{name} {keys:,} keys {store.peer}, storing the keys", files)
        seconds = sum(batch.seconds for batch in finished.batches)
        console.print(f"{name:<8} stored   {keys:>10,} keys  {store.peer:<9}  {seconds:8.1f} s", soft_wrap=True)
        self._results.loads.append(Load(name, keys, store.peer, seconds, finished.memory))

    def _run(self, store: Store, doing: str, batches: int) -> FinishedRun:
        """Run a store in a session of its own."""
        with self._session(store.case, store.peer) as own:
            return run_in(own, store, doing, batches)

    @contextmanager
    def _session(self, case: Case, peer: str, tried: dict[str, str] | None = None) -> Iterator[OwnSession]:
        """Start a session without local files, with the settings that are fastest for the peer, and warm it up.

        :param tried: settings to use instead
        """
        options = self._options
        settings = self._settings(case, peer) if tried is None else tried
        with tempfile.TemporaryDirectory(prefix="session-", dir=self._scratch) as name:
            directory = Path(name)
            own_settings = {"spark.driver.memory": options.driver_memory, "spark.local.dir": str(directory / "local")}
            with OwnSession(options.master, own_settings | settings) as own:
                lines, (store,) = self._stores_in(directory, case, WARM_UP_KEYS, [peer], WARM_UP_BATCHES)
                lines.add_batches(WARM_UP_BATCHES)
                run_in(own, store, "warming up", WARM_UP_BATCHES + 1)
                yield own

    def _settings(self, case: Case, peer: str) -> dict[str, str]:
        """Return the settings that are fastest for a peer. A batch has the same work with every number of keys, so they
        are tried with few keys.
        """
        job = case.title, peer
        if job not in self._fastest:
            self._fastest[job] = fastest_settings(dict(self._options.conf), partial(self._try, case, peer))
            console.print(f"settings of {peer} for {case.title}: {label_of(self._fastest[job])}")
        return self._fastest[job]

    def _try(self, case: Case, peer: str, settings: dict[str, str]) -> float:
        """Return the median time of a batch with settings."""
        options = self._options
        count = options.warmup + options.batches
        with tempfile.TemporaryDirectory(prefix="trial-", dir=self._scratch) as name:
            keys = min(TRIAL_KEYS, *self._keys(case))
            lines, (store,) = self._stores_in(Path(name), case, keys, [peer], count)
            with self._session(case, peer, settings) as own:
                run_in(own, store, "storing the keys", 1)
                lines.add_batches(count)
                batches = run_in(own, store, "trying settings", count).batches
        seconds = median(batch.seconds for batch in with_data(batches)[options.warmup :])
        console.print(f"trial    {case.title}, {peer}, {label_of(settings)}: {seconds:.2f} s a batch", soft_wrap=True)
        return seconds

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


def run_in(own: OwnSession, store: Store, doing: str, batches: int) -> FinishedRun:
    """Run a store in a session."""
    finished, store.found = own.call(run_store, store, doing, batches)
    return evolve(finished, batches=own.with_cpu(finished.batches))


def maximum(uses: list[MemoryUse]) -> MemoryUse:
    return MemoryUse(*(max(getattr(use, name) for use in uses) for name in ("jvm", "python", "mapped")))


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
        description="Batches that touch few keys of a large state: time, CPU time, writes, restarts and memory, side "
        "by side with Spark SQL. Each run has a Spark session in a process of its own. Before its first run of a job, "
        "each peer is run three times with few keys, without being measured, to find the faster of Java's compilers, "
        "and whether code generation makes Spark faster. A setting in --conf is not tried. The full benchmark stores "
        "up to 10,000,000 keys per case and takes two hours on two idle cores.",
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
    import state

    sys.exit(state.main())
