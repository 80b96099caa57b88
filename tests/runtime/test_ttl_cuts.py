"""State with a time to live does not depend on the steps in which the watermark advances."""

from datetime import datetime, timedelta
from random import Random
from typing import Any

import pytest
from tests.conformance.handlers import SECOND, at, event

from amadou import Handler, Job, KeyedEvent, ListSpec, MapSpec, MemorySink, MemorySource, SinkSpec, Subject, ValueSpec
from amadou_plugins.windows import TumblingWindow, Window
from amadou_runtime import TestRun


class Timed(Handler):
    """Reads and writes state with several times to live at events, timers and closes of a window.

    An event's value is a list of timers, as pairs of seconds and tag.
    """

    one = ValueSpec(str, ttl=5 * SECOND)
    many = MapSpec(str, float, ttl=8 * SECOND)
    row = ListSpec(str, ttl=3 * SECOND)
    window = TumblingWindow(timedelta(seconds=4), ttl=9 * SECOND)
    seen = SinkSpec(tuple)

    def key_event(self, record: KeyedEvent[Any]) -> KeyedEvent[Any]:
        return record

    def on_event(self, subject: Subject, event: KeyedEvent[Any]) -> None:
        for seconds, tag in event.value:
            subject.set_timer(at(seconds), tag)
        self.read_and_write("event", subject, event.timestamp, "write")
        self.window.add(subject, event)

    @window.on_close
    def closed(self, subject: Subject, window: Window, count: int) -> None:
        self.read_and_write(f"close {count}", subject, window.end, "write" if count % 2 else "")

    def on_timer_expired(self, subject: Subject, timestamp: datetime) -> None:
        self.read_and_write("timer", subject, timestamp, subject.timer_tag)

    def read_and_write(self, what: str, subject: Subject, timestamp: datetime, tag: str) -> None:
        one, many, row = self.one.state_for(subject), self.many.state_for(subject), self.row.state_for(subject)
        seconds = (timestamp - at(0)) / SECOND
        self.seen.collect(subject, (what, seconds, subject.key, tag, one.value, dict(many), list(row)))
        if tag == "write":
            one.value = what
            many[f"{what} {seconds % 3}"] = seconds
            row.append(what)
        elif tag == "clear":
            one.clear()
            many.clear()
            del row[:1]


@pytest.mark.parametrize("seed", range(20))
def test_expiry_of_state_does_not_depend_on_the_steps_of_the_watermark(seed: int) -> None:
    random = Random(seed)
    phases = []
    now = 0
    for _ in range(3):
        times = sorted(random.randrange(now, now + 12) for _ in range(random.randrange(1, 6)))
        events = [
            event(
                time,
                [(time + random.randrange(1, 20), random.choice(["", "write", "clear"])) for _ in range(3)],
                random.choice("ab"),
            )
            for time in times
        ]
        now += random.randrange(12, 30)
        phases.append((events, now))

    def outcome_of(steps_of: Any) -> Any:
        run = TestRun(Job("timed", Timed(), {"in": MemorySource()}, {"seen": MemorySink()}), engine="embedded")
        begin = 0
        for events, end in phases:
            run.add_records(events)
            for step in [*steps_of(begin, end), end]:
                run.add_watermark(at(step))
            begin = end
        result = run.run()
        return sorted(result.records("seen"), key=repr), sorted(result.keys())

    finest = outcome_of(lambda begin, end: range(begin + 1, end))
    assert outcome_of(lambda begin, end: []) == finest
    for _ in range(3):
        assert (
            outcome_of(lambda begin, end: sorted(random.sample(range(begin + 1, end), random.randrange(0, 5))))
            == finest
        )
