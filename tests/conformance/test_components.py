"""Components with timers of their own inside a handler. The rules of timers and errors apply to them."""

from datetime import datetime, timedelta
from typing import Any

import pytest
from tests.conformance.conftest import MakeRun
from tests.conformance.handlers import START, Mistake, Recorder, at, event, job

from amadou import Subject
from amadou.components import Component, Invoke
from amadou.errors import AmadouError, CallbackError
from amadou.event_time import to_micros

SECOND_IN_MICROS = 1_000_000


class Countdown(Component):
    """Calls a method of the handler at each second from a number down to one."""

    def __init__(self, method: str = "tick", *, name: str | None = None, ttl: timedelta | None = None) -> None:
        super().__init__(name=name, ttl=ttl)
        self.method = method

    def begin(self, subject: Subject, number: int) -> None:
        self.state_for(subject).store(number, to_micros(subject.timestamp) + SECOND_IN_MICROS)

    def on_timer(self, subject: Subject, timestamp: datetime, call: Invoke) -> None:
        part = self.state_for(subject)
        number = part.value
        part.store(number - 1 or None, to_micros(timestamp) + SECOND_IN_MICROS)
        call(subject, getattr(subject.handler, self.method), number)


class StartsCountdown(Recorder):
    """An event starts a countdown from its value, and sets a timer at second 2."""

    down = Countdown()

    def on_event(self, subject: Subject, event: Any) -> None:
        self.down.begin(subject, event.value)
        subject.set_timer(at(2))

    def tick(self, subject: Subject, number: int) -> None:
        subject.count("ticks")
        self.report("tick", subject, subject.timestamp, number)
        if number == 13:
            raise Mistake("thirteen")


def ticks(records: list[Any]) -> list[Any]:
    return [(what, key, seconds, detail) for what, key, seconds, _, detail in records]


@pytest.mark.rule(23)
def test_timers_of_a_component_fire_in_order_with_other_timers_and_leave_no_state(test_run: MakeRun) -> None:
    run = test_run(job(StartsCountdown())).add_records([event(0, 3), event(0, 1, "b")]).add_watermark(at(10))
    result = run.run()
    assert ticks(result.records("seen")) == [
        ("tick", "b", 1, 1),
        ("tick", "k", 1, 3),
        ("tick", "k", 2, 2),
        ("timer", "b", 2, ""),
        ("timer", "k", 2, ""),
        ("tick", "k", 3, 1),
    ]
    assert (result.keys(), result.counters) == ([], {"ticks": 4})


@pytest.mark.rule(8)
def test_timers_of_a_component_survive_restarts_and_crashes(test_run: MakeRun) -> None:
    run = (
        test_run(job(StartsCountdown()))
        .add_record(event(0, 3))
        .restart()
        .add_watermark(at(1))
        .crash()
        .add_watermark(at(2))
    )
    result = run.restart().add_watermark(at(3)).run()
    assert [seen[:3] for seen in ticks(result.records("seen")) if seen[0] == "tick"] == [
        ("tick", "k", second) for second in (1, 2, 3)
    ]


@pytest.mark.rule(16)
def test_state_of_a_component_expires_after_its_ttl(test_run: MakeRun) -> None:
    class WithTtl(StartsCountdown):
        down = Countdown(ttl=timedelta(seconds=5))

        def on_event(self, subject: Subject, event: Any) -> None:
            self.down.state_for(subject).store(event.value, to_micros(at(100)))

    run = test_run(job(WithTtl())).add_record(event(0, 7)).add_watermark(at(4))
    assert run.run().state("down", "k") == 7
    assert run.add_watermark(at(6)).run().keys() == []


@pytest.mark.rule(18)
def test_the_error_of_a_method_that_a_component_calls_names_the_method(test_run: MakeRun) -> None:
    run = test_run(job(StartsCountdown())).add_record(event(0, 13)).add_watermark(at(5))
    with pytest.raises(CallbackError, match="Mistake: thirteen") as caught:
        run.run()
    assert (caught.value.callback, caught.value.key, caught.value.watermark) == ("tick", "k", at(5).isoformat())


@pytest.mark.rule(19)
def test_a_failing_call_of_a_component_is_a_dead_letter_and_its_next_timer_fires(test_run: MakeRun) -> None:
    run = test_run(job(StartsCountdown(), on_error="dead_letter")).add_record(event(0, 14)).add_watermark(at(3))
    result = run.run()
    assert [seen[3] for seen in ticks(result.records("seen")) if seen[0] == "tick"] == [14, 12]
    assert result.counters == {"ticks": 2}
    (dead_letter,) = result.dead_letters
    assert (dead_letter.callback, dead_letter.key, dead_letter.timestamp, dead_letter.state) == (
        "tick",
        "k",
        at(2),
        {"down": 13},
    )
    assert result.state("down", "k") == 11
    assert any("✗ Mistake: thirteen" in str(entry) for entry in result.trace)


class CreatesCountdowns(Recorder):
    """Creates a countdown for each name in an event's value."""

    def __init__(self, recovers: str = "creates") -> None:
        self.downs: dict[str, Countdown] = {}
        self.recovers = recovers

    def down(self, name: str) -> Countdown:
        if name not in self.downs:
            self.downs[name] = Countdown(name=name)
        return self.downs[name]

    def on_event(self, subject: Subject, event: Any) -> None:
        self.down(event.value).begin(subject, 2)

    def tick(self, subject: Subject, number: int) -> None:
        self.report("tick", subject, subject.timestamp, number)

    def on_recover_window(self, name: str, subject: Subject) -> Any:
        self.report("recover", subject, START, name)
        if self.recovers == "creates":
            self.down(name)
        return self.down(name) if self.recovers == "returns" else None


@pytest.mark.parametrize("recovers", ["creates", "returns"])
def test_on_recover_window_is_called_for_a_due_component_that_does_not_exist_yet(
    test_run: MakeRun, recovers: str
) -> None:
    run = test_run(job(CreatesCountdowns(recovers))).add_records([event(0, "x"), event(0, "y")]).add_watermark(at(1))
    run.restart().add_record(event(1, "y")).add_watermark(at(9))
    seen = ticks(run.run().records("seen"))
    assert ("recover", "k", 0, "x") in seen
    assert [record for record in seen if record[0] == "tick"] == [
        ("tick", "k", 1, 2),
        ("tick", "k", 1, 2),
        ("tick", "k", 2, 1),
        ("tick", "k", 2, 2),
        ("tick", "k", 3, 1),
    ]


def test_a_due_component_that_on_recover_window_does_not_create_is_an_error(test_run: MakeRun) -> None:
    run = test_run(job(CreatesCountdowns("nothing"))).add_record(event(0, "x")).restart().add_watermark(at(9))
    with pytest.raises(AmadouError, match="on_recover_window"):
        run.run()
