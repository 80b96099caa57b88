"""Advice in the error for state that a job cannot read: each case has the advice that helps, and no other."""

from datetime import timedelta
from typing import Any

import attrs
import pytest
from tests.conformance.handlers import Recorder

from amadou import Job, ListSpec, MapSpec, MemorySink, MemorySource, ValueSpec
from amadou_plugins.aggregates import Collect, Count, Max, Mean, RunningSpec, Sum
from amadou_plugins.joins import IntervalJoin
from amadou_plugins.windows import SessionWindow, TumblingWindow
from amadou_runtime.jobs.state_schema import described, state_problem, with_structures

HOUR = timedelta(hours=1)


@attrs.frozen
class Point:
    x: int


@attrs.frozen
class Placed:
    x: int
    y: int


@attrs.frozen
class Text:
    x: str
    y: int


def job_of(retired: Any = (), **specs: Any) -> Job:
    for name, spec in specs.items():
        spec.__set_name__(Recorder, name)
    handler = type("Stored", (Recorder,), {**specs, "__module__": __name__})()
    sources = {"events": MemorySource(), "b": MemorySource()}
    return Job("conformance", handler, sources, {"seen": MemorySink()}, retired=dict(retired))


def problem_of(before: Any, now: Any) -> str:
    after = job_of(state=now)
    problem = state_problem(after, with_structures({}, described(job_of(state=before))), described(after))
    assert problem is not None
    return problem


def window(value: Any, size: timedelta = HOUR, **more: Any) -> TumblingWindow:
    return TumblingWindow(size, value, on_close=print, **more)


def session(value: Any) -> SessionWindow:
    return SessionWindow(HOUR, value, on_close=print)


def joining(left: int) -> IntervalJoin:
    return IntervalJoin(left="events", right="b", lower=-left * HOUR, upper=HOUR, on_match=print)


def migrated(stored: Any, version: int) -> Any:
    return stored


CASES: dict[str, tuple[Any, Any, str]] = {
    "a new field": (
        ValueSpec(Point),
        ValueSpec(Placed),
        "Give the new field a default; or set version=1 and migrate= on state; or change state back",
    ),
    "a new field and another type": (
        ListSpec(Point),
        ListSpec(Text),
        "Set version=1 and migrate= on state; or change state back",
    ),
    "a new field, of a later version": (
        ValueSpec(Point, version=3, migrate=migrated),
        ValueSpec(Placed, version=3, migrate=migrated),
        "Give the new field a default; or set version=4 and migrate= on state; or change state back",
    ),
    "another type": (ValueSpec(int), ValueSpec(str), "Set version=1 and migrate= on state; or change state back"),
    "an older version": (
        ValueSpec(int, version=2, migrate=migrated),
        ValueSpec(int, version=1, migrate=migrated),
        "Set version=2 and migrate= on state again (newer code stored the state); or change state back",
    ),
    "another kind of spec": (
        ValueSpec(int),
        MapSpec(str, int, version=1, migrate=migrated),
        "Change state back; or give the new state a different name and drop the old state: "
        "Job(retired={'state': \"drop\"})",
    ),
    "other keys": (
        MapSpec(str, int),
        MapSpec(bytes, int),
        "Change state back; or give the new state a different name and drop the old state: "
        "Job(retired={'state': \"drop\"})",
    ),
    "another size": (
        window(Sum()),
        window(Sum(), 2 * HOUR, version=1, migrate=migrated),
        "Change state back; or give the new window a different name. Then either keep state with its old settings, "
        "without adding events to it, until it has no open state, or drop its open state: "
        "Job(retired={'state': \"drop\"})",
    ),
    "another kind of window": (
        window(Sum()),
        session(Sum()),
        "Change state back; or give the new window a different name. Then either keep state with its old settings, "
        "without adding events to it, until it has no open state, or drop its open state: "
        "Job(retired={'state': \"drop\"})",
    ),
    "parts stored in another form": (
        session({"n": Count()}),
        session({"n": Count(), "all": Collect()}),
        "Change state back; or give the new window a different name. Then either keep state with its old settings, "
        "without adding events to it, until it has no open state, or drop its open state: "
        "Job(retired={'state': \"drop\"})",
    ),
    "a join": (
        joining(1),
        joining(2),
        "Change state back; or give the new join a different name. Then either keep state with its old settings, "
        "without adding events to it, until it has no open state, or drop its open state: "
        "Job(retired={'state': \"drop\"})",
    ),
    "another aggregate": (window(Sum()), window(Max()), "Set version=1 and migrate= on state; or change state back"),
    "an aggregate of a mapping": (
        RunningSpec({"n": Count(), "of": Sum()}),
        RunningSpec({"n": Count(), "of": Mean()}),
        "Set version=1 and migrate= on state; or give the changed aggregate a different name in the mapping; or change "
        "state back",
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_the_error_for_changed_state_gives_only_advice_that_helps(case: str) -> None:
    before, now, hint = CASES[case]
    text = problem_of(before, now)
    assert text.endswith(f". {hint}"), text
    if "version=" not in hint:
        assert "migrate=" not in text


def test_the_error_for_a_changed_window_shows_the_call_that_makes_it() -> None:
    assert "state was TumblingWindow(size=1:00:00, {'n': Count(), 'of': {'a': Sum('ms')}}) and is now " in problem_of(
        window({"n": Count(), "of": {"a": Sum("ms")}}), window({"n": Mean()})
    )


def test_the_error_for_changed_state_gives_advice_for_each_spec() -> None:
    before, after = job_of(a=ValueSpec(int), b=window(Sum())), job_of(a=ValueSpec(str), b=window(Sum(), 2 * HOUR))
    problem = state_problem(after, with_structures({}, described(before)), described(after))
    assert problem is not None
    assert "a was ValueSpec int and is now ValueSpec str; b was TumblingWindow(size=1:00:00, Sum()) and" in problem
    assert ". Set version=1 and migrate= on a; or change a back. Change b back; or give the new window" in problem


KNOWN = with_structures({}, described(job_of(per_minute=window(Sum()), total=ValueSpec(int))))


@pytest.mark.parametrize("misspelt", ["per_minut", "perminute", "totals"])
def test_the_error_for_a_misspelt_retired_name_suggests_the_similar_name(misspelt: str) -> None:
    after = job_of({misspelt: "drop"})
    problem = state_problem(after, KNOWN, described(after))
    meant = "total" if misspelt == "totals" else "per_minute"
    assert problem == (
        f"retired contains {misspelt!r}, but no earlier run declared this name. The job 'conformance' no longer "
        f"declares the similar name {meant!r}: correct the name, or also add {meant!r} to retired"
    )


@pytest.mark.parametrize(
    ("retired", "known"),
    [
        ({"per_minute": "drop"}, {}),
        ({"per_minute": "drop", "total": "drop"}, KNOWN),
        ({"per_minute": "drop", "per_minut": "keep"}, KNOWN),
        ({"rule": "drop"}, KNOWN),
    ],
    ids=["at the first start", "known", "besides the one that it resembles", "of what was made at run time"],
)
def test_retired_names_that_resemble_no_removed_name_are_accepted(retired: Any, known: Any) -> None:
    after = job_of(retired)
    assert state_problem(after, known, described(after)) is None
