"""The hooks that a run on Spark calls."""

import threading
from collections.abc import Callable, Mapping
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pytest
from tests.waits import wait_for

from amadou import AmadouError, Handler, Job, KeyedEvent, MemorySink, MemorySource, SinkSpec, Subject, ValueSpec
from amadou.errors import CallbackError, SinkError
from amadou.plugins import FailedBatch, Run, RunSummary, Sink, hookimpl
from amadou_plugins.connectors import JsonLinesSink, LinesSource
from amadou_plugins.metrics import PrometheusEndpoint
from amadou_runtime import run, start

pytestmark = pytest.mark.spark
START = datetime(2025, 1, 1, tzinfo=timezone.utc)


class MoreCodec:
    """Adds a thousand."""

    def __init__(self, type_: Any) -> None:
        pass

    def encode(self, value: int) -> int:
        return value + 1000

    def decode(self, encoded: int) -> int:
        return encoded


class Doubling(Handler):
    doubled = SinkSpec(int, codec="more")

    def key_event(self, record: int) -> KeyedEvent[int]:
        return KeyedEvent("a", START, record)

    def on_event(self, subject: Subject, event: KeyedEvent[int]) -> None:
        if event.value < 0:
            raise ValueError("below zero")
        subject.set_timer(START + timedelta(hours=1))
        self.doubled.collect(subject, 2 * event.value)

    def on_timer_expired(self, subject: Subject, timestamp: datetime) -> None:
        self.doubled.collect(subject, 0)


def doubling(source: MemorySource, *plugins: Any, sink: Sink | None = None) -> Job:
    """Return the job with few key ranges, each of which costs time."""
    sinks = {"doubled": MemorySink() if sink is None else sink}
    return Job("doubling", Doubling(), {"in": source}, sinks, plugins=plugins, key_groups=4)


class Recorder:
    """Records the calls of its hooks. It has a codec, and an attribute that cannot be pickled."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.runs: list[Run] = []
        self.calls: list[Any] = []

    @hookimpl
    def amadou_register_codecs(self) -> Any:
        return {"more": MoreCodec}

    @hookimpl
    def amadou_run_started(self, run: Run) -> None:
        self.runs.append(run)
        self.calls.append("started")

    @hookimpl
    def amadou_batch_completed(self, run: Run, batch: Any) -> None:
        assert run is self.runs[-1]
        self.calls.append((batch.number, batch.counts.events, dict(batch.counts.outputs)))

    @hookimpl
    def amadou_batch_failed(self, run: Run, batch: FailedBatch) -> None:
        assert run is self.runs[-1]
        self.calls.append(("failed", batch.number, batch.error))

    @hookimpl
    def amadou_run_ended(self, summary: RunSummary) -> None:
        self.calls.append(("ended", summary.counts.events))

    @hookimpl
    def amadou_run_failed(self, error: Exception) -> None:
        self.calls.append(type(error))

    @hookimpl
    def amadou_prepare_job(self, job: Job) -> None:
        self.calls.append(job.name)


def test_a_run_and_its_restart_call_the_hooks_in_order(spark: Any, tmp_path: Path) -> None:
    source, recorder = MemorySource([1, 2]), Recorder()
    sink = MemorySink()
    job = doubling(source, recorder, sink=sink)
    checkpoint = str(tmp_path / "checkpoint")
    running = start(job, spark, checkpoint=checkpoint)
    running.await_termination()
    assert recorder.calls == ["doubling", "started", (0, 2, {"doubled": 2}), (1, 0, {}), ("ended", 2)]
    assert sink.records == [1002, 1004]

    recorder.calls.clear()
    source.add(-1)
    with pytest.raises(CallbackError, match="below zero"):
        start(job, spark, checkpoint=checkpoint).await_termination()
    assert recorder.calls == [
        "doubling",
        "started",
        ("failed", 2, "Doubling.on_event failed: ValueError: below zero"),
        CallbackError,
    ]
    first, second = recorder.runs
    assert (first.engine, first.checkpoint) == ("spark", checkpoint)
    assert first.id == second.id


def test_hooks_see_one_run_if_it_is_flushed(spark: Any) -> None:
    recorder = Recorder()
    job = doubling(MemorySource([1]), recorder)
    run(job, flush=True)
    fired = [call for call in recorder.calls if type(call) is tuple and call[-1] == {"doubled": 1}]
    assert len(fired) == 2
    assert [call for call in recorder.calls if type(call) is str or call[0] == "ended"] == [
        "doubling",
        "started",
        ("ended", 1),
    ]


def test_hooks_see_no_run_if_it_cannot_start(spark: Any, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    recorder = Recorder()
    sink = JsonLinesSink(tmp_path / "file")
    job = doubling(MemorySource(), recorder, sink=sink)
    with pytest.raises(SinkError):
        start(job, spark)
    assert recorder.calls == ["doubling"]


class ProgressRecorder:
    """Records Spark's progress, and when the hooks of the run are called."""

    def __init__(self) -> None:
        self.calls: list[Any] = []
        self.progress: list[Mapping[str, Any]] = []

    @hookimpl
    def amadou_batch_completed(self, batch: Any) -> None:
        self.calls.append(("batch", batch.number))

    @hookimpl
    def amadou_spark_progress(self, run: Run, progress: Mapping[str, Any]) -> None:
        assert run.engine == "spark"
        self.calls.append(("progress", progress["batchId"]))
        self.progress.append(progress)

    @hookimpl
    def amadou_run_ended(self) -> None:
        self.calls.append("ended")


