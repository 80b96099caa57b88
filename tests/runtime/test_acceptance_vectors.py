"""Acceptance cases on both engines."""

import json
from collections.abc import Callable
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import attrs
import pytest

from amadou import Handler, Job, KeyedEvent, MapSpec, MemorySink, MemorySource, SinkSpec, Subject, ValueSpec, truncate
from amadou_runtime import TestRun

MINUTE = timedelta(minutes=1)
ENGINES = ["embedded", pytest.param("spark", marks=pytest.mark.spark)]
FindShared = Callable[[str], Path]


@pytest.fixture
def new_run(request: pytest.FixtureRequest) -> Callable[[Job, str], TestRun]:
    def make(job: Job, engine: Any) -> TestRun:
        run = TestRun(job, engine=engine, spark=request.getfixturevalue("spark") if engine == "spark" else None)
        request.addfinalizer(run.close)
        return run

    return make


@attrs.frozen
class ViewSum:
    channel_id: str
    timestamp: datetime
    sum: int


class ViewsPerMinute(Handler):
    counts = MapSpec(datetime, int)
    sums = SinkSpec(ViewSum)

    def key_event(self, record: bytes) -> list[KeyedEvent[None]]:
        view = json.loads(record)
        return [KeyedEvent(view["channel_id"], datetime.fromisoformat(view["timestamp"]))]

    def on_event(self, subject: Subject, event: KeyedEvent[None]) -> None:
        counts = self.counts.state_for(subject)
        minute = truncate(event.timestamp, MINUTE)
        counts[minute] = counts.get(minute, 0) + 1
        subject.set_timer(minute + MINUTE)

    def on_timer_expired(self, subject: Subject, timestamp: datetime) -> None:
        counts = self.counts.state_for(subject)
        for minute in sorted(minute for minute in counts if minute < timestamp):
            self.sums.collect(subject, ViewSum(str(subject.key), minute, counts.pop(minute)))


class HighScores(Handler):
    best = ValueSpec(int, default=0)
    records = SinkSpec(tuple[str, int, int])

    def key_event(self, record: list[Any]) -> KeyedEvent[int]:
        user, score, timestamp = record
        return KeyedEvent(user, datetime.fromisoformat(timestamp), score)

    def on_event(self, subject: Subject, event: KeyedEvent[int]) -> None:
        best = self.best.state_for(subject)
        if event.value > best.value:
            self.records.collect(subject, (str(subject.key), event.value, best.value))
            best.value = event.value


def job(handler: Handler, port: str) -> Job:
    return Job("vector", handler, sources={"in": MemorySource()}, sinks={port: MemorySink()})


@pytest.mark.parametrize("engine", ENGINES)
def test_a_tumbling_window_gives_the_results_of_the_acceptance_case(
    engine: str, new_run: Callable[[Job, str], TestRun], shared_data: FindShared
) -> None:
    case = json.loads(shared_data("vectors/tumbling_window.json").read_text())
    run = new_run(job(ViewsPerMinute(), "sums"), engine)
    for timestamp in case["events"]:
        run.add_record(json.dumps({"channel_id": case["key"], "timestamp": timestamp}).encode())
    assert case["then"] == "add_watermark"
    assert run.add_watermark().run().records("sums") == [
        ViewSum(**{**record, "timestamp": datetime.fromisoformat(record["timestamp"])}) for record in case["records"]
    ]


@pytest.mark.parametrize("engine", ENGINES)
def test_high_scores_are_those_of_the_acceptance_case(
    engine: str, new_run: Callable[[Job, str], TestRun], shared_data: FindShared
) -> None:
    case = json.loads(shared_data("vectors/high_score.json").read_text())
    result = new_run(job(HighScores(), "records"), engine).add_records(case["events"]).run()
    assert result.records("records") == [tuple(record) for record in case["records"]]
