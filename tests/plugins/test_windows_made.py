"""Which changes newer code may make to open windows that are made at run time."""

from typing import Any

import pytest
from tests.conformance.handlers import SECOND, Recorder, at, event, job
from tests.conformance.test_windows_created_at_run_time import Create, CreatesWindow, closed, restarted, tumbling

from amadou import Component, KeyedEvent, Subject, ValueSpec, to_micros
from amadou.errors import AmadouError, CallbackError
from amadou_plugins.aggregates import Count, Max, Mean, RunningSpec, Sum
from amadou_plugins.windows import HoppingWindow, SessionWindow, SlidingWindow, TumblingWindow
from amadou_runtime import TestRun

ANOTHER: dict[str, tuple[Create, Create, str, str]] = {
    "size": (
        tumbling(10),
        tumbling(20),
        "found TumblingWindow(size=0:00:10, Count()), expected TumblingWindow(size=0:00:20, Count())",
        "keep creating the window 'made' with its old settings until it has no open state, and create the new window "
        "under a different name",
    ),
    "aggregate": (
        tumbling(10),
        tumbling(10, Sum()),
        "the aggregate was Count() and is now Sum()",
        "set version=1 and migrate= on it, or keep creating the window 'made' with its old settings until",
    ),
    "kind": (
        tumbling(10),
        lambda **given: SessionWindow(10 * SECOND, **given),
        "found TumblingWindow(size=0:00:10, Count()), expected SessionWindow(gap=0:00:10, Count())",
        "keep creating the window 'made' with its old settings until",
    ),
    "session's kind": (
        lambda **given: SessionWindow(10 * SECOND, **given),
        lambda **given: SlidingWindow(10 * SECOND, **given),
        "found SessionWindow(gap=0:00:10, Count())",
        "keep creating the window 'made' with its old settings until",
    ),
    "an aggregate of a mapping": (
        tumbling(10, {"n": Count(), "of": Sum()}),
        tumbling(10, {"n": Count(), "of": Mean()}),
        "the aggregate['of'] was Sum() and is now Mean()",
        "set version=1 and migrate= on it",
    ),
}


@pytest.mark.parametrize("change", ANOTHER)
@pytest.mark.parametrize("touched", ["by an event", "when it is due", "with another key alone"])
def test_a_window_that_is_made_otherwise_ends_the_run_and_loses_nothing(change: str, touched: str) -> None:
    before, after, mismatch, advice = ANOTHER[change]
    run = restarted(TestRun, before, after, on_error="dead_letter")
    run.run()
    snapshot = run.snapshot()
    if touched == "when it is due":
        run.add_watermark(at(500)).end_batch()
    else:
        run.add_record(event(3, 1, key="k" if touched == "by an event" else "other")).end_batch()
    with pytest.raises(CallbackError, match=r"StateDecodeError: state 'made' of key '(k|other)'") as caught:
        run.run()
    assert mismatch in caught.value.error
    assert advice in caught.value.error
    assert "The state is unchanged" in caught.value.error
    back = TestRun(job(CreatesWindow(before)), snapshot=snapshot)
    assert len(closed(back.add_watermark(at(500)).end_batch())) == 1


FITTING: dict[str, tuple[Create, Create, Any]] = {
    "what does not decide which events it has": (tumbling(10), tumbling(10, early=5, max_active=3), 2),
    "names of a mapping": (tumbling(10, {"n": Count(), "of": Sum()}), tumbling(10, {"n": Count(), "max": Max()}), None),
    "an aggregate, with a migration": (
        tumbling(10, Sum()),
        tumbling(10, {"sum": Sum(), "n": Count()}, version=1, migrate=lambda total, _: {"sum": total, "n": 0}),
        {"sum": 12, "n": 0},
    ),
}


@pytest.mark.parametrize("change", FITTING)
def test_what_may_change_of_a_declared_window_may_change_of_one_made_at_run_time(change: str) -> None:
    before, after, value = FITTING[change]
    found = closed(restarted(TestRun, before, after).add_watermark(at(500)).end_batch())
    assert found == [{"n": 2, "max": None} if value is None else value]


def test_hopping_windows_that_are_made_otherwise_are_refused() -> None:
    def hopping(hop: int) -> Create:
        return lambda **given: HoppingWindow(20 * SECOND, hop * SECOND, **given)

    run = restarted(TestRun, hopping(10), hopping(5)).add_record(event(3))
    with pytest.raises(CallbackError, match="hop was 0:00:10 and is now 0:00:05"):
        run.run()


class Lengthening(CreatesWindow):
    """Makes longer windows from an event on."""

    def __init__(self) -> None:
        super().__init__()
        self.sizes = [10]

    def window(self) -> Any:
        return TumblingWindow(self.sizes[-1] * SECOND, name="made", on_close=self.closed)

    def on_event(self, subject: Subject, event: KeyedEvent[Any]) -> None:
        if event.value == "longer":
            self.sizes.append(20)
        else:
            super().on_event(subject, event)


