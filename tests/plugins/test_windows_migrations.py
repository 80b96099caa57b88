"""What a `migrate=` of a window or of a running value gives is looked at: nothing goes on from what cannot be read."""

from collections.abc import Callable
from typing import Any

import pytest
from tests.conformance.handlers import SECOND, Recorder, at, event, job
from tests.ids import shown

from amadou import KeyedEvent, Subject
from amadou.errors import CallbackError
from amadou_plugins.aggregates import Aggregate, Collect, Count, Latest, Mean, Quantiles, Reduce, RunningSpec, Sum
from amadou_plugins.windows import CountWindow, HoppingWindow, SessionWindow, SlidingWindow, TumblingWindow, Window
from amadou_runtime import TestRun

KINDS: dict[str, Callable[..., Any]] = {
    "tumbling": lambda *value, **more: TumblingWindow(10 * SECOND, *value, **more),
    "hopping": lambda *value, **more: HoppingWindow(10 * SECOND, 5 * SECOND, *value, **more),
    "sliding": lambda *value, **more: SlidingWindow(10 * SECOND, *value, **more),
    "session": lambda *value, **more: SessionWindow(10 * SECOND, *value, **more),
    "cut session": lambda *value, **more: SessionWindow(10 * SECOND, *value, max_duration=20 * SECOND, **more),
    "count": lambda *value, **more: CountWindow(3, *value, **more),
}


def keeping(kind: str, *value: Any, **more: Any) -> Recorder:
    """A handler with one window, or with a running value."""
    if kind == "running":
        spec = RunningSpec(*value, **more)
    else:
        spec = KINDS[kind](*value, on_close=lambda subject, window, found: closed(subject, window, found), **more)

    class Keeping(Recorder):
        kept = spec

        def on_event(self, subject: Subject, event: KeyedEvent[Any]) -> None:
            found = self.kept.add(subject, event)
            if found is not None:
                self.report("closed", subject, event.timestamp, found)

    return Keeping()


def closed(subject: Subject, window: Window, found: Any) -> None:
    subject.handler.report("closed", subject, window.end, found)


def results(run: Any) -> list[Any]:
    return [seen[4] for seen in run.run().records("seen") if seen[0] == "closed"]


def refused(before: Recorder, after: Recorder, told: str) -> None:
    """See that an upgrade ends the run, dead letters or not, and that the older code goes on from there."""
    first = TestRun(job(before)).add_records([event(1, 5), event(2, 7)])
    first.run()
    run = TestRun(job(after, on_error="dead_letter"), snapshot=first.snapshot()).add_record(event(3, 2))
    with pytest.raises(CallbackError, match=r"StateDecodeError: state 'kept' of key 'k'.*migrate= failed") as caught:
        run.run()
    assert told in caught.value.error
    assert "The state is unchanged. To continue, fix migrate=" in caught.value.error
    back = TestRun(job(before), snapshot=first.snapshot()).add_record(event(3, 2)).add_watermark(at(500)).end_batch()
    assert results(back)[-1] in (14, 3)


@pytest.mark.parametrize("kind", [*KINDS, "running"])
@pytest.mark.parametrize(
    ("given", "told"),
    [
        (None, "which migrate= returned: return a mapping with accumulators for 'sum', 'n'"),
        (3, "cannot continue from 3, which migrate= returned: return a mapping"),
        ({"n": 2}, "add accumulators for 'sum'; an aggregate's create() returns an empty one"),
        (
            {"sum": Sum().create(), "n": None},
            "Count() cannot continue from None, which migrate= returned: return an accumulator like 0",
        ),
        ({"sum": Sum().create(), "n": "2"}, "Count() cannot continue from '2'"),
        (
            {"sum": 12, "n": 2},
            "Sum() cannot continue from 12, which migrate= returned: return an accumulator like [[], 0, 0, None",
        ),
        ({"sum": [["5"], 0, 0, None, None, 1], "n": 2}, "Sum() cannot continue from [['5'], 0"),
    ],
)
def test_what_a_mapping_of_aggregates_cannot_go_on_from_ends_the_run(kind: str, given: Any, told: str) -> None:
    after = keeping(kind, {"sum": Sum(), "n": Count()}, version=1, migrate=lambda *_: given)
    refused(keeping(kind, Sum()), after, told)


