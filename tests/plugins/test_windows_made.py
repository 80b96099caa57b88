"""Changes of open windows that are made at run time."""

from typing import Any

import pytest
from tests.conformance.handlers import SECOND, Recorder, at, event, job
from tests.conformance.test_windows_created_at_run_time import Create, CreatesWindow, closed, restarted, tumbling

from amadou import KeyedEvent, Subject, ValueSpec
from amadou.components import Component
from amadou.errors import AmadouError, CallbackError
from amadou.event_time import to_micros
from amadou_plugins.aggregates import Count, Max, Mean, RunningSpec, Sum
from amadou_plugins.windows import HoppingWindow, SessionWindow, SlidingWindow, TumblingWindow
from amadou_runtime import TestRun

ANOTHER: dict[str, tuple[Create, Create, str, str]] = {
    "size": (
        tumbling(10),
        tumbling(20),
        "found TumblingWindow(size=0:00:10, Count()), expected TumblingWindow(size=0:00:20, Count())",
        "keep creating the window 'created' with its old settings until it has no open state, and create the new "
        "window under a different name",
    ),
    "aggregate": (
        tumbling(10),
        tumbling(10, Sum()),
        "the aggregate was Count() and is now Sum()",
        "set version=1 and migrate= on it, or keep creating the window 'created' with its old settings until",
    ),
    "kind": (
        tumbling(10),
        lambda **options: SessionWindow(10 * SECOND, **options),
        "found TumblingWindow(size=0:00:10, Count()), expected SessionWindow(gap=0:00:10, Count())",
        "keep creating the window 'created' with its old settings until",
    ),
    "session's kind": (
        lambda **options: SessionWindow(10 * SECOND, **options),
        lambda **options: SlidingWindow(10 * SECOND, **options),
        "found SessionWindow(gap=0:00:10, Count())",
        "keep creating the window 'created' with its old settings until",
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
def test_a_run_time_window_with_other_settings_ends_the_run_without_losing_state(change: str, touched: str) -> None:
    before, after, mismatch, advice = ANOTHER[change]
    run = restarted(TestRun, before, after, on_error="dead_letter")
    run.run()
    snapshot = run.snapshot()
    if touched == "when it is due":
        run.add_watermark(at(500)).end_batch()
    else:
        run.add_record(event(3, 1, key="k" if touched == "by an event" else "other")).end_batch()
    with pytest.raises(CallbackError, match=r"StateDecodeError: state 'created' of key '(k|other)'") as caught:
        run.run()
    assert mismatch in caught.value.error
    assert advice in caught.value.error
    assert "The state is unchanged" in caught.value.error
    back = TestRun(job(CreatesWindow(before)), snapshot=snapshot)
    assert len(closed(back.add_watermark(at(500)).end_batch())) == 1


ACCEPTED: dict[str, tuple[Create, Create, Any]] = {
    "what does not decide which events it has": (tumbling(10), tumbling(10, early=5, max_active=3), 2),
    "names of a mapping": (tumbling(10, {"n": Count(), "of": Sum()}), tumbling(10, {"n": Count(), "max": Max()}), None),
    "an aggregate, with a migration": (
        tumbling(10, Sum()),
        tumbling(10, {"sum": Sum(), "n": Count()}, version=1, migrate=lambda total, _: {"sum": total, "n": 0}),
        {"sum": 12, "n": 0},
    ),
}


@pytest.mark.parametrize("change", ACCEPTED)
def test_a_run_time_window_can_change_like_a_declared_window(change: str) -> None:
    before, after, value = ACCEPTED[change]
    values = closed(restarted(TestRun, before, after).add_watermark(at(500)).end_batch())
    assert values == [{"n": 2, "max": None} if value is None else value]


def test_a_run_time_hopping_window_with_another_hop_is_refused() -> None:
    def hopping(hop: int) -> Create:
        return lambda **options: HoppingWindow(20 * SECOND, hop * SECOND, **options)

    run = restarted(TestRun, hopping(10), hopping(5)).add_record(event(3))
    with pytest.raises(CallbackError, match="hop was 0:00:10 and is now 0:00:05"):
        run.run()


class Lengthening(CreatesWindow):
    """Makes longer windows after an event."""

    def __init__(self) -> None:
        super().__init__()
        self.sizes = [10]

    def window(self) -> Any:
        return TumblingWindow(self.sizes[-1] * SECOND, name="created", on_close=self.closed)

    def on_event(self, subject: Subject, event: KeyedEvent[Any]) -> None:
        if event.value == "longer":
            self.sizes.append(20)
        else:
            super().on_event(subject, event)


def test_a_run_time_window_can_change_in_the_batch_that_closes_its_last_window() -> None:
    run = TestRun(job(Lengthening())).add_records([event(1), event(2)]).add_watermark(at(100))
    run.add_records([event(101, "longer"), event(102)]).add_watermark(at(500))
    assert closed(run.end_batch()) == [2, 1]


def test_a_run_time_window_cannot_change_during_a_run_while_it_is_open() -> None:
    run = TestRun(job(Lengthening(), on_error="dead_letter"))
    run.add_records([event(1, 1), event(2, "longer"), event(3, 1)])
    with pytest.raises(CallbackError, match=r"found TumblingWindow.size=0:00:10"):
        run.run()


def test_a_run_time_window_that_was_migrated_for_one_key_is_migrated_for_other_keys() -> None:
    summed = tumbling(10, {"sum": Sum()}, version=1, migrate=lambda total, _: {"sum": total})
    run = TestRun(job(CreatesWindow(tumbling(10, Sum())))).add_records([event(1, 5), event(1, 7, key="other")])
    run.restart(CreatesWindow(summed)).add_record(event(2, 5)).restart(CreatesWindow(tumbling(10, {"sum": Sum()})))
    with pytest.raises(CallbackError, match=r"version=1.*the state is of|found TumblingWindow.* version 1"):
        run.add_record(event(3, 5)).run()
    assert sorted(closed(run.restart(CreatesWindow(summed)).add_watermark(at(500)).end_batch()), key=str) == [
        {"sum": 10},
        {"sum": 7},
    ]


def test_a_run_time_window_can_change_after_its_last_window_has_closed() -> None:
    run = (
        TestRun(job(CreatesWindow()))
        .add_record(event(1))
        .add_watermark(at(100))
        .end_batch()
        .restart(CreatesWindow(tumbling(20)))
    )
    assert closed(run.add_record(event(101)).add_watermark(at(500)).end_batch()) == [1, 1]


@pytest.mark.parametrize("on_error", ["fail", "dead_letter"])
def test_a_run_time_window_with_a_retired_name_is_an_error(on_error: Any) -> None:
    run = TestRun(job(CreatesWindow(), retired={"created": "drop"}, on_error=on_error)).add_record(event(1))
    with pytest.raises(CallbackError, match="retired contains 'created', but the handler creates this window"):
        run.run()


class Counting(Recorder):
    created = ValueSpec(int, default=0)

    def on_event(self, subject: Subject, event: KeyedEvent[Any]) -> None:
        self.created.state_for(subject).value += 1


@pytest.mark.parametrize("on_error", ["fail", "dead_letter"])
def test_a_run_time_window_with_the_name_of_removed_state_is_an_error(on_error: Any) -> None:
    first = TestRun(job(Counting())).add_record(event(1))
    first.run()
    run = TestRun(job(CreatesWindow(), on_error=on_error), snapshot=first.snapshot()).add_record(event(2))
    with pytest.raises(CallbackError, match=r"state 'created' of key 'k'.*not a component.*give the window a"):
        run.run()


class Bare(Component):
    """A third party's component with only the required attributes."""

    def structure(self) -> dict[str, Any]:
        return {"kind": "Bare", "version": 0, "settings": {}}


class Touching(Recorder):
    def on_event(self, subject: Subject, event: KeyedEvent[Any]) -> None:
        Bare(name="bare").state_for(subject).store(1, to_micros(at(10)))


def test_errors_about_a_component_without_a_noun_call_it_a_component() -> None:
    run = TestRun(job(Touching())).add_record(event(1)).restart().add_watermark(at(500)).end_batch()
    with pytest.raises(AmadouError, match="component 'bare'"):
        run.run()


class Running(Recorder):
    """Makes a running value at run time."""

    def __init__(self, of: Any) -> None:
        self.of = of

    def on_event(self, subject: Subject, event: KeyedEvent[Any]) -> None:
        self.report("event", subject, event.timestamp, RunningSpec(self.of, name="created").add(subject, event))


def test_a_run_time_running_value_with_another_aggregate_is_an_error() -> None:
    run = TestRun(job(Running(Sum()), on_error="dead_letter")).add_record(event(1, 3))
    run.run()
    again = TestRun(job(Running(Sum()), on_error="dead_letter"), snapshot=run.snapshot()).add_record(event(1, 3))
    assert [seen[4] for seen in again.run().records("seen")] == [6]
    other = TestRun(job(Running(Max()), on_error="dead_letter"), snapshot=run.snapshot()).add_record(event(1, 3))
    with pytest.raises(
        AmadouError, match=r"was Sum\(\) and is now Max\(\)\. .* or keep creating 'created' with its old settings, and"
    ):
        other.run()
