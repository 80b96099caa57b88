"""The peers. Each reads the files of a directory, one per batch, and writes closed minutes as JSON."""

import json
import os
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

from attrs import evolve, frozen
from events import DISORDER_SECONDS

from amadou import FromPort, Job
from amadou.plugins import BatchReport, hookimpl

EXAMPLE = Path(__file__).resolve().parents[1] / "examples" / "tumbling_window"
MINUTE = 60_000


@frozen
class Batch:
    """A micro-batch as Spark reports it.

    :param events: number of records from the sources; 0 in a no-data batch
    :param started: Unix time of its start
    :param cpu: seconds of CPU time of the session's processes during the batch; 0 if it was not measured
    """

    number: int
    events: int
    started: float
    seconds: float
    cpu: float = 0.0


Peer = Callable[[Any, Path, Path, Path], list[Batch]]
"""Function that processes a directory, given (session, input, output, checkpoint). It returns the batches in order."""


def new_session(master: str, settings: dict[str, str]) -> Any:
    """Create a Spark session for any peer, with the settings that amadou sets for its own sessions and queries.

    :param settings: Spark settings, which override the defaults below
    """
    # Python workers import the handler and this module by name; workers of local masters inherit the environment
    paths = [str(EXAMPLE), str(Path(__file__).parent), os.environ.get("PYTHONPATH", "")]
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, paths))
    os.environ.setdefault("PYTHONWARNINGS", "ignore::FutureWarning")  # from pandas, in PySpark's per-key worker
    from amadou.spark_versions import file_manager
    from amadou_runtime.spark.session import _SQL_SETTINGS, session

    cores = master.partition("[")[2].partition("]")[0].partition(",")[0]
    partitions = cores if cores.isdigit() else str(os.cpu_count())
    defaults = {
        **_SQL_SETTINGS,
        "spark.driver.memory": "4g",
        "spark.log.level": "ERROR",
        "spark.sql.shuffle.partitions": partitions,
        "spark.sql.streaming.checkpointFileManagerClass": file_manager(),
        "spark.sql.streaming.numRecentProgressUpdates": "100000",
        "spark.ui.enabled": "false",
    }
    return session("amadou-benchmark", master=master, conf={**defaults, **settings})


def run_amadou(
    spark: Any, views: Path, output: Path, checkpoint: Path, state: Any = "auto", plugins: Any = ()
) -> list[Batch]:
    """Run the handler of the tumbling-window example.

    :param state: the store, as in `Job(state=...)`
    """
    return run_handler(example_job().handler, "sums", spark, views, output, checkpoint, state, plugins)


def run_console(spark: Any, views: Path, output: Path, checkpoint: Path) -> list[Batch]:
    """Run the same handler with a console, whose overview is read every two seconds, as an open page does."""
    from amadou_plugins.console import Console

    console, has_ended = Console(), threading.Event()

    def read() -> None:
        while not has_ended.wait(2):
            address, _, token = (console.url or "").partition("?token=")
            if token:
                request = Request(address, headers={"Authorization": f"Bearer {token}"})
                with suppress(OSError), urlopen(request, timeout=20) as answer:
                    answer.read()

    reader = threading.Thread(target=read)
    reader.start()
    try:
        return run_amadou(spark, views, output, checkpoint, plugins=[console])
    finally:
        has_ended.set()
        reader.join()


def run_handler(
    handler: Any,
    port: str,
    spark: Any,
    lines: Path,
    output: Path,
    checkpoint: Path,
    state: Any = "auto",
    plugins: Any = (),
) -> list[Batch]:
    """Run a handler with one port over the available files of lines, one file per batch.

    :param state: the store, as in `Job(state=...)`
    """
    from amadou_plugins.connectors import JsonLinesSink, LinesSource

    job = Job(
        "benchmark",
        handler=handler,
        sources={"lines": LinesSource(str(lines), max_files_per_batch=1)},
        sinks={port: JsonLinesSink(str(output))},
        watermark_delay=DISORDER_SECONDS,
        state=state,
        plugins=plugins,
    )
    return run_job(spark, job, checkpoint)


def run_job(spark: Any, job: Job, checkpoint: Path) -> list[Batch]:
    """Run a job of amadou over the available input."""
    import amadou_runtime

    records = RecordCounts(job)
    counted = evolve(job, plugins=[*job.plugins, records])
    running = amadou_runtime.start(counted, spark, checkpoint=str(checkpoint), trigger="available-now")
    running.await_termination()
    return batches_of(running.query, records.by_batch)


