"""Throughput of the tumbling-window job on Spark, side by side with Spark SQL and per-key `applyInPandasWithState`.

    python benchmarks/throughput.py
    python benchmarks/throughput.py --keys 1000 --peers amadou,spark-sql --rounds 1 --events 50000

See `benchmarks/README.md` for the measurements and the method.
"""

import argparse
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterable
from pathlib import Path

import report
from events import Dataset, Tally, dataset, tally_of
from machine import heading, machine
from peers import PEERS, VARIANTS, Batch, new_session
from report import Run
from rich.console import Console

NAIVE_MOST_KEYS = 100_000
NAIVE_WARMUP, NAIVE_BATCHES = 1, 1
console = Console(highlight=False) if sys.stdout.isatty() else Console(highlight=False, width=140)


def main() -> int:
    """Run the benchmark. Return 1 if a peer's results are wrong."""
    options = parse_options()
    described = machine()
    console.print(f"[bold]{heading(described)}[/bold]\n{settings_line(options)}", soft_wrap=True)
    with tempfile.TemporaryDirectory(prefix="amadou-throughput-") as scratch:
        runs = measure(options, Path(scratch))
    if options.json:
        report.write_json(options.json, described, settings(options), runs)
    if options.plot:
        report.draw(options.plot, heading(described), runs)
    agreed = report.print_agreement(console, runs)
    console.print(report.table(runs))
    console.print(report.FOOTNOTE)
    return 0 if agreed else 1


def measure(options: argparse.Namespace, scratch: Path) -> list[Run]:
    """Run each peer with each key count in turn, round by round, so a machine that slows down affects all peers."""
    spark = new_session(options.master, dict(options.conf))
    runs = []
    try:
        warm_up(options, spark, scratch)
        for round_ in range(1, options.rounds + 1):
            for keys in options.keys:
                for peer in options.peers:
                    reason = reason_to_skip(options, peer, keys, round_)
                    if reason:
                        console.print(f"round {round_}  {keys:>9,} keys  {peer:<9}  skipped: {reason}")
                        continue
                    run = play(options, spark, scratch, peer, keys, round_)
                    console.print(run.progress_line(), soft_wrap=True)
                    runs.append(run)
    finally:
        spark.stop()
    return runs


def warm_up(options: argparse.Namespace, spark: object, scratch: Path) -> None:
    """Run each peer once without measuring it: the first query of a session is slow, as it also loads and compiles."""
    data = dataset(options.data or scratch, 1000, min(options.events, 50_000), 3, options.seed)
    for peer in options.peers:
        started = time.perf_counter()
        play_files(spark, scratch, peer, data)
        console.print(f"warmed up {peer} in {time.perf_counter() - started:.1f} s")


def play(options: argparse.Namespace, spark: object, scratch: Path, peer: str, keys: int, round_: int) -> Run:
    """Run one peer once, with new directories."""
    naive = peer == "naive"
    events = options.naive_events if naive else options.events
    warmup = NAIVE_WARMUP if naive else options.warmup
    count = NAIVE_BATCHES if naive else options.batches
    data = dataset(options.data or scratch, keys, events, warmup + count, options.seed)
    batches, tally = play_files(spark, scratch, peer, data)
    return Run.of(peer, keys, events, round_, warmup, batches, tally, data.expected)


def play_files(spark: object, scratch: Path, peer: str, data: Dataset) -> tuple[list[Batch], Tally]:
    """Run a peer over files. Return the batches as reported by Spark, and the tally of the output."""
    work = Path(tempfile.mkdtemp(prefix=f"{peer}-", dir=scratch))
    try:
        batches = (PEERS | VARIANTS)[peer](spark, data.directory, work / "output", work / "checkpoint")
        return batches, tally_of(work / "output")
    finally:
        shutil.rmtree(work, ignore_errors=True)


