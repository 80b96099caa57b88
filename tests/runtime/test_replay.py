"""The plan of a replay: the dead letters that are replayed, and their batches. `tests/spark` has whole replays."""

import base64
import json
from datetime import datetime, timedelta, timezone
from typing import Any

import attrs
import pytest
from tests.conformance.handlers import Recorder, job

from amadou import KeyedEvent, Subject
from amadou._state.encoding import pack
from amadou.errors import LoadError
from amadou_plugins.windows import TumblingWindow, Window
from amadou_runtime.runs.dead_letter_files import Letter
from amadou_runtime.runs.replay import Plan, ReplayedLetter, plan_of

NOON = datetime(2025, 1, 1, 12, tzinfo=timezone.utc)


def dead_letter(callback: str, source: str | None, content: Any, **more: Any) -> Letter:
    """Return a dead letter of a record, or of an event or a timer with this key and second after noon."""
    key, seconds = content if isinstance(content, tuple) else ("", 0)
    timestamp = NOON + timedelta(seconds=seconds)
    record = KeyedEvent(key, timestamp, None) if callback == "on_event" else content
    fields = {"job": "conformance", "callback": callback, "source": source, "tag": "", "shown": "", **more}
    fields["timestamp"] = timestamp.isoformat()
    packed: dict[str, Any] = {"key": key, "record": None if callback == "on_timer_expired" else record}
    packed |= {"state": {}, "timers": [], "next_timers": {}}
    line = json.dumps([fields, base64.b64encode(pack(packed)).decode()]).encode()
    return Letter(line, fields, packed)


def record(content: str, source: str = "left") -> Letter:
    return dead_letter("key_event", source, content)


def event(key: str, second: int, source: str = "left") -> Letter:
    return dead_letter("on_event", source, (key, second))


def close(key: str, second: int) -> Letter:
    made = dead_letter("minute_closed", None, (key, second))
    return attrs.evolve(made, packed={**made.packed, "call": ["minutes", [], 0], "state": {"minutes": b""}})


def timer(key: str, second: int) -> Letter:
    return dead_letter("on_timer_expired", None, (key, second))


class Windowed(Recorder):
    minutes = TumblingWindow(timedelta(minutes=1))

    @minutes.on_close
    def minute_closed(self, subject: Subject, window: Window, value: Any) -> None: ...


def plan(*dead_letters: Letter, batch_local: frozenset[str] = frozenset()) -> Plan:
    return plan_of(dead_letters, job(Windowed(), "left", "right"), batch_local)


@pytest.mark.parametrize(
    ("dead_letters", "sizes"),
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
def test_dead_letters_are_divided_into_batches_that_do_not_change_their_order(
    dead_letters: list[Letter], sizes: list[int]
) -> None:
    steps = plan(*dead_letters).steps
    assert [len(step) for step in steps] == sizes
    assert [ReplayedLetter.of_line(each.line()) for step in steps for each in step] == [
        each for step in steps for each in step
    ]


def test_dead_letters_that_were_replayed_are_left_out_and_equal_ones_are_counted() -> None:
    first = plan(event("a", 1), event("a", 1), event("b", 1))
    (step,) = first.steps
    assert len({each.id for each in step}) == 3
    again = plan(event("a", 1), event("a", 1), event("a", 1), batch_local=frozenset(each.id for each in step))
    assert (again.before, [len(step) for step in again.steps]) == (2, [1])


def test_dead_letters_that_cannot_be_replayed_are_counted_by_reason() -> None:
    planned = plan(dead_letter("late_events", "left", ("a", 1)), event("a", 1), dead_letter("key_event", "left", None))
    lacking = "key_event (record could not be encoded)"
    assert (planned.others, len(planned.steps)) == ({"late_events": 1, lacking: 1}, 1)


@pytest.mark.parametrize(
    ("wrong", "reason"),
    [
        (event("a", 1, "removed"), "the job has no source 'removed', which a dead letter needs: add this source"),
        (
            dead_letter("on_event", "left", ("a", 1), job="other"),
            "the dead letters are from the job 'other': use that job",
        ),
    ],
)
def test_the_error_for_dead_letters_of_another_job_or_source_names_it(wrong: Letter, reason: str) -> None:
    with pytest.raises(LoadError, match=reason):
        plan(attrs.evolve(wrong))


@pytest.mark.parametrize(
    ("letter", "packed", "fields"),
    [
        (event("a", 1), {"record": 7}, {}),
        (event("a", 1), {"record": []}, {}),
        (event("a", 1), {"record": [["a"], NOON, None]}, {}),
        (event("a", 1), {"record": ["a", NOON.replace(tzinfo=None), None]}, {}),
        (event("a", 1), {"record": ["a", 1, None]}, {}),
        (timer("a", 1), {}, {"timestamp": None}),
        (timer("a", 1), {}, {"tag": None}),
        (timer("a", 1), {"key": 1.5}, {}),
        (close("a", 1), {"state": {}}, {}),
        (close("a", 1), {"key": {}}, {}),
        (close("a", 1), {}, {"timestamp": None}),
        (close("a", 1), {"call": ["minutes", [], 10**30]}, {}),
        (close("a", 1), {"call": ["minutes", [], 0, 0]}, {}),
    ],
)
def test_a_damaged_dead_letter_is_refused_before_the_checkpoint_contains_it(
    letter: Letter, packed: dict[str, Any], fields: dict[str, Any]
) -> None:
    damaged = attrs.evolve(letter, packed={**letter.packed, **packed}, fields={**letter.fields, **fields})
    with pytest.raises(LoadError, match=r"dead letter 2 of those passed, of '\w+', is damaged: remove its line"):
        plan(record("1"), damaged)