def test_sparks_progress_follows_each_batch_and_is_served(spark: Any) -> None:
    endpoint, served = PrometheusEndpoint(0), []

    class Reading:
        @hookimpl
        def amadou_run_ended(self) -> None:
            served.append(urlopen(endpoint.url or "").read().decode())

    recorder = ProgressRecorder()
    source, plugins = MemorySource(["1", "2"]), [Reading(), recorder, endpoint]
    start(Job("counting", Counting(), {"in": source}, {}, plugins=plugins, key_groups=4), spark).await_termination()
    assert recorder.calls == [("batch", 0), ("progress", 0), ("batch", 1), ("progress", 1), "ended"]
    first, second = recorder.progress
    assert (first["numInputRows"], second["numInputRows"]) == (2, 0)
    assert first["stateOperators"][0]["customMetrics"]["rocksdbPutCount"] > 0
    (text,) = served
    assert 'amadou_spark_input_rows_total{job="counting"} 2.0' in text
    assert 'amadou_spark_phase_seconds_total{job="counting",phase="addBatch"} ' in text
    assert 'amadou_spark_state{figure="memoryUsedBytes",job="counting"} ' in text
    assert 'amadou_events_total{job="counting"} 2.0' in text


class Counting(Handler):
    total = ValueSpec(int, 0)

    def key_event(self, record: Any) -> KeyedEvent[None]:
        return KeyedEvent(int(record), START)

    def on_event(self, subject: Subject, event: KeyedEvent[None]) -> None:
        self.total.state_for(subject).value += 1


def test_sparks_reports_of_idle_times_are_not_passed_to_plugins(spark: Any, tmp_path: Path) -> None:
    recorder = ProgressRecorder()
    job = Job("counting", Counting(), {"in": LinesSource(str(tmp_path))}, {}, plugins=[recorder], key_groups=4)
    (tmp_path / "1.txt").write_text("1\n")
    conf = {
        "spark.sql.streaming.noDataProgressEventInterval": "1",
        "spark.sql.streaming.noDataMicroBatches.enabled": "false",
    }
    running = start(job, spark, conf=conf)
    follow(running, lambda: recorder.calls == [("batch", 0), ("progress", 0)])
    follow(running, lambda: len(running.query.recentProgress) > 2)
    (tmp_path / "2.txt").write_text("2\n")
    follow(running, lambda: running.summary.batches == 2)
    running.stop()
    assert recorder.calls == [("batch", 0), ("progress", 0), ("batch", 1), ("progress", 1), "ended"]
    assert [progress["numInputRows"] for progress in recorder.progress] == [1, 1]


def follow(running: Any, until: Callable[[], bool]) -> None:
    """Wait for something, as `run` does."""
    wait_for(until, has_ended=lambda: running.await_termination(0.05))


class Stopping:
    """Stops the run after its first batch."""

    @hookimpl
    def amadou_batch_completed(self, run: Run) -> None:
        assert run.control is not None
        run.control.stop()


def test_a_run_that_a_plugin_stops_is_not_flushed(spark: Any, tmp_path: Path) -> None:
    job = doubling(MemorySource([1]), Recorder(), Stopping())
    summary = run(job, checkpoint=str(tmp_path), flush=True)
    assert (summary.counts.timers_fired, summary.counts.timers_pending) == (0, 1)


def test_a_plugin_cannot_take_a_savepoint_of_a_run_without_a_directory_for_it(spark: Any, tmp_path: Path) -> None:
    recorder = Recorder()
    job = doubling(MemorySource([1]), recorder)
    run(job)
    (last,) = recorder.runs
    assert last.control is not None
    with pytest.raises(AmadouError, match="the run has no directory for savepoints: pass --checkpoint"):
        last.control.savepoint()
