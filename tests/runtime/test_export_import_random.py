"""Random state is the same after `amadou state export` and `import --into`."""

import math
from datetime import datetime, timedelta, timezone
from decimal import Decimal
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from uuid import UUID

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.conformance.handlers import SECOND, CreatesWindow, at, event, job
from tests.runtime.exporting import (
    NAMES,
    SETTINGS,
    Color,
    Item,
    Marks,
    Pair,
    Rights,
    Stores,
    Typed,
    same_again,
    saved,
    shown,
)

from amadou import KeyedEvent, Subject
from amadou_plugins.aggregates import Max, Sum
from amadou_plugins.windows import CountWindow, SessionWindow, TumblingWindow, Window
from amadou_runtime import TestRun

UTC = st.just(timezone.utc)
FIRST, LAST = (time.replace(tzinfo=timezone.utc) for time in (datetime.min, datetime.max))
TIMES = st.one_of(st.datetimes(timezones=UTC), st.sampled_from([FIRST, LAST, at(0).astimezone(timezone(9 * SECOND))]))
SPANS = st.one_of(
    st.timedeltas(),
    st.sampled_from([timedelta.max, timedelta.min, timedelta(microseconds=1), timedelta(-123456789, microseconds=7)]),
)
TEXTS = st.one_of(st.text(max_size=3), st.sampled_from(["null", "1", "$map", "_type", "\u2028", "\0", "2025-01-01"]))
INTS = st.one_of(st.integers(-3, 3), st.sampled_from([2**63, -(2**70)]))
BYTES = st.binary(max_size=3)
DECIMALS = st.one_of(st.decimals(), st.sampled_from([Decimal("1.00"), Decimal("-0"), Decimal("1E+400")]))
FLOATS = st.one_of(st.floats(allow_nan=False), st.sampled_from([math.nan, math.inf, -0.0, 1.0, 5e-324]))
WITHOUT_NAN: dict[Any, st.SearchStrategy[Any]] = {
    str: TEXTS,
    int: INTS,
    bool: st.booleans(),
    bytes: BYTES,
    datetime: TIMES,
    timedelta: SPANS,
    UUID: st.uuids(),
    Color: st.sampled_from(Color),
    Marks: st.sampled_from([0, 1, 4, 5]).map(Marks),
    Rights: st.integers(0, 9).map(Rights),
    float: st.floats(allow_nan=False),
    Decimal: st.decimals(allow_nan=False),
    str | None: st.none() | TEXTS,
}
# Results are compared by `repr`, which has no fixed order for several values of a set.
HASHABLE = st.recursive(
    st.one_of(*WITHOUT_NAN.values()), lambda inside: st.tuples(inside) | st.frozensets(inside, max_size=1), max_leaves=3
)
LEAVES = st.one_of(st.none(), DECIMALS, FLOATS, *WITHOUT_NAN.values())
ITEMS = st.builds(
    Item,
    TEXTS,
    st.none() | DECIMALS,
    st.frozensets(TEXTS, max_size=1),
    st.dictionaries(TIMES, BYTES, max_size=2),
    st.sampled_from(Color) | INTS,
    LEAVES,
    st.lists(st.builds(Item, TEXTS, others=st.lists(st.builds(Item, TEXTS), max_size=1)), max_size=2),
)
ANYTHING = st.recursive(
    st.one_of(LEAVES, ITEMS, st.builds(Pair, SPANS, LEAVES)),
    lambda inside: st.one_of(
        st.lists(inside, max_size=2),
        st.tuples(inside, inside),
        st.dictionaries(TEXTS, inside, max_size=2),
        st.dictionaries(HASHABLE, inside, max_size=2),
        st.sets(HASHABLE, max_size=1),
    ),
    max_leaves=4,
)
VALUES: dict[Any, st.SearchStrategy[Any]] = {
    **WITHOUT_NAN,
    float: FLOATS,
    Decimal: DECIMALS,
    Any: ANYTHING,
    Item: ITEMS,
    Pair: st.builds(Pair, SPANS, ANYTHING),
    Typed: st.fixed_dictionaries({"at": TIMES}),
    list: st.lists(ANYTHING, max_size=2),
    dict: st.dictionaries(HASHABLE, ANYTHING, max_size=2),
    int | str | datetime: INTS | TEXTS | TIMES,
    Item | timedelta | None: st.one_of(ITEMS, SPANS, st.none()),
    list[Decimal | None]: st.lists(DECIMALS | st.none(), max_size=2),
    tuple[timedelta, ...]: st.lists(SPANS, max_size=2).map(tuple),
    tuple[Any, bytes]: st.tuples(ANYTHING, BYTES),
    dict[str, Item]: st.dictionaries(TEXTS, ITEMS, max_size=2),
    dict[datetime, list[float]]: st.dictionaries(TIMES, st.lists(FLOATS, max_size=2), max_size=2),
    frozenset[UUID]: st.frozensets(st.uuids(), max_size=1),
}
KEY_TYPES: dict[Any, st.SearchStrategy[Any]] = {
    **WITHOUT_NAN,
    Any: HASHABLE,
    tuple[int, Any]: st.tuples(INTS, HASHABLE),
    frozenset[str]: st.frozensets(TEXTS, max_size=1),
    Pair: st.builds(Pair, SPANS, TEXTS),
    int | timedelta: INTS | SPANS,
}
SUFFIXES = st.sampled_from(["jsonl", "parquet"])
SUBJECTS = st.lists(st.one_of(TEXTS, INTS, BYTES, st.tuples(TEXTS, INTS)), min_size=1, max_size=2, unique_by=repr)