def reason_to_skip(options: argparse.Namespace, peer: str, keys: int, round_: int) -> str | None:
    """Return the reason to skip a peer, or `None`. The naive peer takes minutes per batch with 100,000 keys or more."""
    if peer != "naive":
        return None
    if keys > NAIVE_MOST_KEYS and not options.peers_asked:
        return f"slow with more than {NAIVE_MOST_KEYS:,} keys; name this peer in --peers to run it"
    return "runs in the first round only" if round_ > 1 else None


def settings(options: argparse.Namespace) -> dict[str, object]:
    """Return the options that affect the figures."""
    named = ("events", "warmup", "batches", "rounds", "keys", "peers", "naive_events", "seed", "master")
    return {name: getattr(options, name) for name in named} | {"conf": dict(options.conf)}


def settings_line(options: argparse.Namespace) -> str:
    return (
        f"{options.events:,} events per batch; {options.warmup} batches to warm up, then {options.batches} measured, "
        f"in each of {options.rounds} rounds; {options.master}"
    )


def parse_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description="Throughput of the tumbling-window job on Spark, side by side with its peers in one session.",
        epilog="Exit status: 0, or 1 if a peer's results are wrong.",
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    add_measuring_options(parser)
    parser.add_argument(
        "--peers",
        type=names_of("peer", (*PEERS, *VARIANTS)),
        default=argparse.SUPPRESS,
        help=f"comma-separated (default: {','.join(PEERS)}); groups and log are amadou with that store",
    )
    parser.add_argument(
        "--naive-events",
        type=int,
        default=argparse.SUPPRESS,
        help="events in a micro-batch of the naive peer (default: the value of --events)",
    )
    parser.add_argument("--data", type=Path, help="store the input files in this directory, and reuse them")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the table and all batches to a file")
    parser.add_argument("--plot", type=Path, metavar="FILE", help="draw the figures (.png, .svg; needs matplotlib)")
    options = parser.parse_args()
    options.peers_asked = "peers" in options
    options.peers = options.peers if options.peers_asked else list(PEERS)
    options.naive_events = getattr(options, "naive_events", options.events)
    options.data = options.data and options.data.resolve()
    if (
        min(options.events, options.naive_events, options.batches, options.rounds, *options.keys) < 1
        or options.warmup < 0
    ):
        parser.error("--events, --naive-events, --batches, --rounds and --keys must be positive, --warmup non-negative")
    return options


def add_measuring_options(parser: argparse.ArgumentParser) -> None:
    """Add the measurement options that all benchmarks on Spark share."""
    parser.add_argument("--events", type=int, default=200_000, help="events in a micro-batch")
    parser.add_argument("--batches", type=int, default=5, help="measured batches in each run")
    parser.add_argument("--warmup", type=int, default=2, help="batches before the measured ones")
    parser.add_argument("--rounds", type=int, default=3, help="measured runs of each peer with each key count")
    parser.add_argument("--keys", type=numbers, default="1000,100000,1000000", help="key counts, separated by commas")
    parser.add_argument("--seed", type=int, default=1, help="random seed for the input files")
    parser.add_argument("--master", default="local[2]", help="Spark's master URL")
    parser.add_argument("--conf", type=setting, action="append", default=[], metavar="K=V", help="a Spark setting")


def numbers(text: str) -> list[int]:
    try:
        return [int(number) for number in text.split(",")]
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"expected integers separated by commas, not {text!r}") from error


def names_of(what: str, known: Iterable[str]) -> Callable[[str], list[str]]:
    """Return the function that reads an option with names, separated by commas."""

    def names(text: str) -> list[str]:
        found = text.split(",")
        unknown = [name for name in found if name not in known]
        if unknown:
            raise argparse.ArgumentTypeError(f"unknown {what}: {', '.join(unknown)} (known: {', '.join(known)})")
        return found

    return names


def setting(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals:
        raise argparse.ArgumentTypeError(f"{text!r} is not NAME=VALUE")
    return name, value


if __name__ == "__main__":
    sys.exit(main())