class Longest(Aggregate[int, int]):
    """An aggregate of someone else's, of whose accumulators nothing is known but what it does with them."""

    def create(self) -> int:
        return 0

    def add(self, accumulator: int, event: KeyedEvent[Any]) -> int:
        return max(accumulator, event.value)

    def merge(self, left: int, right: int) -> int:
        return max(left, right)

    def result(self, accumulator: int) -> int:
        return accumulator + 0


@pytest.mark.parametrize(
    ("aggregate", "given", "told"),
    [
        (Mean(), 6.0, "Mean() cannot continue from 6.0"),
        (Longest(), None, "Longest() cannot continue from None"),
        (Longest(), "7", "Longest() cannot continue from '7', which migrate= returned: TypeError"),
        (
            Latest(),
            7,
            "Latest() cannot continue from 7, which migrate= returned: return an accumulator like [None, None]",
        ),
        (Collect(), (5, 7), "Collect() cannot continue from (5, 7)"),
        (Quantiles(quantiles=[0.5]), [{}, 0], "return an accumulator like [{}, 0, {}]"),
        (Count(), object(), "Count() cannot continue from <object object"),
        (Reduce(max, mergeable=True), object(), "EncodeError"),
    ],
    ids=shown,
)
@pytest.mark.parametrize("kind", ["tumbling", "count"])
def test_what_an_aggregate_cannot_go_on_from_ends_the_run(kind: str, aggregate: Any, given: Any, told: str) -> None:
    refused(keeping(kind, Sum()), keeping(kind, aggregate, version=1, migrate=lambda *_: given), told)


@pytest.mark.parametrize("given", [None, {}, "events", [1, 2], [("k",)]], ids=str)
def test_what_is_no_list_of_events_ends_the_run_where_those_are_kept(given: Any) -> None:
    def adding(**more: Any) -> Recorder:
        return keeping("session", Reduce(lambda left, right: left + right), **more)

    refused(adding(), adding(version=1, migrate=lambda *_: given), "cannot continue from")


@pytest.mark.parametrize("kind", [*KINDS, "running"])
def test_a_migration_may_begin_an_aggregate_anew_and_may_leave_names_that_are_gone(kind: str) -> None:
    def migrated(stored: Any, version: int) -> Any:
        return {**stored, "sum": Sum().create()}

    before = keeping(kind, {"n": Count(), "mean": Mean()})
    after = keeping(kind, {"n": Count(), "sum": Sum()}, version=1, migrate=migrated)
    run = TestRun(job(before)).add_records([event(1, 5), event(2, 7)]).restart(after).add_record(event(3, 2))
    assert results(run.add_watermark(at(500)).end_batch())[-1] == {"n": 3, "sum": 2}


class Greatest(Aggregate[list[int], int]):
    """Has no result of nothing."""

    def create(self) -> list[int]:
        return []

    def add(self, accumulator: list[int], event: KeyedEvent[Any]) -> list[int]:
        return [*accumulator, event.value]

    def merge(self, left: list[int], right: list[int]) -> list[int]:
        return left + right

    def result(self, accumulator: list[int]) -> int:
        return max(accumulator)


@pytest.mark.parametrize("kind", ["tumbling", "hopping", "session", "cut session", "count", "running"])
def test_a_migration_may_begin_an_aggregate_anew_that_has_no_result_of_nothing(kind: str) -> None:
    before = keeping(kind, {"n": Count()})
    after = keeping(kind, {"n": Count(), "max": Greatest()}, version=1, migrate=lambda stored, _: {**stored, "max": []})
    run = TestRun(job(before)).add_records([event(1, 5), event(2, 7)]).restart(after).add_record(event(3, 2))
    assert results(run.add_watermark(at(500)).end_batch())[-1] == {"n": 3, "max": 2}
