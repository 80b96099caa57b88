"""What becomes of open windows and joins that were made at run time when newer code makes them otherwise."""

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import attrs
import pytest
from tests.conformance.conftest import MakeRun
from tests.conformance.handlers import SECOND, Recorder, at, event, job

from amadou import Job, KeyedEvent, MemorySource, Subject, VectorizedHandler
from amadou.errors import AmadouError, CallbackError
from amadou_plugins.joins import AsOfJoin
from amadou_plugins.windows import TumblingWindow, Window
from amadou_runtime import TestRun

Make = Callable[..., Any]


class Making(Recorder):
    """Makes a window when an event comes, or one is due.

    :param make: makes the window
    """

    def __init__(self, make: Make = lambda **given: TumblingWindow(10 * SECOND, **given)) -> None:
        self.make = make

    def window(self) -> Any:
        return self.make(name="made", on_close=self.closed)

    def on_event(self, subject: Subject, event: KeyedEvent[Any]) -> None:
        self.window().add(subject, event)

    def closed(self, subject: Subject, window: Window, value: Any) -> None:
        self.report("closed", subject, window.start, value)

    def on_recover_window(self, name: str, subject: Subject) -> Any:
        return self.window()


def tumbling(seconds: int, *value: Any, **more: Any) -> Make:
    return lambda **given: TumblingWindow(seconds * SECOND, *value, **more, **given)


def restarted(test_run: MakeRun, before: Make, after: Make, **settings: Any) -> TestRun:
    run = test_run(job(Making(before), **settings)).add_records([event(1, 5), event(2, 7)])
    return run.restart(Making(after))


def closed(run: TestRun) -> list[Any]:
    return [seen[4] for seen in run.run().records("seen") if seen[0] == "closed"]


@pytest.mark.parametrize("touched", ["by an event", "when it is due"])
@pytest.mark.rule(27)
def test_a_window_that_is_made_otherwise_ends_the_run_and_loses_nothing(test_run: MakeRun, touched: str) -> None:
    run = restarted(test_run, tumbling(10), tumbling(20), on_error="dead_letter")
    run.run()
    snapshot = run.snapshot()
    if touched == "when it is due":
        run.add_watermark(at(500)).end_batch()
    else:
        run.add_record(event(3, 1))
    unreadable = r"StateDecodeError: state 'made' of key 'k': found Tumb.*The state is unchanged"
    with pytest.raises(CallbackError, match=unreadable):
        run.run()
    back = test_run(job(Making(tumbling(10))), snapshot=snapshot)
    assert closed(back.add_watermark(at(500)).end_batch()) == [2]


class Declaring(Recorder, VectorizedHandler):
    window = TumblingWindow(20 * SECOND, name="made")

    def on_event(self, subject: Subject, event: KeyedEvent[Any]) -> None:
        self.window.add(subject, event)

    @window.on_close
    def closed(self, subject: Subject, window: Window, value: Any) -> None:
        self.report("closed", subject, window.start, value)


@pytest.mark.on_spark("errors of workers")
@pytest.mark.rule(27)
def test_a_declared_window_and_one_made_at_run_time_do_not_take_over_what_they_cannot_read(test_run: MakeRun) -> None:
    declaring = Declaring()
    declaring.delegates_to = "made"
    run = test_run(job(declaring)).add_record(event(1)).restart(Making()).add_watermark(at(500)).end_batch()
    with pytest.raises(AmadouError, match=r"found TumblingWindow.size=0:00:20, Count..., expected"):
        run.run()
    run = test_run(job(Making())).add_record(event(1)).restart(declaring).add_record(event(2))
    with pytest.raises(AmadouError, match=r"found TumblingWindow.size=0:00:10, Count..., expected"):
        run.run()


class Joining(Recorder):
    """Joins at run time, until it no longer does.

    :param tolerance: how far a match may be; `None` for no join any more
    """

    def __init__(self, tolerance: timedelta | None = 5 * SECOND) -> None:
        self.tolerance = tolerance

    def join(self) -> AsOfJoin:
        return AsOfJoin(left="in", right="more", tolerance=self.tolerance, name="made", on_match=self.matched)

    def on_event(self, subject: Subject, event: KeyedEvent[Any]) -> None:
        self.join().add(subject, event)

    def matched(self, subject: Subject, left: Any, right: Any) -> None:
        self.report("matched", subject, left.timestamp, right)

    def on_recover_window(self, name: str, subject: Subject) -> Any:
        return self.join() if self.tolerance is not None else None


def joining(tolerance: timedelta | None = 5 * SECOND) -> Job:
    return attrs.evolve(job(Joining(tolerance)), sources={"in": MemorySource(), "more": MemorySource()})


@pytest.mark.parametrize(
    ("tolerance", "told"),
    [
        (
            9 * SECOND,
            r"tolerance was 0:00:05 and is now 0:00:09.*keep creating the join 'made' with its old settings until",
        ),
        (None, r"the join 'made' of key 'k' is due.*to drop its stored state"),
    ],
)
@pytest.mark.rule(27)
def test_a_join_is_called_one(test_run: MakeRun, tolerance: timedelta | None, told: str) -> None:
    run = test_run(joining()).add_record(event(1), "in").restart(Joining(tolerance)).add_watermark(at(500)).end_batch()
    with pytest.raises(AmadouError, match=told):
        run.run()


@pytest.mark.rule(27)
def test_a_window_that_takes_a_retired_name_ends_the_run_and_loses_nothing(test_run: MakeRun) -> None:
    begun = test_run(job(Making())).add_record(event(1))
    begun.run()
    retiring = job(Making(), retired={"made": "keep"}, on_error="dead_letter")
    with pytest.raises(AmadouError, match="retired"):
        test_run(retiring, snapshot=begun.snapshot()).add_record(event(2)).run()
    assert closed(begun.add_watermark(at(500)).end_batch()) == [1]
