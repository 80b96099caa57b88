"""Handlers that consist of a window, and errors in settings of windows."""

import json
import re
from datetime import datetime, timedelta, timezone
from typing import Any

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.plugins.windows import SECOND, at

from amadou import Handler, Job, KeyedEvent, MemorySink, MemorySource, Subject
from amadou._state.encoding import unpack
from amadou.errors import CallbackError, JobError, SpecError
from amadou.event_time import to_micros
from amadou_plugins.aggregates import Count, Mean, Sum
from amadou_plugins.windows import (
    CountWindow,
    HoppingWindow,
    RecordError,
    SessionWindow,
    SlidingWindow,
    TumblingWindow,
    Windowed,
    WindowResult,
    WindowSpec,
    windowed,
)
from amadou_runtime import TestRun
from amadou_runtime.core.keying import Keying


def run_of(handler: Handler) -> TestRun:
    return TestRun(Job("windowed", handler, sources={"in": MemorySource()}, sinks={"results": MemorySink()}))


def line(second: int, **fields: Any) -> bytes:
    return json.dumps({"timestamp": at(second).isoformat(), **fields}).encode()


def test_windowed_makes_a_handler_from_a_window() -> None:
    window = TumblingWindow(60 * SECOND, {"n": Count(), "mean": Mean("ms")})
    run = run_of(windowed(key="page", timestamp="timestamp", window=window))
    run.add_records([line(1, page="a", ms=1), line(2, page="a", ms=2), line(3, page="b", ms=7)]).add_watermark(at(60))
    assert run.run().records("results") == [
        WindowResult("a", at(0), at(60), {"n": 2, "mean": 1.5}, False),
        WindowResult("b", at(0), at(60), {"n": 1, "mean": 7.0}, False),
    ]


def test_several_handlers_can_have_the_same_window() -> None:
    window = TumblingWindow(60 * SECOND)
    for key in ("page", "user"):
        run = run_of(windowed(key=key, timestamp="timestamp", window=window)).add_record(line(1, page="a", user="b"))
        assert [result.value for result in run.run(flush=True).records("results")] == [1]


RECORD = {"page": "a", "timestamp": at(1).isoformat(), "ms": 5, "user": 7}


@pytest.mark.parametrize("is_text", [True, False])
def test_the_error_for_a_missing_field_shows_the_complete_record(is_text: bool) -> None:
    for value in (Mean("mss"), {"mean": Mean("ms"), "sum": Sum("mss")}):
        handler = windowed(key="page", timestamp="timestamp", window=TumblingWindow(60 * SECOND, value))
        with pytest.raises(CallbackError, match="the value's fields are page, timestamp, ms, user") as caught:
            run_of(handler).add_record(json.dumps(RECORD) if is_text else RECORD).run()
        assert str(RECORD) in str(caught.value)


def test_dead_letters_and_late_events_of_windowed_have_complete_records() -> None:
    handler = windowed(key="page", timestamp="timestamp", window=TumblingWindow(SECOND, Sum("ms")))
    sinks = {"results": MemorySink(), "late_events": MemorySink()}
    job = Job("w", handler, {"in": MemorySource()}, sinks, late_events="divert", on_error="dead_letter")
    wrong, late = {**RECORD, "ms": "fast"}, {**RECORD, "timestamp": at(0).isoformat()}
    result = TestRun(job).add_records([wrong, RECORD]).end_batch().add_record(late).run(flush=True)
    assert [letter.record.value for letter in result.dead_letters] == [wrong]
    assert [event.value for event in result.records("late_events")] == [late]
    assert [closed.value for closed in result.records("results")] == [5]


def test_a_subclass_that_overrides_on_event_gets_each_event() -> None:
    class Overriding(Windowed):
        def on_event(self, subject: Subject, event: KeyedEvent[Any]) -> None:
            super().on_event(subject, event)

    made = windowed(key="page", timestamp="timestamp", window=TumblingWindow(60 * SECOND))
    overriding = Overriding(made.window, "page", "timestamp", None, "results")
    assert (made.delegates_to, overriding.delegates_to) == ("window", None)


@attrs.frozen
class Visit:
    page: str
    user: int
    timestamp: Any
    ms: float


