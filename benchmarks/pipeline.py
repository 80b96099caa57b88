"""The cost of a second stage, and of a large reference: time of a batch on Spark, and CPU time per event.

    python benchmarks/pipeline.py
    python benchmarks/pipeline.py --events 20000 --entries 100000 --rounds 1

`counts` is the job of `throughput.py`: views by channel and minute. `totals` adds a second stage, the views of all
channels by minute; `topic` does the same with two jobs and a Kafka topic in between. The README describes all peers.
"""

import argparse
import json
import os
import sys
import tempfile
from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any, Literal

import orjson
from attrs import frozen
from connectors import new_topic
from events import DISORDER_SECONDS, Dataset, dataset
from machine import heading, machine
from peers import EXAMPLE, Batch, parsed_views, run_job, run_query
from report import micros, with_data
from sessions import WARM_UP_BATCHES, WARM_UP_EVENTS, WARM_UP_KEYS, OwnSession, fastest_settings, label_of
from throughput import ABOUT_RUNS, add_measuring_options, names_of

from amadou import FromPort, Handler, Job, KeyedEvent, MapSpec, ReferenceSpec, SinkSpec, Stage, Subject
from amadou_plugins.aggregates import Sum
from amadou_plugins.connectors import JsonLinesSink, KafkaRecord, KafkaSink, KafkaSource, LinesSource
from amadou_plugins.windows import TumblingWindow, windowed

sys.path.insert(0, str(EXAMPLE))
from views import MINUTE, ViewsPerMinute, ViewSum

MICROSECOND = timedelta(microseconds=1)
ALL = "all channels"
Rows = dict[datetime, list[int]]


class Totals(Handler):
    """Adds up the sums of all channels by minute."""

    totals = MapSpec(datetime, int)
    sums = SinkSpec(ViewSum)

    def key_event(self, record: ViewSum | KafkaRecord) -> KeyedEvent[int]:
        if isinstance(record, KafkaRecord):
            fields = orjson.loads(record.value or b"")
            record = ViewSum(fields["channel_id"], datetime.fromisoformat(fields["timestamp"]), fields["sum"])
        return KeyedEvent(ALL, record.timestamp + MINUTE, record.sum)

    def on_event(self, subject: Subject, event: KeyedEvent[int]) -> None:
        totals = self.totals.state_for(subject)
        totals[event.timestamp] = totals.get(event.timestamp, 0) + event.value
        subject.set_timer(event.timestamp + MICROSECOND)

    def on_timer_expired(self, subject: Subject, timestamp: datetime) -> None:
        end = timestamp - MICROSECOND
        self.sums.collect(subject, ViewSum(ALL, end - MINUTE, self.totals.state_for(subject).pop(end)))


class Plain(ViewsPerMinute):
    """Counts the views of channels that are not blocked. No channel is blocked."""

    def on_event(self, subject: Subject, event: KeyedEvent) -> None:
        if not self.is_blocked(subject):
            super().on_event(subject, event)

    def is_blocked(self, subject: Subject) -> bool:
        return subject.key == ALL


class Referring(Plain):
    """Has the blocked channels in a reference."""

    blocked = ReferenceSpec(str, bool, source="blocked")

    def is_blocked(self, subject: Subject) -> bool:
        return (subject, subject.key) in self.blocked


class Unread(Referring):
    """Has the reference, but does not read it."""

    def is_blocked(self, subject: Subject) -> bool:
        return subject.key == ALL


def lines(data: Dataset) -> LinesSource:
    return LinesSource(str(data.directory), max_files_per_batch=1)


def counts(
    spark: Any,
    data: Dataset,
    work: Path,
    handler: Handler | None = None,
    state: Literal["auto", "log"] = "auto",
    **sources: Any,
) -> list[list[Batch]]:
    """Run the job with one stage.

    :param state: the store, as in `Job(state=...)`
    """
    sinks = {"sums": JsonLinesSink(str(work / "output"))}
    sources = {"views": lines(data), **sources}
    job = Job("counts", handler or ViewsPerMinute(), sources, sinks, watermark_delay=DISORDER_SECONDS, state=state)
    return [run_job(spark, job, work / "checkpoint")]


def totals(spark: Any, data: Dataset, work: Path, *, in_windows: bool) -> list[list[Batch]]:
    """Run the job with two stages.

    :param in_windows: `True` for a window as the second stage, in place of a handler
    """
    first = Stage(ViewsPerMinute(), {"views": lines(data)}, watermark_delay=DISORDER_SECONDS)
    port = "results" if in_windows else "sums"
    second = Stage(
        windowed(key=lambda sum: ALL, timestamp="timestamp", window=TumblingWindow(MINUTE, Sum("sum")))
        if in_windows
        else Totals(),
        {"sums": FromPort("counts", "sums")},
        {port: JsonLinesSink(str(work / "output"))},
    )
    job = Job("totals", stages={"counts": first, "totals": second})
    return [run_job(spark, job, work / "checkpoint")]


