"""Sources without events, on a running job. Test runs are tested with a clock of their own."""

from collections.abc import Callable, Iterator
from datetime import datetime, timedelta, timezone
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from tests.waits import wait_for

from amadou import FromPort, Handler, Job, KeyedEvent, MemorySink, MemorySource, SinkSpec, Stage, Subject
from amadou_plugins.connectors import LinesSource
from amadou_runtime import start

pytestmark = pytest.mark.spark

NOON = datetime(2025, 1, 1, 12, tzinfo=timezone.utc)


class Alarm(Handler):
    """A record's key and second; its timer is due three seconds later."""

    rung = SinkSpec(tuple[str, int, int])

    def key_event(self, record: str) -> KeyedEvent:
        key, second = record.split()
        return KeyedEvent(key, NOON + timedelta(seconds=int(second)))

    def on_event(self, subject: Subject, event: KeyedEvent) -> None:
        subject.set_timer(event.timestamp + timedelta(seconds=3))

    def on_timer_expired(self, subject: Subject, timestamp: datetime) -> None:
        assert subject.watermark is not None
        seconds = (subject.watermark - NOON) / timedelta(seconds=1)
        self.rung.collect(subject, (str(subject.key), (timestamp - NOON).seconds, int(seconds)))


@pytest.fixture
def begin(spark: Any, tmp_path: Path) -> Any:
    """Starts a job on the checkpoint of the test."""
    started = []

    def begin(sources: dict[str, list[str]], **options: Any) -> tuple[Any, MemorySink]:
        trigger = options.pop("trigger", "0 seconds")
        sink = MemorySink()
        read = {name: MemorySource(records) for name, records in sources.items()}
        job = Job("alarm", Alarm(), read, {"rung": sink}, **options)
        started.append(start(job, spark, checkpoint=str(tmp_path / "checkpoint"), trigger=trigger))
        return started[-1], sink

    yield begin
    for running in started:
        running.stop()


@pytest.fixture
def begin_job(spark: Any, tmp_path: Path) -> Iterator[Callable[[Job], None]]:
    """Starts any job."""
    started = []
    yield lambda job: started.append(start(job, spark, checkpoint=str(tmp_path / "checkpoint"), trigger="0 seconds"))
    for running in started:
        running.stop()


def test_timers_of_an_idle_stream_wait_over_a_restart_and_fire_with_an_idle_timeout(begin: Any) -> None:
    running, sink = begin({"records": ["a 0", "b 1"]}, trigger="available-now")
    running.await_termination()
    assert (sink.records, running.summary.counts.timers_pending) == ([], 2)
    running, sink = begin({"records": ["a 0", "b 1"]}, idle_timeout=1)
    assert running.progress.counts.timers_pending == 2
    wait_for(lambda: len(sink.records) == 2)
    assert [record[:2] for record in sink.records] == [("a", 3), ("b", 4)]
    running.stop()
    assert (running.status, running.summary.counts.timers_pending) == ("stopped", 0)


@pytest.mark.qualify
def test_a_source_without_events_does_not_hold_back_the_watermark_but_a_slow_one_does(begin: Any) -> None:
    sources = {"busy": ["a 0", "c 9"], "silent": [], "slow": ["b 5"]}
    running, sink = begin(sources, trigger="available-now")
    running.await_termination()
    assert sink.records == [("a", 3, 5)]
    sources["busy"].append("d 60")
    running, sink = begin(sources, trigger="available-now")
    running.await_termination()
    assert sink.records == [], "how far the slow source had come is not forgotten"
    sources["slow"].append("e 20")
    running, sink = begin(sources, trigger="available-now")
    running.await_termination()
    assert sorted(sink.records) == [("b", 8, 20), ("c", 12, 20)]


@pytest.mark.qualify
def test_a_source_that_never_delivers_is_named_after_a_minute_even_if_no_batch_runs(
    begin: Any, caplog: pytest.LogCaptureFixture
) -> None:
    running, _ = begin({"busy": ["a 0"], "silent": []})
    wait_for(lambda: running.summary.counts.events == 1)
    wait_for(lambda: "have waited for 60 s for the first event of silent" in caplog.text)
    assert "windows and timers wait for the first event of silent. If they must not" in caplog.text


class Filters(Alarm):
    """Most lines are no events."""

    def key_event(self, record: bytes) -> KeyedEvent | None:  # type: ignore[override]
        return None if record == b"no event" else super().key_event(record.decode())


@pytest.mark.qualify  # conformance/test_time.py has this without Spark
def test_timers_fire_while_only_records_that_are_no_events_arrive(begin_job: Any, tmp_path: Path) -> None:
    lines, sink, numbers = tmp_path / "lines", MemorySink(), count(1)
    lines.mkdir()
    (lines / "0").write_text("a 0\n")
    begin_job(Job("alarm", Filters(), {"lines": LinesSource(str(lines))}, {"rung": sink}, idle_timeout=2))

    def has_rung_after_another_line() -> bool:
        line = tmp_path / f"{next(numbers)}"
        line.write_text("no event\n")
        line.rename(lines / line.name)
        return sink.records != []

    wait_for(has_rung_after_another_line, pause=0.5)
    assert sink.records[0][:2] == ("a", 3)


class Forwards(Handler):
    """Sends its lines to another stage."""

    lines = SinkSpec(str)

    def key_event(self, record: str) -> KeyedEvent:
        return Alarm().key_event(record)._replace(value=record)

    def on_event(self, subject: Subject, event: KeyedEvent) -> None:
        self.lines.collect(subject, event.value)


@pytest.mark.qualify  # conformance/test_stages.py has this without Spark
def test_timers_of_a_stage_fire_when_its_own_source_is_idle(begin_job: Any) -> None:
    sink = MemorySink()
    sources = {"fed": FromPort("first", "lines"), "own": MemorySource(["b 5"])}
    stages = {
        "first": Stage(Forwards(), {"in": MemorySource(["a 50"])}),
        "second": Stage(Alarm(), sources, {"rung": sink}, idle_timeout={"own": 2}),
    }
    begin_job(Job("alarms", stages=stages))
    wait_for(lambda: sink.records != [])
    assert sink.records == [("b", 8, 50)]