def test_keys_times_and_values_of_windowed_can_be_fields_or_functions() -> None:
    handler = windowed(
        key=("page", "user"),
        timestamp=lambda visit: visit.timestamp + SECOND,
        event_value="ms",
        window=TumblingWindow(60 * SECOND, Mean(), early=1),
    )
    run = run_of(handler).add_record(Visit("a", 1, at(59), 5.0)).add_watermark(at(120))
    assert run.run().records("results") == [
        WindowResult(("a", 1), at(60), at(120), 5.0, True),
        WindowResult(("a", 1), at(60), at(120), 5.0, False),
    ]


@pytest.mark.parametrize(
    ("record", "expected"),
    [
        (b"{", "the record cannot be read: it is not JSON"),
        ("[1]", "the record cannot be read: it is not a JSON object"),
        (line(1), "the key cannot be read: the record has no field 'page'"),
        (
            b'{"page": "a", "timestamp": "soon"}',
            "the timestamp cannot be read: use the ISO 8601 format, or convert it in",
        ),
        (b'{"page": "a", "timestamp": 5}', "5 is neither a datetime nor an ISO 8601 string"),
        (b'{"page": "a", "timestamp": "2025-01-01T00:00:00"}', "NaiveTimestampError"),
        (line(1, page=1.5), "KeyTypeError"),
    ],
)
def test_the_error_for_an_invalid_record_of_windowed_states_the_reason(record: Any, expected: str) -> None:
    handler = windowed(key="page", timestamp="timestamp", window=TumblingWindow(60 * SECOND))
    with pytest.raises(CallbackError) as caught:
        run_of(handler).add_record(record).run()
    assert expected in str(caught.value)


@pytest.mark.parametrize(
    ("make", "expected"),
    [
        (lambda: TumblingWindow(SECOND, storage="disk"), 'storage must be "persistent" or "memory", not \'disk\''),
        (lambda: TumblingWindow(0), "size must be a timedelta above zero, not 0"),  # type: ignore[arg-type]
        (lambda: TumblingWindow(timedelta(0)), "size must be a timedelta above zero"),
        (lambda: TumblingWindow(SECOND, offset=5), "offset must be a timedelta, not 5"),  # type: ignore[arg-type]
        (
            lambda: TumblingWindow(SECOND, allowed_lateness=-SECOND),
            "allowed_lateness must be a timedelta of zero or more",
        ),
        (lambda: TumblingWindow(SECOND, late="lose"), 'late must be "drop" or "divert"'),
        (lambda: TumblingWindow(SECOND, early=0), "early must be a timedelta, a positive integer or a function of an"),
        (lambda: TumblingWindow(SECOND, early=timedelta(0)), "early must be a timedelta above zero"),
        (lambda: TumblingWindow(SECOND, max_active=0), "max_active must be a positive integer, not 0"),
        (lambda: HoppingWindow(3600 * SECOND, timedelta(microseconds=7)), "would consist of 3,600,000,000 panes"),
        (lambda: SessionWindow(SECOND, max_duration=SECOND / 2), "max_duration must be at least gap"),
        (lambda: CountWindow(0), "size must be a positive integer (number of events), not 0"),
        (lambda: CountWindow(2, hop=1.5), "hop must be a positive integer (number of events), not 1.5"),  # type: ignore[arg-type]
        (lambda: CountWindow(2, early=SECOND), "early of a CountWindow must be a number of events or a function of"),
        (lambda: CountWindow(4, 2), "value must be an aggregate, not 2: pass hop= by keyword"),
        (lambda: TumblingWindow(SECOND, SECOND / 2), "500000): pass offset= by keyword"),
        (lambda: HoppingWindow(SECOND, SECOND, SECOND / 2), "500000): pass offset= by keyword"),
        (lambda: SessionWindow(SECOND, 2 * SECOND), "seconds=2): pass max_duration= by keyword"),
        (
            lambda: windowed(key="k", timestamp="t", window=Count()),  # type: ignore[arg-type]
            "window must be a window, such as TumblingWindow(timedelta(minutes=1)), not Count()",
        ),
        (
            lambda: windowed(key=5, timestamp="t", window=CountWindow(2)),  # type: ignore[arg-type]
            "key must be a field name, a list of field names, or",
        ),
    ],
)
def test_the_error_for_an_invalid_setting_of_a_window_states_the_reason(make: Any, expected: str) -> None:
    with pytest.raises(SpecError) as caught:
        make()
    assert expected in str(caught.value)


