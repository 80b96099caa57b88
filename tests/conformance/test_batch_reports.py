"""Reports of batches contain a few dead letters and late events, the same on every engine."""

from collections import Counter
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import attrs
import pytest
from tests.conformance.batch_reports import BatchReports
from tests.conformance.handlers import at

from amadou import (
    Handler,
    Job,
    KeyedEvent,
    MemorySink,
    MemorySource,
    Secret,
    SinkSpec,
    Subject,
    ValueSpec,
)
from amadou_plugins.windows import TumblingWindow
from amadou_runtime import run


class Failing(Handler):
    """Fails in the callback that the key of a record names."""

    total = ValueSpec(int, 0)
    password = ValueSpec(str)
    minutes = TumblingWindow(timedelta(minutes=1))
    windows = SinkSpec(int)

    def key_event(self, record: tuple[str, int]) -> KeyedEvent:
        key, second = record
        if key == "unkeyed":
            raise ValueError(f"no key for {second}")
        return KeyedEvent(key, at(second), object() if key == "unpacked" else second)

    def on_event(self, subject: Subject, event: KeyedEvent) -> None:
        self.total.state_for(subject).value += 1
        self.password.state_for(subject).value = "swordfish"
        self.minutes.add(subject, event)
        subject.set_timer(at(50))
        if event.key == "event":
            raise KeyError(f"event {event.value}")

    @minutes.on_close
    def closed(self, subject: Subject, window: Any, value: Any) -> None:
        if subject.key == "window":
            raise RuntimeError("window")

    def on_timer_expired(self, subject: Subject, timestamp: datetime) -> None:
        if subject.key == "timer":
            raise OSError("timer")


def reports(engine: str, directory: Path, *runs: list[tuple[str, Any]], **settings: Any) -> BatchReports:
    """Return the reports of consecutive runs."""
    collected, source = BatchReports(), MemorySource()
    sinks = {"windows": MemorySink(), "dead_letters": MemorySink()}
    if settings.get("late_events") == "divert":
        sinks["late_events"] = MemorySink()
    job = Job("failing", Failing(), {"in": source}, sinks, on_error="dead_letter", plugins=[collected], **settings)
    for number, records in enumerate(runs):
        source.add(*records)
        if engine == "spark":
            run(job, checkpoint=str(directory / "checkpoint"))
        else:
            before = str(directory / f"{number}") if number else None
            run(job, engine="embedded", from_savepoint=before, to_savepoint=str(directory / f"{number + 1}"))
    return collected


def test_batch_reports_contain_a_few_dead_letters_of_each_kind(engine: str, tmp_path: Path) -> None:
    Secret("swordfish")
    records = [(key, second) for key in ("unkeyed", "event") for second in range(20)]
    more = [("timer", 3), ("window", 4), ("event", 70), ("x", 200)]
    collected = reports(engine, tmp_path, [("event", 1), ("timer", 2), *records, *more], [])
    dead_letters = collected.dead_letters
    assert collected.batches[0].counts.dead_letters == 42
    assert Counter(dead_letter.callback for dead_letter in dead_letters) == {
        "key_event": 5,
        "on_event": 5,
        "on_timer_expired": 1,
        "closed": 1,
    }
    by_callback = {dead_letter.callback: dead_letter for dead_letter in dead_letters}
    keyed, timer, window = (by_callback[name] for name in ("key_event", "on_timer_expired", "closed"))
    assert (keyed.key, keyed.timestamp, keyed.source) == (None, None, "in")
    assert keyed.error.startswith("ValueError: no key for")
    assert "in key_event" in keyed.traceback
    assert "'unkeyed'" in keyed.shown
    assert (timer.key, timer.timestamp, timer.error) == ("'timer'", at(50), "OSError: timer")
    assert (timer.state["total"], timer.state["password"]) == ("2", "'***'")
    assert (window.key, window.error) == ("'window'", "RuntimeError: window")
    assert all(dead_letter.packed for dead_letter in dead_letters)
    assert "swordfish" not in str(dead_letters)


def test_batch_reports_contain_each_dead_letter_once(engine: str, tmp_path: Path) -> None:
    dead_letters = reports(engine, tmp_path, [("unkeyed", 1), ("unpacked", 2), ("x", 3)]).dead_letters
    assert sorted(dead_letter.error.partition(":")[0] for dead_letter in dead_letters) == ["EncodeError", "ValueError"]


def test_batch_reports_contain_a_large_dead_letter_without_its_data(engine: str, tmp_path: Path) -> None:
    (dead_letter,) = reports(engine, tmp_path, [("unkeyed", "x" * 20_000)]).dead_letters
    assert dead_letter.packed is None
    assert len(dead_letter.shown) < 3_000


@pytest.mark.parametrize("policy", ["drop", "divert"])
def test_batch_reports_contain_late_events_that_the_job_drops_or_diverts(
    engine: str, policy: Any, tmp_path: Path
) -> None:
    records = [("late", second) for second in range(1, 30)]
    late_events = reports(engine, tmp_path, [("x", 500)], [*records, ("x", 600)], late_events=policy).late_events
    assert 3 <= len(late_events) <= 5
    assert {attrs.evolve(event, timestamp=at(0), value="") for event in late_events} == {
        attrs.evolve(
            late_events[0],
            outcome={"drop": "dropped", "divert": "diverted"}[policy],
            source="in",
            key="'late'",
            timestamp=at(0),
            value="",
            watermark=at(500),
            by="",
        )
    }


def test_batch_reports_contain_late_events_that_a_window_drops(engine: str, tmp_path: Path) -> None:
    late = [("late", 5), ("event", 6)]  # changes of the second event are undone, since its callback fails
    late_events = reports(engine, tmp_path, [("x", 500)], late).late_events
    assert [(event.key, event.value, event.by, event.outcome) for event in late_events] == [
        ("'late'", "5", "minutes", "dropped")
    ]
