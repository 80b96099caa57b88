"""Throughput of the tumbling-window job on Spark, side by side with Spark SQL and per-key `applyInPandasWithState`.

    python benchmarks/throughput.py
    python benchmarks/throughput.py --keys 1000 --peers amadou,spark-sql --rounds 1 --events 50000

See `benchmarks/README.md` for the measurements and the method.
"""

import argparse
import sys
import tempfile
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import Any

import report
from events import dataset, tally_of
from machine import heading, machine
from peers import PEERS, VARIANTS, Batch
from report import Run
from rich.console import Console
from sessions import WARM_UP_BATCHES, WARM_UP_EVENTS, WARM_UP_KEYS, OwnSession

NAIVE_MOST_KEYS = 100_000
NAIVE_WARMUP, NAIVE_BATCHES = 1, 1
ABOUT_RUNS = (
    "Each run has a Spark session in a process of its own, whose start and warm-up take about 12 seconds on two idle "
    "cores. Before its first run with a number of keys, each peer is run three times without being measured, to find "
    "the faster of Java's compilers, and whether code generation makes Spark faster. A setting in --conf is not tried."
)
console = Console(highlight=False) if sys.stdout.isatty() else Console(highlight=False, width=160)


def main() -> int:
    """Run the benchmark. Return 1 if a peer's results are wrong."""
    options = parse_options()
    described = machine()
    console.print(f"[bold]{heading(described)}[/bold]\n{settings_line(options)}", soft_wrap=True)
    with tempfile.TemporaryDirectory(prefix="amadou-throughput-") as scratch:
        runs = report.in_turns(
            console,
            options,
            options.peers,
            partial(run_peer, options, Path(scratch)),
            partial(reason_to_skip, options),
            lambda peer, keys: min(options.keys) if peer == "naive" else keys,
        )
    if options.json:
        report.write_json(options.json, described, settings(options), runs)
    if options.plot:
        report.draw(options.plot, heading(described), runs)
    agreed = report.print_agreement(console, runs)
    console.print(report.table(runs))
    console.print(report.FOOTNOTE)
    return 0 if agreed else 1


def run_peer(options: argparse.Namespace, scratch: Path, peer: str, keys: int, settings: dict[str, str]) -> Run:
    """Run one peer once, in a session of its own and with new directories."""
    naive = peer == "naive"
    events = options.naive_events if naive else options.events
    warmup = NAIVE_WARMUP if naive else options.warmup
    count = NAIVE_BATCHES if naive else options.batches
    root = options.data or scratch
    first = dataset(root, WARM_UP_KEYS, min(options.events, WARM_UP_EVENTS), WARM_UP_BATCHES, options.seed)
    data = dataset(root, keys, events, warmup + count, options.seed)
    with (
        tempfile.TemporaryDirectory(prefix=f"{peer}-", dir=scratch) as directory,
        OwnSession(options.master, settings) as own,
    ):
        work = Path(directory)
        own.call(process_files, peer, first.directory, work / "warm-up")
        batches = own.with_cpu(own.call(process_files, peer, data.directory, work))
        return Run.of(peer, keys, events, warmup, batches, tally_of(work / "output"), data.expected)


def process_files(spark: Any, peer: str, files: Path, work: Path) -> list[Batch]:
    """Run a peer over files. Return the batches as reported by Spark."""
    return (PEERS | VARIANTS)[peer](spark, files, work / "output", work / "checkpoint")


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
        description="Throughput of the tumbling-window job on Spark, side by side with its peers.",
        epilog=f"{ABOUT_RUNS} The defaults take about 25 minutes on two idle cores; without the peer naive, 15 "
        "minutes. Exit status: 0, or 1 if a peer's results are wrong.",
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
    import throughput

    sys.exit(throughput.main())
