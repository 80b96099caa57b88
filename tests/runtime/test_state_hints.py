"""What a run says to do about state that its job cannot read: what helps in that very case, and nothing else."""

from datetime import timedelta
from typing import Any

import attrs
import pytest
from tests.conformance.handlers import Recorder

from amadou import Job, ListSpec, MapSpec, MemorySink, MemorySource, ValueSpec
from amadou_plugins.aggregates import Collect, Count, Max, Mean, RunningSpec, Sum
from amadou_plugins.joins import IntervalJoin
from amadou_plugins.windows import SessionWindow, TumblingWindow
from amadou_runtime.core.state_schema import described, state_problem, with_structures

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
    handler = type("Kept", (Recorder,), {**specs, "__module__": __name__})()
    sources = {"events": MemorySource(), "b": MemorySource()}
    return Job("conformance", handler, sources, {"seen": MemorySink()}, retired=dict(retired))


def told(before: Any, now: Any) -> str:
    after = job_of(kept=now)
    problem = state_problem(after, with_structures({}, described(job_of(kept=before))), described(after))
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
        "Give the new field a default; or set version=1 and migrate= on kept; or change kept back",
    ),
    "a new field and another type": (
        ListSpec(Point),
        ListSpec(Text),
        "Set version=1 and migrate= on kept; or change kept back",
    ),
    "a new field, of a later version": (
        ValueSpec(Point, version=3, migrate=migrated),
        ValueSpec(Placed, version=3, migrate=migrated),
        "Give the new field a default; or set version=4 and migrate= on kept; or change kept back",
    ),
    "another type": (ValueSpec(int), ValueSpec(str), "Set version=1 and migrate= on kept; or change kept back"),
    "an older version": (
        ValueSpec(int, version=2, migrate=migrated),
        ValueSpec(int, version=1, migrate=migrated),
        "Set version=2 and migrate= on kept again (newer code stored the state); or change kept back",
    ),
    "another kind of spec": (
        ValueSpec(int),
        MapSpec(str, int, version=1, migrate=migrated),
        "Change kept back; or give the new state a different name and drop the old state: "
        "Job(retired={'kept': \"drop\"})",
    ),
    "other keys": (
        MapSpec(str, int),
        MapSpec(bytes, int),
        "Change kept back; or give the new state a different name and drop the old state: "
        "Job(retired={'kept': \"drop\"})",
    ),
    "another size": (
        window(Sum()),
        window(Sum(), 2 * HOUR, version=1, migrate=migrated),
        "Change kept back; or give the new window a different name. Then either keep kept with its old settings, "
        "without adding events to it, until it has no open state, or drop its open state: "
        "Job(retired={'kept': \"drop\"})",
    ),
    "another kind of window": (
        window(Sum()),
        session(Sum()),
        "Change kept back; or give the new window a different name. Then either keep kept with its old settings, "
        "without adding events to it, until it has no open state, or drop its open state: "
        "Job(retired={'kept': \"drop\"})",
    ),
    "parts kept otherwise": (
        session({"n": Count()}),
        session({"n": Count(), "all": Collect()}),
        "Change kept back; or give the new window a different name. Then either keep kept with its old settings, "
        "without adding events to it, until it has no open state, or drop its open state: "
        "Job(retired={'kept': \"drop\"})",
    ),
    "a join": (
        joining(1),
        joining(2),
        "Change kept back; or give the new join a different name. Then either keep kept with its old settings, "
        "without adding events to it, until it has no open state, or drop its open state: "
        "Job(retired={'kept': \"drop\"})",
    ),
    "another aggregate": (window(Sum()), window(Max()), "Set version=1 and migrate= on kept; or change kept back"),
    "an aggregate of a mapping": (
        RunningSpec({"n": Count(), "of": Sum()}),
        RunningSpec({"n": Count(), "of": Mean()}),
        "Set version=1 and migrate= on kept; or give the changed aggregate a different name in the mapping; or change "
        "kept back",
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_a_hint_names_what_helps_in_its_case_alone(case: str) -> None:
    before, now, hint = CASES[case]
    text = told(before, now)
    assert text.endswith(f". {hint}"), text
    if "version=" not in hint:
        assert "migrate=" not in text


def test_a_window_is_shown_as_it_is_written() -> None:
    assert "kept was TumblingWindow(size=1:00:00, {'n': Count(), 'of': {'a': Sum('ms')}}) and is now " in told(
        window({"n": Count(), "of": {"a": Sum("ms")}}), window({"n": Mean()})
    )


def test_each_spec_that_does_not_fit_has_a_hint() -> None:
    before, after = job_of(a=ValueSpec(int), b=window(Sum())), job_of(a=ValueSpec(str), b=window(Sum(), 2 * HOUR))
    problem = state_problem(after, with_structures({}, described(before)), described(after))
    assert problem is not None
    assert "a was ValueSpec int and is now ValueSpec str; b was TumblingWindow(size=1:00:00, Sum()) and" in problem
    assert ". Set version=1 and migrate= on a; or change a back. Change b back; or give the new window" in problem


KNOWN = with_structures({}, described(job_of(per_minute=window(Sum()), total=ValueSpec(int))))


@pytest.mark.parametrize("misspelt", ["per_minut", "perminute", "totals"])
def test_a_retired_name_that_is_misspelt_is_told(misspelt: str) -> None:
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
def test_other_retired_names_are_left_alone(retired: Any, known: Any) -> None:
    after = job_of(retired)
    assert state_problem(after, known, described(after)) is None
