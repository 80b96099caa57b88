"""Open windows whose aggregates change from one release to the next."""

from functools import partial
from typing import Any

import pytest
from tests.conformance.conftest import MakeRun
from tests.conformance.handlers import SECOND, CreatesWindow, Recorder, at, event, job

from amadou import Handler, KeyedEvent, Subject
from amadou.errors import CallbackError
from amadou_plugins.aggregates import Aggregate, Count, Max, Sum
from amadou_plugins.windows import HoppingWindow, Window

Aggregates = dict[str, Aggregate[Any, Any]]


def created(aggregates: Aggregates) -> Handler:
    """Return a handler that creates a window with these aggregates."""
    return CreatesWindow(partial(HoppingWindow, 100 * SECOND, 50 * SECOND, aggregates))


def declared(aggregates: Aggregates, **settings: Any) -> Handler:
    """Return a handler that declares a window with these aggregates."""

    class Declared(Recorder):
        sums = HoppingWindow(100 * SECOND, 50 * SECOND, aggregates, **settings)

        def on_event(self, subject: Subject, event: KeyedEvent[Any]) -> None:
            self.sums.add(subject, event)

        @sums.on_close
        def closed(self, subject: Subject, window: Window, value: Any) -> None:
            self.report("closed", subject, window.start, value)

    return Declared()


@pytest.mark.rule(28)
@pytest.mark.parametrize(("handler", "key"), [(declared, "other"), (declared, "k"), (created, "k")])
def test_an_aggregate_that_is_removed_and_added_again_starts_anew(test_run: MakeRun, handler: Any, key: str) -> None:
    both = {"n": Count(), "sum": Sum()}
    run = test_run(job(handler(both))).add_record(event(1, 5))
    run.restart(handler({"n": Count(), "max": Max()})).add_record(event(2, 7, key))
    run.restart(handler(both)).add_record(event(3, 9)).add_watermark(at(100))
    closed = [seen[4] for seen in run.run().records("seen") if seen[1:3] == ("k", 0)]
    assert closed == [{"n": 3 if key == "k" else 2, "sum": 9}]


@pytest.mark.rule(28)
@pytest.mark.parametrize(
    ("migrated", "closed"),
    [({"n": 1, "more": 5}, [{"n": 1, "more": 5}]), ({"n": 1}, None), ("nonsense", None)],
    ids=["every aggregate", "one aggregate missing", "no accumulators"],
)
def test_a_window_migration_must_return_an_accumulator_for_every_aggregate(
    test_run: MakeRun, migrated: Any, closed: Any
) -> None:
    run = test_run(job(declared({"n": Sum()}), on_error="dead_letter")).add_record(event(1, 5))
    changed = declared({"n": Count(), "more": Count()}, version=1, migrate=lambda stored, version: migrated)
    run.restart(changed).add_watermark(at(100)).end_batch()
    if closed is None:
        with pytest.raises(CallbackError, match=r"StateDecodeError: state 'sums' of key 'k'.*which migrate= returned"):
            run.run()
    else:
        assert [seen[4] for seen in run.run().records("seen") if seen[2] == 0] == closed
