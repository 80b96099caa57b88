"""What becomes of state whose spec a handler no longer declares: `Job(retired=…)`."""

from typing import Any

import pytest
from tests.conformance.conftest import MakeRun
from tests.conformance.handlers import SECOND, Recorder, at, event, job

from amadou import KeyedEvent, Subject, ValueSpec
from amadou.errors import AmadouError, JobError
from amadou_plugins.windows import TumblingWindow, Window
from amadou_runtime import TestRun

pytestmark = pytest.mark.rule(29)


class Plain(Recorder):
    """Has neither the window nor the sum."""


class Windowed(Recorder):
    """Counts events in a window, and sums them up."""

    window = TumblingWindow(10 * SECOND)
    total = ValueSpec(int, 0)

    def on_event(self, subject: Subject, event: KeyedEvent[Any]) -> None:
        self.window.add(subject, event)
        self.total.state_for(subject).value += 1

    @window.on_close
    def window_closed(self, subject: Subject, window: Window, count: int) -> None:
        self.report("closed", subject, window.start, count)


def begun(test_run: MakeRun) -> bytes:
    """A snapshot with open windows of two keys."""
    run = test_run(job(Windowed())).add_records([event(1), event(2), event(1, key="other")])
    run.run()
    return run.snapshot()


def test_a_window_that_is_nowhere_declared_says_how_to_retire_it(test_run: MakeRun) -> None:
    run = test_run(job(Plain()), snapshot=begun(test_run)).add_watermark(at(60)).end_batch()
    with pytest.raises(
        AmadouError, match=r"Job\(retired=\{'window': \"drop\"\}\) to drop its stored state, or \"keep\""
    ):
        run.run()


def test_what_is_dropped_is_counted_by_its_keys(test_run: MakeRun) -> None:
    retired = {"window": "drop", "total": "drop"}
    run = test_run(job(Plain(), retired=retired), snapshot=begun(test_run)).add_watermark(at(60)).end_batch()
    result = run.run()
    assert (result.keys(), result.counters) == ([], {"window.dropped": 2, "total.dropped": 2})
    assert result.records("seen") == []


@pytest.mark.on_spark("restart")
def test_what_is_kept_goes_on_when_it_is_declared_again(test_run: MakeRun) -> None:
    run = test_run(job(Plain(), retired={"window": "keep"}), snapshot=begun(test_run)).add_watermark(at(60))
    run.add_record(event(61))
    result = run.run()
    assert [seen[0] for seen in result.records("seen")] == ["event"]
    assert result.counters == {}
    again = test_run(job(Windowed()), snapshot=run.snapshot()).add_watermark(at(61)).end_batch()
    assert sorted(seen[:3:2] + seen[4:] for seen in again.run().records("seen")) == [("closed", 0, 1), ("closed", 0, 2)]


def test_an_upgrade_may_be_played_with_what_the_new_job_retires() -> None:
    new = job(Plain(), retired={"window": "drop", "total": "drop"})
    run = (
        TestRun(new, handler=Windowed(), engine="embedded").add_record(event(1)).restart(Plain()).add_watermark(at(60))
    )
    result = run.run()
    assert (result.keys(), result.counters) == ([], {"window.dropped": 1, "total.dropped": 1})


def test_a_job_tells_what_it_cannot_retire() -> None:
    with pytest.raises(JobError, match="retired contains 'window', but Windowed declares it"):
        job(Windowed(), retired={"window": "drop"})
    with pytest.raises(JobError, match="""retired\\['window'\\] must be "drop" or "keep", not 'lose'"""):
        job(Plain(), retired={"window": "lose"})
    with pytest.raises(JobError, match="retired must be a mapping"):
        job(Plain(), retired=["window"])
