"""Errors of a test run on both engines for results that differ."""

from collections.abc import Mapping
from typing import Any

import attrs
import pytest
from tests.conformance.handlers import Recorder, at, job

from amadou.errors import AmadouError, CallbackError, EngineDifferenceError, RunError
from amadou_runtime.core.dead_letter_limit import LetterCount
from amadou_runtime.core.key_group import KeyGroup
from amadou_runtime.store.packed_group import PackedGroup, packed_group
from amadou_runtime.testing.engines import BothEngines, ScriptedBatch, ScriptedResult
from amadou_runtime.testing.trace import RawEntry

NOTHING = ScriptedResult([], {}, 0, [], {}, {}, None, LetterCount())
BATCH = {"": ScriptedBatch("run/0", {}, None, 0)}


@attrs.define
class FixedOutcome:
    """Returns or raises the same outcome for each batch; see `Player`."""

    outcome: ScriptedResult | AmadouError

    def process(self, batches: Mapping[str, ScriptedBatch]) -> dict[str, ScriptedResult]:
        if isinstance(self.outcome, AmadouError):
            raise self.outcome
        return dict.fromkeys(batches, self.outcome)

    def state(self, stage: str) -> bytes | None:
        return self.outcome.state if isinstance(self.outcome, ScriptedResult) else None

    def restart(self, job: Any) -> None: ...

    def failed(self) -> dict[str, list[RawEntry]]:
        return {}

    def close(self) -> None: ...


def with_timer() -> bytes | None:
    group = KeyGroup(PackedGroup(None))
    group.timers.add("a", 1, "")
    return packed_group(group)


def both(embedded: ScriptedResult | AmadouError, spark: ScriptedResult | AmadouError) -> BothEngines:
    return BothEngines(job(Recorder(), "events"), FixedOutcome(embedded), FixedOutcome(spark))


def difference_of(embedded: ScriptedResult | AmadouError, spark: ScriptedResult | AmadouError) -> EngineDifferenceError:
    with pytest.raises(EngineDifferenceError) as caught:
        both(embedded, spark).process(BATCH)
    return caught.value


def entry(number: int, *outputs: tuple[str, Any]) -> RawEntry:
    return RawEntry("on_event", f"key {number}", at(number), None, "events", number, outputs=list(outputs))


def traced(*entries: RawEntry) -> ScriptedResult:
    return attrs.evolve(NOTHING, trace=list(entries))


def test_the_error_shows_the_first_entry_that_differs_and_the_numbers_of_entries() -> None:
    entries = [entry(number, ("seen", number)) for number in range(5_000)]
    spark = [*entries[:3_000], entry(3_000, ("seen", -1)), *entries[3_001:4_000]]
    assert str(difference_of(traced(*entries), traced(*spark))).splitlines() == [
        "the engines differ in the trace of a batch, first in entry 3000: on_event of 'key 3000' (entries: 5,000 on "
        "the embedded engine, 4,000 on Spark):",
        "  embedded  outputs=[('seen', 3000)]",
        "  spark     outputs=[('seen', -1)]",
        "Check that the handler is deterministic: it must not read the clock, use randomness or depend on set order",
    ]


def test_the_error_shows_an_entry_that_one_engine_lacks() -> None:
    error = difference_of(traced(entry(0)), traced(entry(0), entry(1)))
    assert "first in entry 1 (entries: 1 on the embedded engine, 2 on Spark)" in str(error)
    assert error.embedded == "nothing"
    assert error.spark.startswith("RawEntry(callback='on_event', key='key 1'")


def test_the_error_cuts_long_values_around_the_difference() -> None:
    long = "same" * 10_000
    error = difference_of(traced(entry(0, ("seen", f"{long}A{long}"))), traced(entry(0, ("seen", f"{long}B{long}"))))
    assert len(str(error)) < 1_000
    assert "sameAsame" in error.embedded
    assert "sameBsame" in error.spark


def test_the_error_shows_differences_of_counts_and_state() -> None:
    error = difference_of(
        attrs.evolve(NOTHING, counts={"a": 1, "b": 2}), attrs.evolve(NOTHING, counts={"a": 1, "b": 3})
    )
    assert (error.what, error.embedded, error.spark) == ("counts", "2", "3")
    assert "first in entry 'b' (entries: 2 on the embedded engine, 2 on Spark)" in str(error)
    error = difference_of(attrs.evolve(NOTHING, state=with_timer()), attrs.evolve(NOTHING, state=None))
    assert (error.what, error.spark) == ("state", "None")


def test_the_error_shows_a_failure_of_one_engine_alone() -> None:
    error = difference_of(NOTHING, RunError("no Java"))
    assert (error.what, error.embedded, error.spark) == ("outcome", "no error", "RunError('no Java')")


def test_a_batch_that_fails_on_both_engines_raises_the_error_of_the_embedded_engine() -> None:
    failed = CallbackError(handler="H", callback="on_event", error="E", user_traceback="")
    with pytest.raises(CallbackError):
        both(failed, RunError("other words")).process(BATCH)


def test_nan_does_not_differ_from_nan() -> None:
    results = [traced(entry(0, ("seen", float("nan"))), entry(1)) for _ in range(2)]
    assert both(*results).process(BATCH)[""] is results[0]
    error = difference_of(*(traced(*trace.trace, entry(number)) for number, trace in enumerate(results)))
    assert "entry 2: on_event" in str(error)