def topic(spark: Any, data: Dataset, work: Path) -> list[list[Batch]]:
    """Run two jobs one after the other, with a topic in between."""
    kafka = os.environ["AMADOU_KAFKA"]
    between = new_topic(kafka)
    sink = KafkaSink(between, kafka, exactly_once=True)
    first = Job("counts", ViewsPerMinute(), {"views": lines(data)}, {"sums": sink}, watermark_delay=DISORDER_SECONDS)
    source = KafkaSource(between, kafka, max_records_per_batch=data.expected.rows // (data.batches - 1))  # a minute
    second = Job("totals", Totals(), {"sums": source}, {"sums": JsonLinesSink(str(work / "output"))})
    return [run_job(spark, job, work / f"checkpoint-{job.name}") for job in (first, second)]


def spark_sql(spark: Any, data: Dataset, work: Path, chained: bool) -> list[list[Batch]]:
    """Run Spark SQL's windows. With `chained`, a second aggregation adds up the counts of a minute."""
    from pyspark.sql.functions import lit, window

    found = parsed_views(spark, data.directory).groupBy("channel_id", window("timestamp", "1 minute")).count()
    if chained:
        found = found.groupBy("window").sum("count").withColumnsRenamed({"sum(count)": "count"})
        found = found.withColumn("channel_id", lit(ALL))
    found = found.selectExpr("channel_id", "window.start AS timestamp", "count AS sum")
    writer = found.writeStream.outputMode("append").format("json").option("path", str(work / "output"))
    return [run_query(writer, work / "checkpoint")]


def with_reference(spark: Any, data: Dataset, work: Path, handler: Handler, entries: int) -> list[list[Batch]]:
    """Run the job with a reference. The first batch reads the entries."""
    (work / "blocked").mkdir(parents=True)
    with (work / "blocked" / "entries.jsonl").open("w") as file:
        file.writelines(f'{{"channel_id":"blocked-{number}"}}\n' for number in range(entries))
    return counts(spark, data, work, handler, blocked=LinesSource(str(work / "blocked"), key_event=entry_of))


def entry_of(record: bytes) -> KeyedEvent[bool]:
    return KeyedEvent(orjson.loads(record)["channel_id"], datetime.fromisoformat("2025-01-01T00:00:00Z"), True)


@frozen
class Measured:
    """One run of a peer.

    :param seconds: median time of a measured batch; of a peer with two jobs, the sum of both medians
    :param cpu_micros: CPU time of the measured batches per event of the input, in microseconds
    """

    seconds: float
    cpu_micros: float
    rows: Rows


def rows_of(output: Path) -> Rows:
    """Return the sums of each minute that are in an output."""
    rows: Rows = {}
    for path in output.glob("[!.]*.json*"):
        for line in path.read_bytes().splitlines():
            fields = json.loads(line)
            of_window = "start" in fields  # a WindowResult, in place of a ViewSum
            minute, sum_ = (fields["start"], fields["value"]) if of_window else (fields["timestamp"], fields["sum"])
            rows.setdefault(datetime.fromisoformat(minute), []).append(sum_)
    return rows


def problems(outputs: Mapping[str, Rows], data: Dataset) -> list[str]:
    """Return the differences between the outputs. `topic` and `sql-totals` end before the last minutes."""
    expected = {minute: sum(sums) for minute, sums in next(iter(outputs.values())).items()}
    wrong = []
    for name, rows in outputs.items():
        if any(sum(sums) != expected.get(minute) for minute, sums in rows.items()):
            wrong.append(f"{name} has other sums of a minute")
        if name in WITH_TOTALS and any(len(sums) != 1 for sums in rows.values()):
            wrong.append(f"{name} has several totals of a minute")
        ends = len(rows) < len(expected) - 2 if name in ("topic", "sql-totals") else rows.keys() != expected.keys()
        if ends or (name not in WITH_TOTALS and sum(map(sum, rows.values())) != data.expected.sum):
            wrong.append(f"{name} lacks minutes")
    return wrong


PEERS: dict[str, Callable[[Any, Dataset, Path, int], list[list[Batch]]]] = {
    "counts": lambda spark, data, work, entries: counts(spark, data, work),
    "log": lambda spark, data, work, entries: counts(spark, data, work, state="log"),
    "totals": lambda spark, data, work, entries: totals(spark, data, work, in_windows=False),
    "windowed": lambda spark, data, work, entries: totals(spark, data, work, in_windows=True),
    "topic": lambda spark, data, work, entries: topic(spark, data, work),
    "sql-counts": lambda spark, data, work, entries: spark_sql(spark, data, work, chained=False),
    "sql-totals": lambda spark, data, work, entries: spark_sql(spark, data, work, chained=True),
    "plain": lambda spark, data, work, entries: counts(spark, data, work, Plain()),
    "unread": lambda spark, data, work, entries: with_reference(spark, data, work, Unread(), entries),
    "reference": lambda spark, data, work, entries: with_reference(spark, data, work, Referring(), entries),
}
BASES = {"log": "counts", "totals": "counts", "windowed": "counts", "topic": "counts", "sql-totals": "sql-counts"}
BASES |= {"unread": "plain", "reference": "plain"}
WITH_TOTALS = ("totals", "windowed", "topic", "sql-totals")


def main() -> int:
    """Run the benchmark. Return 1 if results are wrong."""
    options = parse_options()
    print(heading(machine()))
    wrong: list[str] = []
    with tempfile.TemporaryDirectory(prefix="amadou-pipeline-") as scratch:
        for keys in options.keys:
            data = dataset(Path(scratch), keys, options.events, options.warmup + options.batches, options.seed)
            settings: dict[str, dict[str, str]] = {}
            measured: dict[str, list[Measured]] = {name: [] for name in options.peers}
            for round_ in range(1, options.rounds + 1):
                for name in options.peers:
                    run = partial(run_peer, options, Path(scratch), data, name)
                    if name not in settings:
                        settings[name] = fastest_settings(dict(options.conf), lambda tried, run=run: run(tried).seconds)
                    measured[name].append(run(settings[name]))
                outputs = {name: each[-1].rows for name, each in measured.items()}
                wrong += [f"{keys:,} keys, round {round_}: {each}" for each in problems(outputs, data)]
            print_figures(keys, measured, settings)
    for problem in wrong:
        print(problem)
    return 1 if wrong else 0


def run_peer(
    options: argparse.Namespace, scratch: Path, data: Dataset, name: str, settings: dict[str, str]
) -> Measured:
    """Run one peer once, in a session of its own and with new directories."""
    first = dataset(scratch, WARM_UP_KEYS, min(options.events, WARM_UP_EVENTS), WARM_UP_BATCHES, options.seed)
    with tempfile.TemporaryDirectory(dir=scratch) as directory, OwnSession(options.master, settings) as own:
        work = Path(directory)
        own.call(process_files, name, first, work / "warm-up", options.entries)
        jobs = own.call(process_files, name, data, work, options.entries)
        measured = [with_data(own.with_cpu(batches))[options.warmup :][: options.batches] for batches in jobs]
        cpu = sum(batch.cpu for batches in measured for batch in batches)
        seconds = sum(median(batch.seconds for batch in batches) for batches in measured)
        print(f"{data.keys:>9,} keys  {name:<10}  {seconds:6.2f} s a batch  {label_of(settings)}", flush=True)
        return Measured(seconds, 1e6 * cpu / (options.events * options.batches), rows_of(work / "output"))


def process_files(spark: Any, name: str, data: Dataset, work: Path, entries: int) -> list[list[Batch]]:
    """Run a peer over files. Return the batches of each of its jobs."""
    return PEERS[name](spark, data, work, entries)


def parse_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description="The cost of a second stage, and of a large reference: time of a batch, and CPU time per event.",
        epilog=f"{ABOUT_RUNS} The defaults take about 90 minutes on two idle cores. "
        "Exit status: 0, or 1 if results are wrong.",
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    add_measuring_options(parser)
    peers = [name for name in PEERS if name != "topic" or "AMADOU_KAFKA" in os.environ]
    parser.add_argument("--peers", type=names_of("peer", PEERS), default=",".join(peers), help="comma-separated")
    parser.add_argument("--entries", type=int, default=1_000_000, help="entries of the reference")
    parser.set_defaults(keys="1000,100000", warmup=6, batches=12)  # each worker process loads the reference once
    return parser.parse_args()


def print_figures(keys: int, measured: Mapping[str, list[Measured]], settings: Mapping[str, Mapping[str, str]]) -> None:
    """Print the median time of a batch over the rounds, and the median of the ratios to the base in each round."""
    print(f"{keys:,} keys")
    for name, runs in measured.items():
        others = measured.get(BASES.get(name, ""), ())
        ratios = [mine.seconds / other.seconds for mine, other in zip(runs, others, strict=False)]
        compared = f"{median(ratios):.2f} times {BASES[name]} ({min(ratios):.2f}–{max(ratios):.2f})" if ratios else ""
        seconds, cpu = (median(getattr(run, each) for run in runs) for each in ("seconds", "cpu_micros"))
        label = label_of(settings[name])
        print(f"  {name:<10} {seconds:6.2f} s a batch  {micros(cpu):>6} CPU µs an event  {label:<15}  {compared}")


if __name__ == "__main__":
    import pipeline

    sys.exit(pipeline.main())
