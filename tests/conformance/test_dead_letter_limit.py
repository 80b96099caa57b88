"""`Job(max_dead_letters=…)`: a run ends if more callbacks fail, counted across batches and restarts."""

import math
from typing import Any

import pytest
from tests.conformance.conftest import MakeRun
from tests.conformance.handlers import SECOND, Mistake, Recorder, at, event, job

from amadou import KeyedEvent, Param, Subject, ValueSpec
from amadou.errors import JobError, TooManyDeadLettersError
from amadou_plugins.windows import TumblingWindow, Window

pytestmark = pytest.mark.rule(30)


class FailsByValue(Recorder):
    """Fails in the callback that an event's value names."""

    window = TumblingWindow(10 * SECOND)
    total = ValueSpec(int, 0)

    def key_event(self, record: KeyedEvent[Any]) -> KeyedEvent[Any]:
        if record.value == "record":
            raise Mistake("no such record")
        return record

    def on_event(self, subject: Subject, event: KeyedEvent[Any]) -> None:
        if event.value == "type":
            raise TypeError(f"at {event.timestamp.second}")
        if event.value == "event":
            raise Mistake(f"at {event.timestamp.second}")
        self.total.state_for(subject).value += 1
        if event.value == "timer":
            subject.set_timer(at(20))
        if event.value == "window":
            self.window.add(subject, event)

    def on_timer_expired(self, subject: Subject, timestamp: Any) -> None:
        raise Mistake("not now")

    @window.on_close
    def window_closed(self, subject: Subject, window: Window, count: int) -> None:
        raise Mistake("not this one")


def limited_job(limit: Any, **settings: Any) -> Any:
    return job(FailsByValue(), on_error="dead_letter", max_dead_letters=limit, **settings)


@pytest.mark.on_spark("dead letters of workers")
def test_more_dead_letters_than_the_limit_end_the_run_across_batches_and_restarts(test_run: MakeRun) -> None:
    run = test_run(limited_job(4)).add_records([event(1, "event"), event(2, "record")]).restart()
    run.add_records([event(3, "type"), event(4, "event"), event(5, "fine")])
    assert len(run.run().dead_letters) == 4
    run.restart().add_records([event(6, "event"), event(7, "fine")])
    with pytest.raises(TooManyDeadLettersError) as caught:
        run.run()
    assert (caught.value.letters, caught.value.bound, caught.value.callback) == (5, 4, None)
    assert str(caught.value).splitlines() == [
        "dead letters: 5, more than max_dead_letters=4. This batch is not committed: fix the failures and run the job "
        "again, or increase max_dead_letters. The most frequent failures:",
        "  3 × on_event: Mistake: at 1",
        "  1 × key_event: Mistake: no such record",
        "  1 × on_event: TypeError: at 3",
    ]


def test_the_count_of_dead_letters_continues_from_a_snapshot_and_after_closing_a_run(test_run: MakeRun) -> None:
    first = test_run(limited_job(3)).add_records([event(1, "event"), event(2, "record")])
    first.run()
    first.close()
    assert len(first.add_record(event(3, "event")).run().dead_letters) == 3
    run = test_run(limited_job(3), snapshot=first.snapshot()).add_record(event(4, "event"))
    for continued in (first.add_record(event(4, "event")), run):
        with pytest.raises(TooManyDeadLettersError, match="dead letters: 4, more than max_dead_letters=3"):
            continued.run()


def test_a_limit_of_zero_allows_no_dead_letters(test_run: MakeRun) -> None:
    with pytest.raises(TooManyDeadLettersError, match="dead letters: 1, more than max_dead_letters=0"):
        test_run(limited_job(0)).add_record(event(1, "record")).run()


@pytest.mark.parametrize(
    ("value", "callback", "calls"),
    [
        ("record", "key_event", 40),
        ("event", "on_event", 40),
        ("timer", "on_timer_expired", 10),
        ("window", "window", 10),
    ],
)
def test_a_fraction_limits_the_failures_of_each_callback(
    test_run: MakeRun, value: str, callback: str, calls: int
) -> None:
    run = test_run(limited_job(0.2)).add_records([event(1, "fine", key) for key in range(30)])
    run.add_records([event(2, value, key) for key in range(10)]).add_watermark(at(60)).end_batch()
    with pytest.raises(TooManyDeadLettersError, match=f"10 of {calls} calls of {callback} failed, more than"):
        run.run()


def test_a_fraction_allows_the_first_failures_and_few_failures_among_many_calls(test_run: MakeRun) -> None:
    run = test_run(limited_job(0.2)).add_records([event(1, "event", key) for key in range(9)]).end_batch()
    run.add_records([event(2, "fine", key) for key in range(50)]).add_records([event(3, "event"), event(3, "event")])
    assert len(run.run().dead_letters) == 11


def test_a_reprocessed_batch_counts_its_dead_letters_once(test_run: MakeRun) -> None:
    run = (
        test_run(limited_job(2))
        .add_records([event(1, "event"), event(2, "record")])
        .crash()
        .add_record(event(3, "fine"))
    )
    assert len(run.run().dead_letters) == 2


def test_an_invalid_limit_is_an_error_when_the_job_is_created() -> None:
    for limit in (-1, 1.0, 1.5, -2.0, math.inf, math.nan, "many", True):
        with pytest.raises(JobError, match="max_dead_letters must be a non-negative integer, a fraction below 1"):
            limited_job(limit)
    with pytest.raises(JobError, match='max_dead_letters needs on_error="dead_letter"'):
        job(FailsByValue(), max_dead_letters=5)
    with pytest.raises(JobError, match=r"not 1\.0: write 1 for one dead letter, or None for no limit"):
        limited_job(1.0)
    assert limited_job(Param("MOST", type=int)).with_params({"MOST": "7"}).max_dead_letters == 7


def test_a_job_parameter_can_set_the_limit_to_a_fraction_or_a_number(test_run: MakeRun) -> None:
    limited = limited_job(Param("MOST", type=float))
    assert limited.with_params({"MOST": "0.5"}).max_dead_letters == 0.5
    run = test_run(limited, params={"MOST": "2"}).add_records([event(second, "event") for second in range(3)])
    with pytest.raises(TooManyDeadLettersError, match="dead letters: 3, more than max_dead_letters=2"):
        run.run()
    with pytest.raises(TooManyDeadLettersError, match="dead letters: 1, more than max_dead_letters=0"):
        test_run(limited, params={"MOST": "0"}).add_record(event(1, "event")).run()
