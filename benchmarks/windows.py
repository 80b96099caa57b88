"""Throughput of windows on Spark, side by side with Spark SQL's `window` and `session_window` over the same files.

    python benchmarks/windows.py
    python benchmarks/windows.py --kinds sessions --keys 1000,100000 --events 100000 --rounds 1
    python benchmarks/windows.py --path --keys 1000,100000

See `benchmarks/README.md` for the measurements and the method.
"""

import argparse
import json
import os
import random
import sys
import tempfile
import zlib
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import report
from attrs import frozen
from events import DISORDER_SECONDS, MINUTE, Tally, time_of_day
from machine import heading, machine
from peers import Batch, run_handler, run_query
from report import Run
from rich.console import Console
from sessions import WARM_UP_BATCHES, WARM_UP_EVENTS, WARM_UP_KEYS, OwnSession
from throughput import ABOUT_RUNS, add_measuring_options, names_of

from amadou.event_time import to_millis
from amadou_plugins.aggregates import Count, Mean
from amadou_plugins.windows import HoppingWindow, SessionWindow, TumblingWindow, WindowSpec, windowed

SESSION_GAP = 25
console = Console(highlight=False) if sys.stdout.isatty() else Console(highlight=False, width=160)


@frozen
class Kind:
    """A kind of window, for amadou and for Spark SQL.

    :param window: function that creates amadou's window
    :param column: function that creates Spark's grouping column
    :param busy: fraction of each minute that has events
    :param fills: `True` if the first batch has an event for each key, the other batches have a tenth of `--events`, and
        the last batch is later than the end of all windows
    """

    title: str
    window: Callable[[], WindowSpec]
    column: Callable[[], Any]
    busy: float = 1
    fills: bool = False


def spark_window(*lengths: str) -> Any:
    from pyspark.sql.functions import window

    return window("timestamp", *lengths)


def spark_session() -> Any:
    from pyspark.sql.functions import session_window

    return session_window("timestamp", f"{SESSION_GAP} seconds")


def value() -> dict[str, Any]:
    return {"n": Count(), "mean": Mean("ms")}


KINDS = {
    "tumbling": Kind(
        "One-minute tumbling windows: count and mean",
        lambda: TumblingWindow(timedelta(minutes=1), value()),
        lambda: spark_window("1 minute"),
    ),
    "hopping": Kind(
        "One-minute windows every 30 seconds: count and mean",
        lambda: HoppingWindow(timedelta(minutes=1), timedelta(seconds=30), value()),
        lambda: spark_window("1 minute", "30 seconds"),
    ),
    "sessions": Kind(
        f"Sessions with a gap of {SESSION_GAP} seconds: count and mean; a third of each minute has events",
        lambda: SessionWindow(timedelta(seconds=SESSION_GAP), value()),
        spark_session,
        busy=1 / 3,
    ),
    "open": Kind(
        "One-hour windows, open for all keys: count and mean",
        lambda: TumblingWindow(timedelta(hours=1), value()),
        lambda: spark_window("1 hour"),
        fills=True,
    ),
}


def main() -> int:
    """Run the benchmark. Return 1 if the results differ."""
    options = parse_options()
    described = machine()
    console.print(f"[bold]{heading(described)}[/bold]", soft_wrap=True)
    agreed = True
    with tempfile.TemporaryDirectory(prefix="amadou-windows-") as scratch:
        for kind in options.kinds:
            console.print(KINDS[kind].title)
            run = partial(run_peer, options, Path(scratch), kind, {})
            runs = report.in_turns(console, options, PATHS if options.path else options.peers, run)
            agreed = report.print_agreement(console, runs) and agreed
            console.print(report.table(runs, KINDS[kind].title, PATHS[0] if options.path else report.BASE))
    console.print(report.FOOTNOTE)
    return 0 if agreed else 1


def run_peer(
    options: argparse.Namespace,
    scratch: Path,
    kind: str,
    expected: dict[int, Tally],
    peer: str,
    keys: int,
    settings: dict[str, str],
) -> Run:
    """Run one peer once, in a session of its own and with new directories.

    :param expected: the results of the first run with each number of keys, with which all other runs must agree
    """
    batches = options.warmup + options.batches
    events = options.events // 10 if KINDS[kind].fills else options.events
    first = dataset(scratch, KINDS[kind], WARM_UP_KEYS, min(events, WARM_UP_EVENTS), WARM_UP_BATCHES, options.seed)
    files = dataset(scratch, KINDS[kind], keys, events, batches, options.seed)
    with (
        tempfile.TemporaryDirectory(prefix=f"{peer}-", dir=scratch) as directory,
        OwnSession(options.master, settings) as own,
    ):
        work = Path(directory)
        own.call(process_files, peer, kind, first, work / "warm-up")
        reported = own.with_cpu(own.call(process_files, peer, kind, files, work))
        tally = tally_of(work / "output")
        return Run.of(peer, keys, events, options.warmup, reported, tally, expected.setdefault(keys, tally))


def process_files(spark: Any, peer: str, kind: str, files: Path, work: Path) -> list[Batch]:
    """Run a peer over files. Return the batches as reported by Spark."""
    return ALL_PEERS[peer](spark, KINDS[kind], files, work / "output", work / "checkpoint")


def run_amadou(spark: Any, kind: Kind, files: Path, output: Path, checkpoint: Path, state: str = "auto") -> list[Batch]:
    """Run a `windowed` handler."""
    handler = windowed(key="key", timestamp="timestamp", window=kind.window())
    return run_handler(handler, "results", spark, files, output, checkpoint, state)


