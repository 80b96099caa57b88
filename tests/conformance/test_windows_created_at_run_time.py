"""Open windows and joins that were created at run time, and that newer code creates with other settings."""

from datetime import timedelta
from typing import Any

import attrs
import pytest
from tests.conformance.conftest import MakeRun
from tests.conformance.handlers import SECOND, Create, CreatesWindow, Recorder, at, event, job

from amadou import Job, KeyedEvent, MemorySource, Subject
from amadou.components import VectorizedHandler
from amadou.errors import AmadouError, CallbackError
from amadou_plugins.joins import AsOfJoin
from amadou_plugins.windows import TumblingWindow, Window
from amadou_runtime import TestRun


def tumbling(seconds: int, *value: Any, **more: Any) -> Create:
    return lambda **settings: TumblingWindow(seconds * SECOND, *value, **more, **settings)


def restarted(test_run: MakeRun, before: Create, after: Create, **settings: Any) -> TestRun:
    run = test_run(job(CreatesWindow(before), **settings)).add_records([event(1, 5), event(2, 7)])
    return run.restart(CreatesWindow(after))


def closed(run: TestRun) -> list[Any]:
    return [seen[4] for seen in run.run().records("seen") if seen[0] == "closed"]


@pytest.mark.parametrize("touched", ["by an event", "when it is due"])
@pytest.mark.rule(27)
def test_a_window_created_with_another_size_ends_the_run_and_its_state_is_unchanged(
    test_run: MakeRun, touched: str
) -> None:
    run = restarted(test_run, tumbling(10), tumbling(20), on_error="dead_letter")
    run.run()
    snapshot = run.snapshot()
    if touched == "when it is due":
        run.add_watermark(at(500)).end_batch()
    else:
        run.add_record(event(3, 1))
    unreadable = r"StateDecodeError: state 'created' of key 'k': found Tumb.*The state is unchanged"
    with pytest.raises(CallbackError, match=unreadable):
        run.run()
    back = test_run(job(CreatesWindow(tumbling(10))), snapshot=snapshot)
    assert closed(back.add_watermark(at(500)).end_batch()) == [2]


class DeclaresWindow(Recorder, VectorizedHandler):
    window = TumblingWindow(20 * SECOND, name="created")

    def on_event(self, subject: Subject, event: KeyedEvent[Any]) -> None:
        self.window.add(subject, event)

    @window.on_close
    def closed(self, subject: Subject, window: Window, value: Any) -> None:
        self.report("closed", subject, window.start, value)


@pytest.mark.rule(27)
def test_a_declared_window_and_a_window_created_at_run_time_of_another_size_cannot_read_each_others_state(
    test_run: MakeRun,
) -> None:
    declares_window = DeclaresWindow()
    declares_window.delegates_to = "created"
    run = (
        test_run(job(declares_window)).add_record(event(1)).restart(CreatesWindow()).add_watermark(at(500)).end_batch()
    )
    with pytest.raises(AmadouError, match=r"found TumblingWindow.size=0:00:20, Count..., expected"):
        run.run()
    run = test_run(job(CreatesWindow())).add_record(event(1)).restart(declares_window).add_record(event(2))
    with pytest.raises(AmadouError, match=r"found TumblingWindow.size=0:00:10, Count..., expected"):
        run.run()


class CreatesJoin(Recorder):
    """Creates a join for each event, and when the join is due.

    :param tolerance: tolerance of the join; `None` to create no join when a join is due
    """

    def __init__(self, tolerance: timedelta | None = 5 * SECOND) -> None:
        self.tolerance = tolerance

    def join(self) -> AsOfJoin:
        return AsOfJoin(left="in", right="more", tolerance=self.tolerance, name="created", on_match=self.matched)

    def on_event(self, subject: Subject, event: KeyedEvent[Any]) -> None:
        self.join().add(subject, event)

    def matched(self, subject: Subject, left: Any, right: Any) -> None:
        self.report("matched", subject, left.timestamp, right)

    def on_recover_window(self, name: str, subject: Subject) -> Any:
        return self.join() if self.tolerance is not None else None


def joining(tolerance: timedelta | None = 5 * SECOND) -> Job:
    return attrs.evolve(job(CreatesJoin(tolerance)), sources={"in": MemorySource(), "more": MemorySource()})


@pytest.mark.parametrize(
    ("tolerance", "message"),
    [
        (
            9 * SECOND,
            r"tolerance was 0:00:05 and is now 0:00:09.*keep creating the join 'created' with its old settings until",
        ),
        (None, r"the join 'created' of key 'k' is due.*to drop its stored state"),
    ],
)
@pytest.mark.rule(27)
def test_errors_about_a_join_created_at_run_time_call_it_a_join(
    test_run: MakeRun, tolerance: timedelta | None, message: str
) -> None:
    run = (
        test_run(joining())
        .add_record(event(1), "in")
        .restart(CreatesJoin(tolerance))
        .add_watermark(at(500))
        .end_batch()
    )
    with pytest.raises(AmadouError, match=message):
        run.run()


@pytest.mark.rule(27)
def test_a_window_with_a_retired_name_ends_the_run_and_its_state_is_unchanged(test_run: MakeRun) -> None:
    first_run = test_run(job(CreatesWindow())).add_record(event(1))
    first_run.run()
    retiring = job(CreatesWindow(), retired={"created": "keep"}, on_error="dead_letter")
    with pytest.raises(AmadouError, match="retired"):
        test_run(retiring, snapshot=first_run.snapshot()).add_record(event(2)).run()
    assert closed(first_run.add_watermark(at(500)).end_batch()) == [1]
