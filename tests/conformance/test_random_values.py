"""Random values in events, keys, state, timers and ports cause only amadou's own errors, and none with dead letters.

A restart between two batches changes nothing.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime, timedelta, timezone
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.conformance.handlers import START, job

from amadou import Handler, KeyedEvent, ListSpec, MapSpec, SinkSpec, Subject, ValueSpec, truncate
from amadou.errors import AmadouError
from amadou_runtime import TestRun

EAST, WEST = timezone(timedelta(hours=14)), timezone(-timedelta(hours=12))


@dataclass(frozen=True)
class Part:
    value: Any = None
    parts: "list[Part]" = field(default_factory=list)


class Unsupported:
    """Has no fields, so it cannot be stored."""

    def __repr__(self) -> str:
        return "Unsupported()"


TEXTS = st.one_of(st.text(max_size=3), st.sampled_from(["\ud800", "a\udc00", "\0"]))
TIMES = st.one_of(
    st.datetimes(timezones=st.sampled_from([timezone.utc, EAST, WEST, None])),
    st.sampled_from([datetime.min.replace(tzinfo=EAST), datetime.max.replace(tzinfo=WEST)]),
)
LEAVES = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(),
    st.decimals(allow_nan=False),
    st.binary(max_size=3),
    st.timedeltas(),
    st.sampled_from([2**64, -(2**63) - 1, -0.0, math.nan, Decimal("1.00"), Decimal("-0"), Unsupported(), len, 1j]),
    TEXTS,
    TIMES,
)
# Results are compared by `repr`, which has no fixed order for several values of a set.
HASHABLE = st.recursive(LEAVES, lambda inside: st.one_of(st.tuples(inside), st.frozensets(inside, max_size=1)))
VALUES = st.recursive(
    HASHABLE,
    lambda inside: st.one_of(
        st.lists(inside, max_size=2), st.dictionaries(HASHABLE, inside, max_size=2), st.builds(Part, inside)
    ),
    max_leaves=4,
)


class ActsOnAnything(Handler):
    anything = ValueSpec(Any)  # type: ignore[arg-type]
    by_any = MapSpec(Any, Any)  # type: ignore[arg-type]
    by_time = MapSpec(datetime, Any)  # type: ignore[arg-type]
    by_pair = MapSpec(tuple[Any, Decimal], Any)  # type: ignore[arg-type]
    items = ListSpec(Any)  # type: ignore[arg-type]
    texts = SinkSpec(str)
    results = SinkSpec(object)
    parts = SinkSpec(Part)

    def key_event(self, record: Any) -> Any:
        if isinstance(record, Exception):
            raise type(record)(*record.args)
        return record

    def on_event(self, subject: Subject, event: KeyedEvent[Any]) -> None:
        self.results.collect(subject, event.value)
        if isinstance(event.value, tuple) and event.value and event.value[0] in ACTIONS:
            ACTIONS[event.value[0]](self, subject, *event.value[1:])

    def on_timer_expired(self, subject: Subject, timestamp: datetime) -> None:
        self.results.collect(subject, [timestamp, subject.timer_tag])

    def fail(self, value: Any) -> None:
        raise ValueError(value)


ACTIONS: dict[str, Callable[[ActsOnAnything, Subject, Any, Any], Any]] = {
    "store": lambda handler, subject, one, _: setattr(handler.anything.state_for(subject), "value", one),
    "put": lambda handler, subject, one, two: handler.by_any.state_for(subject).update({one: two}),
    "put at": lambda handler, subject, one, two: handler.by_time.state_for(subject).update({one: two}),
    "put pair": lambda handler, subject, one, two: handler.by_pair.state_for(subject).update({(one, two): 1}),
    "append": lambda handler, subject, one, _: handler.items.state_for(subject).append(one),
    "text": lambda handler, subject, one, _: handler.texts.collect(subject, one),
    "part": lambda handler, subject, one, two: handler.parts.collect(subject, Part(one, [Part(two)])),
    "timer": lambda handler, subject, one, two: subject.set_timer(one, two),
    "untimer": lambda handler, subject, one, two: subject.delete_timer(one, two),
    "truncate": lambda handler, subject, one, _: truncate(one, timedelta(weeks=1)),
    "fail": lambda handler, subject, one, _: handler.fail(one),
    "collect": lambda handler, subject, _, __: handler.results.collect(
        subject,
        [
            handler.anything.state_for(subject).value,
            *(dict(spec.state_for(subject)) for spec in (handler.by_any, handler.by_time, handler.by_pair)),
            list(handler.items.state_for(subject)),
            subject.timers(),
        ],
    ),
}
ACTED = st.one_of(
    st.tuples(st.sampled_from(sorted(ACTIONS)), VALUES, VALUES),
    st.tuples(st.sampled_from(["timer", "put at", "truncate"]), TIMES, TEXTS),
    st.tuples(st.just("put pair"), VALUES, st.decimals()),
    st.just(("collect", None, None)),
)
NEAR = st.datetimes(START.replace(tzinfo=None), START.replace(tzinfo=None, day=2), timezones=st.just(timezone.utc))
RECORDS = st.one_of(
    st.builds(KeyedEvent, st.sampled_from(["a", "b"]), NEAR, ACTED),
    st.builds(KeyedEvent, HASHABLE, TIMES, VALUES),
    st.builds(ValueError, VALUES),
    VALUES,
)


@settings(max_examples=40, deadline=None)
@given(st.lists(st.lists(RECORDS, max_size=3), min_size=1, max_size=3))
@pytest.mark.rule(31)
def test_random_values_cause_only_amadou_errors_and_are_unchanged_by_restarts(batches: list[list[Any]]) -> None:
    with_dead_letters = {"on_error": "dead_letter", "watermark_delay": timedelta(hours=1)}
    assert results_of(batches, with_dead_letters, restart=False) == results_of(batches, with_dead_letters, restart=True)
    endings = []
    for restart in (False, True):
        try:
            endings.append(results_of(batches, {}, restart))
        except AmadouError as error:
            endings.append(str(error))
    assert endings[0] == endings[1]


def results_of(batches: list[list[Any]], settings: dict[str, Any], restart: bool) -> str:
    run = TestRun(job(ActsOnAnything(), **settings), engine="embedded", processing_time=START)
    for batch in batches:
        run.add_records(batch)
        if restart:
            run.restart()
        else:
            run.end_batch()
    result = run.run(flush=True)
    return repr((result.trace, result.dead_letters, [result.records(port) for port in ("texts", "results", "parts")]))