def test_a_window_without_a_function_for_results_is_an_error_of_the_job() -> None:
    class Forgetful(Handler):
        minute = TumblingWindow(60 * SECOND)

        def key_event(self, record: Any) -> Any:
            return record

        def on_event(self, subject: Any, event: Any) -> None:
            self.minute.add(subject, event)

    with pytest.raises(
        JobError, match=r"no function receives the window's results: mark a method with @minute.on_close"
    ):
        Job("forgetful", Forgetful(), sources={"in": MemorySource()}, sinks={})


@pytest.mark.parametrize(
    ("window", "expected"),
    [
        (TumblingWindow(SECOND, Mean("ms")), "TumblingWindow(size=0:00:01, Mean('ms'))"),
        (
            HoppingWindow(2 * SECOND, SECOND, offset=SECOND / 2, allowed_lateness=SECOND),
            "HoppingWindow(size=0:00:02, hop=0:00:01, offset=0:00:00.500000, allowed_lateness=0:00:01, Count())",
        ),
        (SlidingWindow(SECOND), "SlidingWindow(size=0:00:01, Count())"),
        (SessionWindow(SECOND, max_duration=3 * SECOND), "SessionWindow(gap=0:00:01, max_duration=0:00:03, Count())"),
        (CountWindow(3, hop=2), "CountWindow(size=3, hop=2, Count())"),
    ],
)
def test_the_repr_of_a_window_shows_its_settings(window: WindowSpec, expected: str) -> None:
    assert repr(window) == window.shown_type() == expected


def keyed(handler: Windowed, records: list[Any]) -> Any:
    """Return the keyed events of records, or the error."""
    job = Job("windows", handler, sources={"in": MemorySource()}, sinks={"results": MemorySink()}, max_ahead=SECOND)
    try:
        packed = Keying(job, "in", handler.key_event, 4).pack(records, to_micros(at(100)))
    except CallbackError as error:
        return str(error)
    events = {group: [list(map(unpack, unpack(columns)))] for group, columns in packed.events.items()}
    return events, packed.newest, packed.letters


fields = st.fixed_dictionaries(
    {},
    optional={
        "page": st.sampled_from(["a", "b", 1, 2**70, None, 1.5, True, ["a"]]) | st.text(max_size=3),
        "user": st.integers(0, 2),
        "timestamp": st.sampled_from(
            [at(1).isoformat(), "1969-12-31T23:59:59.5Z", "1970-01-01T00:00:05+02:00", at(500).isoformat(), "soon", 5]
        ),
        "ms": st.sampled_from([1, 0.5, None, "x"]),
    },
)
good = st.fixed_dictionaries(
    {
        "page": st.text(max_size=3),
        "user": st.integers(0, 2),
        "timestamp": st.sampled_from([at(1).isoformat(), "1970-01-01T00:00:05+02:00"]),
    },
    optional={"ms": st.sampled_from([1, 0.5, None])},
)


@given(
    st.lists(good, max_size=6),
    st.lists(good.map(json.dumps) | fields.map(json.dumps) | fields | st.sampled_from(["{", "[1]", ""]), max_size=2),
    st.sampled_from(["page", ("page", "user")]),
    st.sampled_from(["ms", None]),
    st.sampled_from([Count(), Mean("ms"), Count(lambda event: event.value)]),
)
def test_keying_records_at_once_gives_the_events_of_keying_them_one_by_one(
    first: Any, others: Any, key: Any, value: Any, aggregate: Any
) -> None:
    class OneByOne(Windowed):
        def key_event(self, record: Any) -> KeyedEvent[Any]:
            return super().key_event(record)

    records = [json.dumps(record).encode() for record in first] + others
    window = TumblingWindow(60 * SECOND, aggregate, name="window", on_close=print)
    at_once = Windowed(window, key, "timestamp", value, "results")
    if records and not others and value is None:
        assert at_once.key_batch(records) is not None
    expected = keyed(OneByOne(window, key, "timestamp", value, "results"), records)
    assert keyed(at_once, records) == (
        expected if type(expected) is tuple else expected.replace("OneByOne", "Windowed")
    )


def test_key_event_of_a_subclass_and_functions_are_called_for_each_record() -> None:
    class Choosy(Windowed):
        def key_event(self, record: Any) -> Any:
            return None if record["page"] == "test" else super().key_event(record)

    window = TumblingWindow(60 * SECOND, name="window", on_close=print)
    records = [{"page": page, "timestamp": at(1)} for page in ("a", "test")]
    assert keyed_keys(Choosy(window, "page", "timestamp", None, "results"), records) == ["a"]
    reading = Windowed(window, lambda record: record["page"], "timestamp", lambda record: record.pop("page"), "results")
    assert reading.key_batch(records) is None
    assert keyed_keys(reading, records) == ["a", "test"]


