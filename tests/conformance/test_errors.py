"""A failing callback stops the run."""

import traceback

import pytest
from tests.conformance.conftest import MakeRun
from tests.conformance.handlers import Failing, Leaking, at, details, event, job

from amadou.errors import CallbackError
from amadou_runtime import TestRun


def failure_of(run: TestRun) -> CallbackError:
    with pytest.raises(CallbackError) as caught:
        run.run()
    return caught.value


def printed(error: BaseException) -> str:
    """Return the text that Python prints for an uncaught error."""
    return "".join(traceback.format_exception(error))


@pytest.mark.on_spark("errors of workers")
@pytest.mark.rule(18)
def test_the_error_of_on_event_names_handler_callback_key_and_record(test_run: MakeRun) -> None:
    error = failure_of(test_run(job(Failing())).add_record(event(1, "fail", "a key")))
    assert (error.handler, error.callback, error.key, error.source) == ("Failing", "on_event", "a key", "events")
    assert error.error == "Mistake: not this one"
    for part in ("Failing.on_event failed", "Mistake: not this one", "'a key'", "'fail'"):
        assert part in str(error)


@pytest.mark.rule(18)
def test_the_trace_contains_the_callbacks_before_the_failing_one(test_run: MakeRun) -> None:
    run = test_run(job(Failing())).add_records([event(1, "a"), event(2, "fail")])
    failure_of(run)
    before, last = run.trace_text().split("2025-01-01T00:00:02+00:00  on_event")
    assert "2025-01-01T00:00:01+00:00  on_event (events)  key='k' value='a'" in before
    assert "Mistake: not this one" in last


@pytest.mark.rule(18)
def test_the_traceback_of_the_users_code_comes_first(test_run: MakeRun) -> None:
    error = failure_of(test_run(job(Failing())).add_record(event(1, "fail")))
    assert 'raise Mistake("not this one")' in error.user_traceback
    assert "amadou_runtime" not in error.user_traceback
    shown = printed(error)
    assert shown.index("not this one") < shown.index("Failing.on_event failed")


@pytest.mark.rule(18)
def test_the_error_of_a_timer_names_the_timer(test_run: MakeRun) -> None:
    error = failure_of(test_run(job(Failing())).add_record(event(1, "set")).add_watermark(at(200)))
    assert (error.callback, error.key, error.source) == ("on_timer_expired", "k", None)
    assert "timer 2025-01-01T00:01:40+00:00 tag='fail'" in (error.record or "")
    assert error.watermark == "2025-01-01T00:03:20+00:00"


@pytest.mark.rule(18)
def test_the_error_of_key_event_names_the_record(test_run: MakeRun) -> None:
    error = failure_of(test_run(job(Failing())).add_record(event(1, "unparsable")))
    assert (error.callback, error.source) == ("key_event", "events")
    assert "'unparsable'" in (error.record or "")
    assert 'raise Mistake("no such record")' in error.user_traceback
    assert "amadou_runtime" not in error.user_traceback


@pytest.mark.parametrize("mistake", ["fail", "unparsable"])
@pytest.mark.rule(18)
def test_after_a_failure_state_and_outputs_are_those_of_the_last_complete_batch(
    test_run: MakeRun, mistake: str
) -> None:
    test_job = job(Failing())
    run = test_run(test_job).add_records([event(1, "a"), event(1, "a")]).end_batch()
    failure_of(run.add_records([event(2, "undone"), event(3, mistake), event(4, "undone")]))
    result = run.run()
    assert details(result) == ["a", "a"]
    assert result.state("total", "k") == 2
    assert [seen[4] for seen in test_job.sinks["seen"].records] == ["a", "a"]  # type: ignore[attr-defined]


@pytest.mark.parametrize("mistake", ["fail", "unparsable"])
@pytest.mark.rule(18)
def test_a_test_run_continues_without_the_failed_batch(test_run: MakeRun, mistake: str) -> None:
    run = test_run(job(Failing())).add_record(event(0, "a")).end_batch()
    failure_of(run.add_records([event(1, "undone"), event(2, mistake)]))
    failure_of(run.add_record(event(3, mistake)))
    result = (
        run.add_record(event(4, "b")).end_batch().add_record(event(5, "c")).restart().add_record(event(6, "d")).run()
    )
    assert [seen[2:] for seen in result.records("seen")] == [(0, None, "a"), (4, 0, "b"), (5, 4, "c"), (6, 5, "d")]
    assert result.state("total", "k") == 4


@pytest.mark.parametrize("value", ["fail", "unparsable"])
@pytest.mark.rule(18)
def test_an_error_does_not_contain_secrets(test_run: MakeRun, value: str) -> None:
    error = failure_of(test_run(job(Leaking()), params={"TOKEN": "sesame-4711"}).add_record(event(1, value)))
    assert error.error == "ValueError: no login with ***"
    assert "no login with ***" in error.user_traceback
    assert "sesame-4711" not in printed(error)
