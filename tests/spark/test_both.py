"""Test runs on both engines."""

import math
from collections.abc import Sequence
from typing import Any

import pytest
from tests.conformance.handlers import Recorder, at, event, job

from amadou import KeyedEvent, Lookup, SinkSpec, Subject, ValueSpec
from amadou.errors import EngineDifferenceError
from amadou_runtime import TestRun
from amadou_runtime.testing import trace

pytestmark = pytest.mark.spark


class Measuring(Recorder):
    """Stores and collects a number."""

    last = ValueSpec(float, 0.0)
    numbers = SinkSpec(list[float])

    def on_event(self, subject: Subject, event: KeyedEvent[Any]) -> None:
        if event.value is None:
            raise ValueError("nothing measured")
        self.last.state_for(subject).value = event.value
        self.numbers.collect(subject, [event.value])


class Elsewhere(Measuring):
    """The same, but it collects other numbers on Spark."""

    def on_event(self, subject: Subject, event: KeyedEvent[Any]) -> None:
        import sys

        is_worker = "pyspark.worker" in sys.modules
        super().on_event(subject, event._replace(value=1.0) if is_worker else event)


@pytest.mark.qualify  # the next test compares nan as well
def test_nan_and_infinity_are_the_same_on_both_engines(spark: Any) -> None:
    run = TestRun(job(Measuring(), on_error="dead_letter"), engine="both", spark=spark)
    run.add_records([event(0, math.nan), event(1, math.inf), event(2), event(3, math.nan)]).add_watermark(at(4))
    ((nan,), (infinite,), (again,)) = run.run().records("numbers")
    assert (math.isnan(nan), infinite, math.isnan(again)) == (True, math.inf, True)
    run.close()


def test_engines_differ_if_only_one_of_them_has_nan(spark: Any) -> None:
    run = TestRun(job(Elsewhere()), engine="both", spark=spark).add_record(event(0, math.nan))
    with pytest.raises(EngineDifferenceError, match="differ in the trace"):
        run.run()
    run.close()


def test_engines_that_report_the_state_of_more_or_fewer_callbacks_do_not_differ(
    spark: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trace, "DETAILED", 1)  # in this process alone, where the embedded engine is
    run = TestRun(job(Measuring()), engine="both", spark=spark)
    result = run.add_records([event(0, 1.0), event(1, 2.0)]).run()
    assert [entry.before is None for entry in result.trace] == [False, True]
    run.close()


class Silent(Recorder):
    def on_event(self, subject: Subject, event: KeyedEvent[Any]) -> None:
        if event.value == "fail":
            raise ValueError("no")


def test_callbacks_that_collect_nothing_do_not_differ(spark: Any) -> None:
    run = TestRun(job(Silent(), on_error="dead_letter"), engine="both", spark=spark)
    result = run.add_records([event(0), event(1, "fail"), event(2)]).run()
    assert [len(entry.outputs) for entry in result.trace] == [0, 1, 0]
    run.close()


def levels_of(names: Sequence[str]) -> dict[str, int]:
    return {name: len(name) for name in names}


class Cached(Recorder):
    """Each of Spark's workers has a cache of its own."""

    levels = Lookup(levels_of, key=lambda event: event.value, ttl=3600)

    def on_event(self, subject: Subject, event: KeyedEvent[Any]) -> None:
        self.report("event", subject, event.timestamp, self.levels.get(subject, event.value))


@pytest.mark.qualify  # conformance/test_lookups.py has lookups on both engines
def test_caches_of_lookups_do_not_make_a_difference(spark: Any) -> None:
    run = TestRun(job(Cached()), engine="both", spark=spark)
    for second in range(6):
        run.add_record(event(second, "abc", f"k{second}")).end_batch()
    result = run.run()
    assert [seen[4] for seen in result.records("seen")] == [3] * 6
    assert result.counters == {"levels.fetched": 1, "levels.cached": 5}
    run.close()
