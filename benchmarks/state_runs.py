"""Runs of the state benchmark's jobs on Spark: a run processes the files that its checkpoint has not processed."""

import threading
import time
from collections import Counter
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Any

from attrs import define, evolve, field, frozen
from memory import MemoryUse, MemoryWatch
from peers import Batch, RecordCounts, batches_of
from state_jobs import SCHEMA, Case, TallySink

from amadou import Job

_POLL = 1.0
_BETWEEN_LINES = 15

OnProgress = Callable[[int], None]
"""Function that is called with the number of completed batches while a run lasts."""


@frozen
class FinishedRun:
    """A run that has processed its input.

    :param first: seconds from the start of the run to the end of its first batch
    """

    batches: list[Batch]
    first: float
    memory: MemoryUse


@define
class Store:
    """The checkpoint of one peer, whose runs follow one another.

    :param state: amadou's store, as in `Job(state=...)`
    :param found: totals of all runs, as the peer has counted them
    """

    case: Case
    peer: str
    lines: Path
    checkpoint: Path
    state: Any = "auto"
    found: Counter[str] = field(factory=Counter)

    def run(self, spark: Any, on_progress: OnProgress) -> FinishedRun:
        """Process all files that no earlier run has processed."""
        with MemoryWatch(spark) as memory:
            started = time.time()
            run = self._run_amadou if self.peer == "amadou" else self._run_spark_sql
            query, records = run(spark, on_progress)
        begun = query.recentProgress[0]
        first = (
            datetime.fromisoformat(begun.timestamp).timestamp() - started + begun.durationMs["triggerExecution"] / 1000
        )
        return FinishedRun(batches_of(query, records), first, memory.use)

    def _run_amadou(self, spark: Any, on_progress: OnProgress) -> tuple[Any, dict[int, int]]:
        import amadou_runtime
        from amadou_plugins.connectors import LinesSource

        sink = TallySink()
        job = Job(
            "state-benchmark",
            handler=self.case.handler(),
            sources={"lines": LinesSource(str(self.lines), max_files_per_batch=1)},
            sinks={"results": sink} if self.case.has_windows else {},
            state=self.state,
        )
        records = RecordCounts(job)
        job = evolve(job, plugins=[records])
        running = amadou_runtime.start(job, spark, checkpoint=str(self.checkpoint), trigger="available-now")
        while not running.await_termination(_POLL):
            on_progress(running.summary.batches)
        counts = running.summary.counts
        self.found.update(sink.found if self.case.has_windows else {"events": counts.events} | dict(counts.counters))
        if not self.case.has_windows:
            self.found["keys"] = counts.keys
        if self.case.has_timers:
            self.found["timers fired"] += counts.timers_fired
            self.found["timers pending"] = counts.timers_pending
        return running.query, records.by_batch

    def _run_spark_sql(self, spark: Any, on_progress: OnProgress) -> tuple[Any, None]:
        from pyspark.sql.functions import from_json

        assert self.case.query is not None
        lines = spark.readStream.option("maxFilesPerTrigger", 1).text(str(self.lines))
        events = lines.select(from_json("value", SCHEMA).alias("event")).select("event.*")
        writer = self.case.query(events).writeStream.outputMode(self.case.mode).format("noop")
        query = writer.option("checkpointLocation", str(self.checkpoint)).trigger(availableNow=True).start()
        while not query.awaitTermination(_POLL):
            on_progress(len(query._jsq.recentProgress()))
        for progress in query.recentProgress:
            found = progress.observedMetrics.get("found")
            self.found.update({name: n or 0 for name, n in found.asDict().items()} if found else {})
            if not self.case.has_windows:
                self.found["events"] += progress.numInputRows
                self.found["keys"] = progress.stateOperators[0].numRowsTotal
        return query, None


def every_few_seconds(report: OnProgress) -> OnProgress:
    """Return the function, limited to a call every 15 seconds."""
    last = time.monotonic()

    def limited(batches: int) -> None:
        nonlocal last
        if time.monotonic() - last >= _BETWEEN_LINES:
            last = time.monotonic()
            report(batches)

    return limited


class FilesWatch:
    """Context manager that adds up the sizes of the files that appear in the state directory of a checkpoint.

    :ivar changelogs: bytes in the changelogs, in which Spark writes the changes of each batch
    :ivar others: bytes in all other files, such as snapshots
    """

    def __init__(self, checkpoint: Path) -> None:
        self.changelogs = self.others = 0
        self._state = checkpoint / "state"
        self._seen: dict[Path, int] = {}
        self._before: set[Path] = set()
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> "FilesWatch":
        self._look()
        self._before = set(self._seen)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._end.set()
        self._thread.join()
        for path in self._seen.keys() - self._before:
            if path.name.endswith(".changelog"):
                self.changelogs += self._seen[path]
            else:
                self.others += self._seen[path]

    def _watch(self) -> None:
        while not self._end.wait(_POLL):
            self._look()
        self._look()

    def _look(self) -> None:
        # Spark writes a file under a name that begins with a dot, and then renames it
        for path in self._state.rglob("[!.]*"):
            if path not in self._seen:
                try:
                    if path.is_file():
                        self._seen[path] = path.stat().st_size
                except FileNotFoundError:
                    continue


def run_store(spark: Any, store: Store, doing: str, batches: int) -> tuple[FinishedRun, Counter[str]]:
    """Run a store in the process of a session, with a progress line every few seconds. Return the run, and the totals
    of all runs of the store.
    """

    def report(done: int) -> None:
        print(f"    {doing}: batch {done:,} of {batches:,}", flush=True)

    return store.run(spark, every_few_seconds(report)), store.found
