"""Which dead letters are replayed, and in which batches; what becomes of them is in `tests/spark`."""

import base64
import json
from datetime import datetime, timedelta, timezone
from typing import Any

import attrs
import pytest
from tests.conformance.handlers import Recorder, job

from amadou import KeyedEvent, Subject
from amadou._encoding import pack
from amadou.errors import LoadError
from amadou_plugins.windows import TumblingWindow, Window
from amadou_runtime.core.dead_letter_files import Letter
from amadou_runtime.core.replay import Plan, ReplayedLetter, plan_of

NOON = datetime(2025, 1, 1, 12, tzinfo=timezone.utc)


def letter(callback: str, source: str | None, content: Any, **more: Any) -> Letter:
    """A letter of a record, an event or a timer: of key and seconds after noon."""
    key, seconds = content if isinstance(content, tuple) else ("", 0)
    timestamp = NOON + timedelta(seconds=seconds)
    record = KeyedEvent(key, timestamp, None) if callback == "on_event" else content
    told = {"job": "conformance", "callback": callback, "source": source, "tag": "", "shown": "", **more}
    told["timestamp"] = timestamp.isoformat()
    packed = {"key": key, "record": None if callback == "on_timer_expired" else record}
    line = json.dumps([told, base64.b64encode(pack(packed)).decode()]).encode()
    return Letter(line, told, packed)


def record(content: str, source: str = "left") -> Letter:
    return letter("key_event", source, content)


def event(key: str, second: int, source: str = "left") -> Letter:
    return letter("on_event", source, (key, second))


def close(key: str, second: int) -> Letter:
    made = letter("minute_closed", None, (key, second))
    return attrs.evolve(
        made, packed={"key": key, "call": ["minutes", [], 0], "state": {"minutes": b""}, "next_timers": {}}
    )


def timer(key: str, second: int) -> Letter:
    return letter("on_timer_expired", None, (key, second))


class Windowed(Recorder):
    minutes = TumblingWindow(timedelta(minutes=1))

    @minutes.on_close
    def minute_closed(self, subject: Subject, window: Window, value: Any) -> None: ...


def plan(*letters: Letter, batch_local: frozenset[str] = frozenset()) -> Plan:
    return plan_of(letters, job(Windowed(), "left", "right"), batch_local)


@pytest.mark.parametrize(
    ("letters", "sizes"),
    [
        ([], []),
        ([record("1"), record("2"), event("a", 1), record("3")], [4]),
        ([record("1"), record("2", "right")], [1, 1]),
        ([record("1"), timer("a", 1)], [1, 1]),
        ([timer("a", 1), record("1")], [1, 1]),
        ([event("a", 2), event("a", 1), event("b", 1, "right")], [3]),
        ([event("a", 1), event("a", 1, "right"), event("a", 1)], [1, 1, 1]),
        ([timer("a", 1), timer("b", 0), timer("a", 2), event("a", 1)], [4]),
        ([timer("a", 2), timer("a", 1)], [1, 1]),
        ([event("a", 1), timer("b", 2), timer("a", 2)], [2, 1]),
        ([close("a", 2), close("a", 1), timer("a", 1), event("b", 1), close("c", 1)], [5]),
        ([event("a", 1), close("a", 1), timer("b", 1), close("b", 1)], [1, 2, 1]),
        ([record("1"), close("a", 1), record("2")], [1, 1, 1]),
    ],
)
def test_letters_are_cut_where_a_batch_would_change_their_order(letters: list[Letter], sizes: list[int]) -> None:
    steps = plan(*letters).steps
    assert [len(step) for step in steps] == sizes
    assert [ReplayedLetter.of_line(each.line()) for step in steps for each in step] == [
        each for step in steps for each in step
    ]


def test_letters_that_were_noted_are_left_out_and_those_that_say_the_same_are_told_apart() -> None:
    first = plan(event("a", 1), event("a", 1), event("b", 1))
    (step,) = first.steps
    assert len({each.id for each in step}) == 3
    again = plan(event("a", 1), event("a", 1), event("a", 1), batch_local=frozenset(each.id for each in step))
    assert (again.before, [len(step) for step in again.steps]) == (2, [1])


def test_letters_of_late_events_and_those_without_a_record_are_counted_and_left_out() -> None:
    told = plan(letter("late_events", "left", ("a", 1)), event("a", 1), letter("key_event", "left", None))
    lacking = "key_event (record could not be encoded)"
    assert (told.others, len(told.steps)) == ({"late_events": 1, lacking: 1}, 1)


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        (event("a", 1, "gone"), "the job has no source 'gone', which a dead letter needs: add this source"),
        (
            letter("on_event", "left", ("a", 1), job="other"),
            "the dead letters are from the job 'other': use that job",
        ),
    ],
)
def test_letters_that_cannot_be_replayed_are_told(wrong: Letter, told: str) -> None:
    with pytest.raises(LoadError, match=told):
        plan(attrs.evolve(wrong))
