"""Results of `migrate=` of windows and running values are checked: state that cannot be read ends the run."""

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


def storing(kind: str, *value: Any, **more: Any) -> Recorder:
    """Make a handler with one window, or with a running value."""
    if kind == "running":
        spec = RunningSpec(*value, **more)
    else:
        spec = KINDS[kind](*value, on_close=lambda subject, window, value: closed(subject, window, value), **more)

    class Storing(Recorder):
        stored = spec

        def on_event(self, subject: Subject, event: KeyedEvent[Any]) -> None:
            current = self.stored.add(subject, event)
            if current is not None:
                self.report("closed", subject, event.timestamp, current)

    return Storing()


def closed(subject: Subject, window: Window, value: Any) -> None:
    subject.handler.report("closed", subject, window.end, value)


def results(run: Any) -> list[Any]:
    return [seen[4] for seen in run.run().records("seen") if seen[0] == "closed"]


def assert_refused(before: Recorder, after: Recorder, reason: str) -> None:
    """Assert that an upgrade ends the run, also with dead letters, and that the older code can continue."""
    first = TestRun(job(before)).add_records([event(1, 5), event(2, 7)])
    first.run()
    run = TestRun(job(after, on_error="dead_letter"), snapshot=first.snapshot()).add_record(event(3, 2))
    with pytest.raises(CallbackError, match=r"StateDecodeError: state 'stored' of key 'k'.*migrate= failed") as caught:
        run.run()
    assert reason in caught.value.error
    assert "The state is unchanged. To continue, fix migrate=" in caught.value.error
    back = TestRun(job(before), snapshot=first.snapshot()).add_record(event(3, 2)).add_watermark(at(500)).end_batch()
    assert results(back)[-1] in (14, 3)


@pytest.mark.parametrize("kind", [*KINDS, "running"])
@pytest.mark.parametrize(
    ("migrated", "reason"),
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
def test_a_migration_to_invalid_accumulators_of_a_mapping_ends_the_run(kind: str, migrated: Any, reason: str) -> None:
    after = storing(kind, {"sum": Sum(), "n": Count()}, version=1, migrate=lambda *_: migrated)
    assert_refused(storing(kind, Sum()), after, reason)


class Longest(Aggregate[int, int]):
    """A third party's aggregate, whose accumulators are checked only by its own methods."""

    def create(self) -> int:
        return 0

    def add(self, accumulator: int, event: KeyedEvent[Any]) -> int:
        return max(accumulator, event.value)

    def merge(self, left: int, right: int) -> int:
        return max(left, right)

    def result(self, accumulator: int) -> int:
        return accumulator + 0


@pytest.mark.parametrize(
    ("aggregate", "migrated", "reason"),
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
def test_a_migration_to_an_invalid_accumulator_ends_the_run(
    kind: str, aggregate: Any, migrated: Any, reason: str
) -> None:
    assert_refused(storing(kind, Sum()), storing(kind, aggregate, version=1, migrate=lambda *_: migrated), reason)


@pytest.mark.parametrize("migrated", [None, {}, "events", [1, 2], [("k",)]], ids=str)
def test_a_migration_of_a_window_that_stores_events_must_return_a_list_of_events(migrated: Any) -> None:
    def adding(**more: Any) -> Recorder:
        return storing("session", Reduce(lambda left, right: left + right), **more)

    assert_refused(adding(), adding(version=1, migrate=lambda *_: migrated), "cannot continue from")


@pytest.mark.parametrize("kind", [*KINDS, "running"])
def test_a_migration_can_add_an_empty_accumulator_and_leave_removed_names(kind: str) -> None:
    def migrated(stored: Any, version: int) -> Any:
        return {**stored, "sum": Sum().create()}

    before = storing(kind, {"n": Count(), "mean": Mean()})
    after = storing(kind, {"n": Count(), "sum": Sum()}, version=1, migrate=migrated)
    run = TestRun(job(before)).add_records([event(1, 5), event(2, 7)]).restart(after).add_record(event(3, 2))
    assert results(run.add_watermark(at(500)).end_batch())[-1] == {"n": 3, "sum": 2}


class Greatest(Aggregate[list[int], int]):
    """Has no result for an empty accumulator."""

    def create(self) -> list[int]:
        return []

    def add(self, accumulator: list[int], event: KeyedEvent[Any]) -> list[int]:
        return [*accumulator, event.value]

    def merge(self, left: list[int], right: list[int]) -> list[int]:
        return left + right

    def result(self, accumulator: list[int]) -> int:
        return max(accumulator)


@pytest.mark.parametrize("kind", ["tumbling", "hopping", "session", "cut session", "count", "running"])
def test_a_migration_can_add_an_empty_accumulator_that_has_no_result(kind: str) -> None:
    before = storing(kind, {"n": Count()})
    after = storing(kind, {"n": Count(), "max": Greatest()}, version=1, migrate=lambda stored, _: {**stored, "max": []})
    run = TestRun(job(before)).add_records([event(1, 5), event(2, 7)]).restart(after).add_record(event(3, 2))
    assert results(run.add_watermark(at(500)).end_batch())[-1] == {"n": 3, "max": 2}