def test_a_window_may_be_made_otherwise_in_the_batch_that_closes_its_last_one() -> None:
    run = TestRun(job(Lengthening())).add_records([event(1), event(2)]).add_watermark(at(100))
    run.add_records([event(101, "longer"), event(102)]).add_watermark(at(500))
    assert closed(run.end_batch()) == [2, 1]


def test_a_window_that_is_made_otherwise_while_it_is_open_is_refused_within_a_run_too() -> None:
    run = TestRun(job(Lengthening(), on_error="dead_letter"))
    run.add_records([event(1, 1), event(2, "longer"), event(3, 1)])
    with pytest.raises(CallbackError, match=r"found TumblingWindow.size=0:00:10"):
        run.run()


def test_a_window_that_was_migrated_for_one_key_is_known_in_both_forms() -> None:
    summed = tumbling(10, {"sum": Sum()}, version=1, migrate=lambda total, _: {"sum": total})
    run = TestRun(job(CreatesWindow(tumbling(10, Sum())))).add_records([event(1, 5), event(1, 7, key="other")])
    run.restart(CreatesWindow(summed)).add_record(event(2, 5)).restart(CreatesWindow(tumbling(10, {"sum": Sum()})))
    with pytest.raises(CallbackError, match=r"version=1.*the state is of|found TumblingWindow.* version 1"):
        run.add_record(event(3, 5)).run()
    assert sorted(closed(run.restart(CreatesWindow(summed)).add_watermark(at(500)).end_batch()), key=str) == [
        {"sum": 10},
        {"sum": 7},
    ]


def test_a_window_may_be_made_otherwise_when_its_last_one_is_closed() -> None:
    run = (
        TestRun(job(CreatesWindow()))
        .add_record(event(1))
        .add_watermark(at(100))
        .end_batch()
        .restart(CreatesWindow(tumbling(20)))
    )
    assert closed(run.add_record(event(101)).add_watermark(at(500)).end_batch()) == [1, 1]


@pytest.mark.parametrize("on_error", ["fail", "dead_letter"])
def test_a_retired_name_is_not_made_again(on_error: Any) -> None:
    run = TestRun(job(CreatesWindow(), retired={"made": "drop"}, on_error=on_error)).add_record(event(1))
    with pytest.raises(CallbackError, match="retired contains 'made', but the handler creates this window"):
        run.run()


class Counting(Recorder):
    made = ValueSpec(int, default=0)

    def on_event(self, subject: Subject, event: KeyedEvent[Any]) -> None:
        self.made.state_for(subject).value += 1


@pytest.mark.parametrize("on_error", ["fail", "dead_letter"])
def test_a_window_is_not_made_under_the_name_of_state_that_is_gone(on_error: Any) -> None:
    first = TestRun(job(Counting())).add_record(event(1))
    first.run()
    run = TestRun(job(CreatesWindow(), on_error=on_error), snapshot=first.snapshot()).add_record(event(2))
    with pytest.raises(CallbackError, match=r"state 'made' of key 'k'.*not a component.*give the window a different"):
        run.run()


class Bare(Component):
    """A component of someone else's, which says no more of itself than it must."""

    def structure(self) -> dict[str, Any]:
        return {"kind": "Bare", "version": 0, "settings": {}}


class Touching(Recorder):
    def on_event(self, subject: Subject, event: KeyedEvent[Any]) -> None:
        Bare(name="bare").state_for(subject).store(1, to_micros(at(10)))


def test_a_component_that_does_not_say_its_noun_is_called_one() -> None:
    run = TestRun(job(Touching())).add_record(event(1)).restart().add_watermark(at(500)).end_batch()
    with pytest.raises(AmadouError, match="component 'bare'"):
        run.run()


class Running(Recorder):
    """Makes its running value at run time."""

    def __init__(self, of: Any) -> None:
        self.of = of

    def on_event(self, subject: Subject, event: KeyedEvent[Any]) -> None:
        self.report("event", subject, event.timestamp, RunningSpec(self.of, name="made").add(subject, event))


def test_a_running_value_made_at_run_time_is_compared_too() -> None:
    run = TestRun(job(Running(Sum()), on_error="dead_letter")).add_record(event(1, 3))
    run.run()
    again = TestRun(job(Running(Sum()), on_error="dead_letter"), snapshot=run.snapshot()).add_record(event(1, 3))
    assert [seen[4] for seen in again.run().records("seen")] == [6]
    other = TestRun(job(Running(Max()), on_error="dead_letter"), snapshot=run.snapshot()).add_record(event(1, 3))
    with pytest.raises(
        AmadouError, match=r"was Sum\(\) and is now Max\(\)\. .* or keep creating 'made' with its old settings, and"
    ):
        other.run()