def keyed_keys(handler: Windowed, records: list[Any]) -> list[Any]:
    groups, _, _ = keyed(handler, records)
    return sorted(key for ((keys, _, _),) in groups.values() for key in keys)


def test_an_empty_mapping_of_aggregates_is_refused() -> None:
    for value in ({}, {"n": Count(), "more": {}}):
        with pytest.raises(TypeError, match="an empty mapping"):
            TumblingWindow(SECOND, value)


def test_a_filter_lets_only_some_records_into_the_window_and_the_others_advance_the_watermark() -> None:
    window = TumblingWindow(timedelta(seconds=10))
    handler = windowed(key="k", timestamp="t", window=window, filter=lambda record: record["ok"])
    run = TestRun(Job("filtered", handler, {"in": MemorySource()}, {"results": MemorySink()}))
    for second, ok in ((1, True), (2, False), (25, False)):
        run.add_record({"k": "a", "t": f"2025-01-01T00:00:{second:02}Z", "ok": ok}).end_batch()
    result = run.run()
    assert [(record.start.second, record.value) for record in result.records("results")] == [(0, 1)]
    assert (len(result.events()), result.watermark and result.watermark.second) == (1, 25)


@pytest.mark.parametrize("timestamp", ["t", lambda record: datetime.fromisoformat(record["t"])])
def test_records_that_a_filter_leaves_out_need_no_time(timestamp: Any) -> None:
    window = TumblingWindow(timedelta(seconds=10))
    handler = windowed(key="k", timestamp=timestamp, window=window, filter=lambda record: "k" in record)
    run = TestRun(Job("filtered", handler, {"in": MemorySource()}, {"results": MemorySink()}))
    run.add_records([{"kind": "heartbeat"}, {"kind": "heartbeat", "t": "soon"}])
    run.add_record({"k": "a", "t": "2025-01-01T00:00:01+00:00"})
    assert [record.value for record in run.run(flush=True).records("results")] == [1]


def test_a_filter_must_be_a_function() -> None:
    with pytest.raises(SpecError, match="filter must be a function of the record, not 'ok'"):
        windowed(key="k", timestamp="t", window=TumblingWindow(timedelta(seconds=10)), filter="ok")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("2025-01-01T24:00:00Z", datetime(2025, 1, 2, tzinfo=timezone.utc)),
        ("2024-12-31T24:00:00.000+00:00", datetime(2025, 1, 1, tzinfo=timezone.utc)),
        ("2025-01-01t00:00:00z", datetime(2025, 1, 1, tzinfo=timezone.utc)),
        ("20250101T2400Z", datetime(2025, 1, 2, tzinfo=timezone.utc)),
        ("2025-01-01 24:00-01:00", datetime(2025, 1, 2, 1, tzinfo=timezone.utc)),
    ],
)
@pytest.mark.parametrize("in_columns", [False, True])
def test_times_in_other_forms_of_iso_8601_are_read(text: str, expected: datetime, in_columns: bool) -> None:
    handler = windowed(key="k", timestamp="t", window=TumblingWindow(timedelta(seconds=10)))
    record = {"k": "a", "t": text}
    assert handler.key_event(record).timestamp == expected
    if in_columns:
        columns = handler.key_batch([record, {"k": "a", "t": "2025-01-01T00:00:00Z"}])
        assert columns is not None
        assert columns[1][0] == expected


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("2016-12-31T23:59:60Z", "second 60 is a leap second: use 59, or 0 of the next minute"),
        ("2025-01-01T24:00:01Z", "use the ISO 8601 format, or convert it in a timestamp= function"),
        ("9999-12-31T24:00:00Z", "use the ISO 8601 format"),
        ("yesterday", "use the ISO 8601 format"),
    ],
)
def test_the_error_of_a_time_that_cannot_be_read_says_what_to_do(text: str, problem: str) -> None:
    handler = windowed(key="k", timestamp="t", window=TumblingWindow(timedelta(seconds=10)))
    with pytest.raises(RecordError, match=re.escape(problem)):
        handler.key_event({"k": "a", "t": text})
