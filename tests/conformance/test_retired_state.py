"""`Job(retired=…)`: stored state whose spec the handler no longer declares is dropped or retained."""

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
    """Has no window and no total."""


class Windowed(Recorder):
    """Counts events in a window and in a total."""

    window = TumblingWindow(10 * SECOND)
    total = ValueSpec(int, 0)

    def on_event(self, subject: Subject, event: KeyedEvent[Any]) -> None:
        self.window.add(subject, event)
        self.total.state_for(subject).value += 1

    @window.on_close
    def window_closed(self, subject: Subject, window: Window, count: int) -> None:
        self.report("closed", subject, window.start, count)


def snapshot_of_windows() -> bytes:
    """Return a snapshot with open windows of two keys."""
    run = TestRun(job(Windowed()), engine="embedded").add_records([event(1), event(2), event(1, key="other")])
    run.run()
    return run.snapshot()


def test_stored_state_of_a_removed_window_is_an_error_that_says_how_to_retire_the_window(test_run: MakeRun) -> None:
    run = test_run(job(Plain()), snapshot=snapshot_of_windows()).add_watermark(at(60)).end_batch()
    with pytest.raises(
        AmadouError, match=r"Job\(retired=\{'window': \"drop\"\}\) to drop its stored state, or \"keep\""
    ):
        run.run()


def test_dropped_state_of_retired_specs_is_counted_by_keys(test_run: MakeRun) -> None:
    retired = {"window": "drop", "total": "drop"}
    run = test_run(job(Plain(), retired=retired), snapshot=snapshot_of_windows()).add_watermark(at(60)).end_batch()
    result = run.run()
    assert (result.keys(), result.counters) == ([], {"window.dropped": 2, "total.dropped": 2})
    assert result.records("seen") == []


def test_retained_state_of_a_retired_spec_is_used_when_the_spec_returns(test_run: MakeRun) -> None:
    run = test_run(job(Plain(), retired={"window": "keep"}), snapshot=snapshot_of_windows()).add_watermark(at(60))
    run.add_record(event(61))
    result = run.run()
    assert [seen[0] for seen in result.records("seen")] == ["event"]
    assert result.counters == {}
    again = test_run(job(Windowed()), snapshot=run.snapshot()).add_watermark(at(61)).end_batch()
    assert sorted(seen[:3:2] + seen[4:] for seen in again.run().records("seen")) == [("closed", 0, 1), ("closed", 0, 2)]


def test_a_test_run_can_restart_with_a_handler_whose_job_retires_state() -> None:
    new = job(Plain(), retired={"window": "drop", "total": "drop"})
    run = (
        TestRun(new, handler=Windowed(), engine="embedded").add_record(event(1)).restart(Plain()).add_watermark(at(60))
    )
    result = run.run()
    assert (result.keys(), result.counters) == ([], {"window.dropped": 1, "total.dropped": 1})


def test_an_invalid_retired_setting_is_an_error_when_the_job_is_created() -> None:
    with pytest.raises(JobError, match="retired contains 'window', but Windowed declares it"):
        job(Windowed(), retired={"window": "drop"})
    with pytest.raises(JobError, match="""retired\\['window'\\] must be "drop" or "keep", not 'lose'"""):
        job(Plain(), retired={"window": "lose"})
    with pytest.raises(JobError, match="retired must be a mapping"):
        job(Plain(), retired=["window"])