def run_keyed_by_columns(spark: Any, kind: Kind, files: Path, output: Path, checkpoint: Path) -> list[Batch]:
    """Run a handler that keys records in columns and passes events to the window one by one."""
    handler = windowed(key="key", timestamp="timestamp", window=kind.window())
    handler.delegates_to = None
    return run_handler(handler, "results", spark, files, output, checkpoint)


def run_columns_in_windows(spark: Any, kind: Kind, files: Path, output: Path, checkpoint: Path) -> list[Batch]:
    """Run a handler that keys records one by one and passes events to the window in columns."""
    handler = windowed(key="key", timestamp="timestamp", window=kind.window())
    handler.key_batch = no_columns  # type: ignore[method-assign]
    return run_handler(handler, "results", spark, files, output, checkpoint)


def run_per_event(spark: Any, kind: Kind, files: Path, output: Path, checkpoint: Path) -> list[Batch]:
    """Run a handler whose callbacks process records and events one by one."""
    handler = windowed(key="key", timestamp="timestamp", window=kind.window())
    handler.delegates_to = None
    handler.key_batch = no_columns  # type: ignore[method-assign]
    return run_handler(handler, "results", spark, files, output, checkpoint)


def no_columns(records: list[Any]) -> None:
    return None


def run_spark_sql(spark: Any, kind: Kind, files: Path, output: Path, checkpoint: Path) -> list[Batch]:
    """Run Spark SQL's own windows, with Spark's own file sink."""
    from pyspark.sql.functions import avg, col, count, from_json

    lines = spark.readStream.option("maxFilesPerTrigger", 1).text(str(files))
    parsed = lines.select(from_json("value", "key string, timestamp timestamp, ms long").alias("event")).select(
        "event.*"
    )
    grouped = (
        parsed.withWatermark("timestamp", f"{DISORDER_SECONDS} seconds")
        .groupBy("key", kind.column().alias("window"))
        .agg(count("*").alias("n"), avg("ms").alias("mean"))
        .select("key", col("window.start").alias("start"), col("window.end").alias("end"), "n", "mean")
    )
    return run_query(grouped.writeStream.outputMode("append").format("json").option("path", str(output)), checkpoint)


PEERS: dict[str, Any] = {
    "spark-sql": run_spark_sql,
    "amadou": run_amadou,
    "groups": partial(run_amadou, state="groups"),
    "log": partial(run_amadou, state="log"),
}
ALL_PEERS = PEERS | {
    "keyed-by-columns": run_keyed_by_columns,
    "columns-in-windows": run_columns_in_windows,
    "per-event": run_per_event,
}
PATHS = ("per-event", "keyed-by-columns", "columns-in-windows", "amadou")


def dataset(root: Path, kind: Kind, keys: int, events: int, batches: int, seed: int) -> Path:
    """Return files of one minute each. The first call creates them. Each file has as many distinct keys as possible."""
    directory = root / f"{keys}-keys-{events}-events-{batches}-batches-{kind.busy:.2f}-busy{'-full' * kind.fills}"
    if not directory.exists():
        directory.mkdir(parents=True)
        random_ = random.Random(seed)
        for batch in range(batches):
            path = directory / f"events-{batch:05}.jsonl"
            number = keys if kind.fills and batch == 0 else events
            after = 120 * MINUTE if kind.fills and batch == batches - 1 else 0
            path.write_text("".join(lines(kind, keys, number, batch, random_, after)))
            os.utime(path, (1_735_689_600 + batch,) * 2)  # Spark reads the files of a directory by modification time
    return directory


def lines(kind: Kind, keys: int, events: int, batch: int, random_: random.Random, after: int = 0) -> Iterator[str]:
    """Yield the events of a minute as lines of JSON, slightly out of order. No event is ever late.

    :param after: microseconds by which to delay all events
    """
    for position in range(events):
        disorder = random_.randrange(DISORDER_SECONDS * 1_000_000)
        micros = max(batch * MINUTE + int(position * MINUTE * kind.busy) // events - disorder, 0) + after
        key = (batch * events + position) * 7919 % keys
        yield f'{{"key":"key-{key}","timestamp":"{time_of_day(micros)}","ms":{random_.randrange(1000)}}}\n'


def tally_of(output: Path) -> Tally:
    """Return the tally of an output, from amadou or from Spark SQL."""
    total = Tally()
    for path in sorted(output.rglob("*.json*")):
        if any(part.startswith((".", "_")) for part in path.relative_to(output).parts):
            continue
        for line in path.read_bytes().splitlines():
            row = json.loads(line)
            row |= row.get("value", {})
            # Spark writes timestamps with milliseconds
            start, end = (to_millis(datetime.fromisoformat(row[name])) for name in ("start", "end"))
            text = f"{row['key']}|{start}|{end}|{row['n']}|{row['mean']:.9f}"
            total += Tally(1, row["n"], zlib.crc32(text.encode()))
    return total


def parse_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description="Throughput of windows on Spark, side by side with Spark SQL.",
        epilog=f"{ABOUT_RUNS} The defaults take about 70 minutes on two idle cores. "
        "Exit status: 0, or 1 if the results differ.",
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    parser.add_argument("--kinds", type=names_of("kind", KINDS), default=",".join(KINDS), help="comma-separated")
    parser.add_argument(
        "--peers",
        type=names_of("peer", PEERS),
        default="spark-sql,amadou",
        help="comma-separated; groups and log are amadou with that store",
    )
    parser.add_argument("--path", action="store_true", help="compare vectorised and per-event paths, not the peers")
    add_measuring_options(parser)
    return parser.parse_args()


if __name__ == "__main__":
    import windows

    sys.exit(windows.main())