@given(data=st.data(), more=st.sampled_from(SETTINGS), suffix=SUFFIXES)
def test_any_state_is_the_same_after_it_is_exported_and_imported(
    data: st.DataObject, more: dict[str, Any], suffix: str
) -> None:
    type_, key_type = data.draw(st.sampled_from([*VALUES])), data.draw(st.sampled_from([*KEY_TYPES]))
    values = VALUES[type_]
    entries = st.dictionaries(KEY_TYPES[key_type], values, max_size=2)
    stored = job(Stores(type_, key_type, **more))
    written = data.draw(st.datetimes(datetime(1950, 1, 1), timezones=UTC)) if "ttl" in more else None
    run = TestRun(stored)
    for key in data.draw(SUBJECTS):
        for name, value in zip(NAMES, (values, entries, st.lists(values, max_size=2)), strict=True):
            run.set_state(name, key, data.draw(value), written=written)
        for time, tag in data.draw(st.lists(st.tuples(TIMES, TEXTS), max_size=2)):
            run.set_timer(key, time, tag)
    with TemporaryDirectory() as directory, run:
        before = saved(run, Path(directory))
        after = same_again(before, suffix)
        assert shown(TestRun(stored, savepoint=after)) == shown(TestRun(stored, savepoint=before))


class HasWindows(CreatesWindow):
    """Adds events to windows of all kinds, two of which are created at run time, and sets timers."""

    sums = TumblingWindow(10 * SECOND, Sum())
    both = SessionWindow(5 * SECOND, {"sum": Sum(), "max": Max()})
    counts = CountWindow(3)
    brief = TumblingWindow(7 * SECOND, ttl=timedelta(hours=1))

    def window(self, name: str = "created") -> Any:
        return TumblingWindow((4 if name == "created" else 9) * SECOND, Sum(), name=name, on_close=self.closed)

    def on_recover_window(self, name: str, subject: Subject) -> Any:
        return self.window(name)

    def on_event(self, subject: Subject, event: KeyedEvent[Any]) -> None:
        for window in (self.sums, self.both, self.counts, self.brief, self.window(), self.window("rule 2")):
            window.add(subject, event)
        subject.set_timer(event.timestamp + 9 * SECOND, str(event.value % 2))

    @sums.on_close
    def sums_closed(self, subject: Subject, window: Window, value: Any) -> None:
        self.closed(subject, window, value)

    both.on_close(sums_closed)
    counts.on_close(sums_closed)
    brief.on_close(sums_closed)


EVENTS = st.lists(
    st.builds(event, st.integers(0, 40), st.integers(-9, 9), st.sampled_from(["a", "b", 1])), min_size=1, max_size=8
)


@settings(max_examples=15)
@given(before=EVENTS, after=EVENTS, suffix=SUFFIXES)
def test_timers_and_windows_are_the_same_after_they_are_exported_and_imported(
    before: list[KeyedEvent[int]], after: list[KeyedEvent[int]], suffix: str
) -> None:
    windowed = job(HasWindows(), watermark_delay=5 * SECOND)
    with TemporaryDirectory() as directory, TestRun(windowed) as run:
        first = saved(run.add_records(before), Path(directory))
        continued = []
        for savepoint in (first, same_again(first, suffix)):
            with TestRun(windowed, savepoint=savepoint) as again:
                result = again.add_records(after).run(flush=True)
                continued.append([result.records("seen"), result.dropped])
    assert continued[0] == continued[1]