class RecordCounts:
    """A plugin that counts the records that a job reads in each batch: of amadou's sources, Spark counts files, or
    ranges of records. Values that one stage passes to another do not count.

    :ivar by_batch: number of records by number of the batch
    """

    def __init__(self, job: Job) -> None:
        stages = (job.stages or {}).items()
        self._fed = {
            f"{stage}.{name}"
            for stage, each in stages
            for name, source in each.sources.items()
            if isinstance(source, FromPort)
        }
        self.by_batch: dict[int, int] = {}

    @hookimpl
    def amadou_batch_completed(self, batch: BatchReport) -> None:
        read = (count for source, count in batch.counts.records.items() if source not in self._fed)
        self.by_batch[batch.number] = sum(read)


def run_spark_sql(spark: Any, views: Path, output: Path, checkpoint: Path) -> list[Batch]:
    """Run Spark SQL's own window, with Spark's own file sink, which is also exactly-once."""
    from pyspark.sql.functions import window

    counted = (
        parsed_views(spark, views)
        .groupBy("channel_id", window("timestamp", "1 minute"))
        .count()
        .selectExpr("channel_id", "window.start AS timestamp", "count AS sum")
    )
    return run_query(counted.writeStream.outputMode("append").format("json").option("path", str(output)), checkpoint)


def run_naive(spark: Any, views: Path, output: Path, checkpoint: Path) -> list[Batch]:
    """Run `applyInPandasWithState` as in PySpark's documentation: each key is a Spark group with its own state."""
    counted = (
        parsed_views(spark, views)
        .groupBy("channel_id")
        .applyInPandasWithState(
            count_views,
            outputStructType="channel_id string, timestamp timestamp, sum long",
            stateStructType="counts string",
            outputMode="append",
            timeoutConf="EventTimeTimeout",
        )
    )
    return run_query(counted.writeStream.outputMode("append").format("json").option("path", str(output)), checkpoint)


def count_views(key: tuple[str], frames: Iterator[Any], state: Any) -> Iterator[Any]:
    """Count the views of a key for the naive peer. The state is JSON: counts by start of the minute, in Unix ms."""
    import pandas as pd

    counts: dict[int, int] = {int(minute): n for minute, n in json.loads(state.get[0]).items()} if state.exists else {}
    if not state.hasTimedOut:
        for frame in frames:
            for timestamp in frame["timestamp"]:
                minute = int(timestamp.timestamp() * 1000) // MINUTE * MINUTE
                counts[minute] = counts.get(minute, 0) + 1
    watermark = state.getCurrentWatermarkMs()
    closed = [(minute, counts.pop(minute)) for minute in sorted(counts) if minute + MINUTE <= watermark]
    if counts:
        state.update((json.dumps(counts),))
        # Spark calls the function when the watermark has passed the timeout
        state.setTimeoutTimestamp(min(counts) + MINUTE - 1)
    else:
        state.remove()
    if closed:
        minutes = pd.to_datetime([minute for minute, _ in closed], unit="ms")
        yield pd.DataFrame({"channel_id": key[0], "timestamp": minutes, "sum": [count for _, count in closed]})


def example_job() -> Any:
    """Return the job of the tumbling-window example."""
    if str(EXAMPLE) not in sys.path:
        sys.path.insert(0, str(EXAMPLE))
    from views import job

    return job


PEERS: dict[str, Peer] = {
    "amadou": run_amadou,
    "spark-sql": run_spark_sql,
    "naive": run_naive,
}
VARIANTS: dict[str, Peer] = {
    **{store: partial(run_amadou, state=store) for store in ("groups", "log")},
    "console": run_console,
}
"""amadou with state on each of its stores, and with a console."""


def parsed_views(spark: Any, views: Path) -> Any:
    from pyspark.sql.functions import from_json

    lines = spark.readStream.option("maxFilesPerTrigger", 1).text(str(views))
    parsed = lines.select(from_json("value", "channel_id string, timestamp timestamp").alias("view")).select("view.*")
    return parsed.withWatermark("timestamp", f"{DISORDER_SECONDS} seconds")


def run_query(writer: Any, checkpoint: Path) -> list[Batch]:
    """Run one of Spark's own queries over the available input."""
    query = writer.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True).start()
    query.awaitTermination()
    return batches_of(query)


def batches_of(query: Any, records: Mapping[int, int] | None = None) -> list[Batch]:
    """Return the batches of a query, as reported by Spark.

    :param records: number of records by number of the batch; by default, the number of rows that Spark has counted
    """
    return [
        Batch(
            progress.batchId,
            progress.numInputRows if records is None else records.get(progress.batchId, 0),
            datetime.fromisoformat(progress.timestamp).timestamp(),
            progress.durationMs["triggerExecution"] / 1000,
        )
        for progress in query.recentProgress
        if "addBatch" in progress.durationMs
    ]
