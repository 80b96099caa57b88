"""A `key_event` that changes its record, and records whose events cannot be encoded."""

from collections.abc import Callable, Iterator
from threading import Lock
from typing import Any

import attrs
import pytest
from tests.conformance.handlers import SECOND, at

from amadou import DeadLetter, Filtered, Handler, Job, KeyedEvent, MemorySink, MemorySource, SinkSpec, Subject
from amadou.components import VectorizedHandler
from amadou.errors import CallbackError
from amadou_plugins.aggregates import Collect
from amadou_plugins.windows import TumblingWindow, Window
from amadou_runtime import TestRun, run

UNENCODABLE = "\ud800"
"""A text that msgpack cannot encode."""


class Popping(Handler):
    """Takes the fields of events out of records, and collects each event's value. Fails if a record's `v` is `fail`."""

    out = SinkSpec(object)

    def key_event(self, record: Any) -> Any:
        key, time = record.pop("k"), record.pop("t")
        record.setdefault("parts", []).append("changed")
        if record["v"] == "fail":
            raise ValueError("no such record")
        return KeyedEvent(key, at(time), record.pop("v"))

    def on_event(self, subject: Subject, event: KeyedEvent[Any]) -> None:
        self.out.collect(subject, event.value)


def record(time: float, value: Any, **more: Any) -> dict[str, Any]:
    return {"k": "a", "t": time, "v": value, **more}


def job(handler: Handler, *records: Any, **settings: Any) -> Job:
    return Job("records", handler, {"in": MemorySource(records)}, {"out": MemorySink()}, **settings)


def test_a_test_run_does_not_change_the_records_of_a_test() -> None:
    given = record(1, "first", parts=[{"n": 1}])
    test_run = TestRun(job(Popping())).add_record(given).add_record(given)
    assert test_run.run().records("out") == ["first", "first"]
    assert given == record(1, "first", parts=[{"n": 1}])


@pytest.mark.parametrize("after", [None, 0, 1])
@pytest.mark.rule(18)
def test_a_batch_after_a_crash_has_the_records_that_were_added(after: int | None) -> None:
    test_run = TestRun(job(Popping())).add_records([record(1, "first"), record(2, "second")]).crash(after)
    assert test_run.run().records("out") == ["first", "second"]


@attrs.define
class Order:
    items: list[str]


@pytest.mark.parametrize(
    ("given", "change"),
    [
        (["a", "b"], lambda order: order.pop()),
        (Order(["a", "b"]), lambda order: order.items.pop()),
        (({"items": ["a", "b"]}, 1), lambda order: order[0]["items"].pop()),
    ],
    ids=["list", "object", "tuple"],
)
def test_records_of_other_types_are_not_changed_either(given: Any, change: Callable[[Any], str]) -> None:
    class Changing(Popping):
        def key_event(self, record: Any) -> Any:
            return KeyedEvent("a", at(1), change(record))

    before = repr(given)
    assert TestRun(job(Changing())).add_record(given).crash().add_record(given).run().records("out") == ["b", "b"]
    assert repr(given) == before


def test_a_record_that_cannot_be_copied_reaches_key_event_itself() -> None:
    given = {"lock": Lock()}

    class Locking(Popping):
        def key_event(self, record: Any) -> Any:
            return KeyedEvent("a", at(1), record["lock"] is given["lock"])

    assert TestRun(job(Locking())).add_record(given).run().records("out") == [True]
    letters = TestRun(job(Locking(), on_error="dead_letter")).add_record(given).run()
    assert (letters.records("out"), letters.dead_letters) == ([True], [])


def test_the_error_of_a_test_run_has_the_record_that_was_added() -> None:
    with pytest.raises(CallbackError, match="ValueError: no such record") as caught:
        TestRun(job(Popping())).add_record(record(1, "fail")).run()
    assert caught.value.record == repr(record(1, "fail"))


def in_test_run(handler: Handler, records: list[Any]) -> tuple[list[Any], list[DeadLetter]]:
    result = TestRun(job(handler, on_error="dead_letter")).add_records(records).run()
    return result.records("out"), result.dead_letters


def in_embedded_run(handler: Handler, records: list[Any]) -> tuple[list[Any], list[DeadLetter]]:
    out, letters = MemorySink(), MemorySink()
    sinks = {"out": out, "dead_letters": letters}
    run(Job("records", handler, {"in": MemorySource(records)}, sinks, on_error="dead_letter"), engine="embedded")
    return out.records, letters.records


processed_in = pytest.mark.parametrize("process", [in_test_run, in_embedded_run], ids=["test run", "embedded run"])
Process = Callable[[Handler, list[Any]], tuple[list[Any], list[DeadLetter]]]


@processed_in
@pytest.mark.rule(19)
def test_the_dead_letter_of_key_event_has_the_complete_record(process: Process) -> None:
    records = [record(1, "first"), record(2, "fail", parts=[{"n": 1}]), {"k": "a"}, record(4, "last")]
    collected, letters = process(Popping(), records)
    assert collected == ["first", "last"]
    assert [letter.record for letter in letters] == [record(2, "fail", parts=[{"n": 1}]), {"k": "a"}]
    assert [letter.error for letter in letters] == ["ValueError: no such record", "KeyError: 't'"]


@processed_in
@pytest.mark.rule(19)
def test_the_dead_letter_of_a_key_event_that_yields_events_has_the_complete_record(process: Process) -> None:
    class Dividing(Popping):
        def key_event(self, record: Any) -> Iterator[KeyedEvent[Any]]:
            while record:
                value = record.pop(0)
                if value == "fail":
                    raise ValueError("no such part")
                yield KeyedEvent("a", at(1), value)

    collected, letters = process(Dividing(), [["a", "b"], ["c", "fail", "d"], ["e"]])
    assert collected == ["a", "b", "e"]
    assert [letter.record for letter in letters] == [["c", "fail", "d"]]


def counting(calls: list[Any]) -> Handler:
    """Return a handler that adds the `v` of each record to a list. `key_event` returns several events, none or
    `Filtered` if the `v` is a list, `none` or `filtered`.
    """

    class Counting(Popping):
        def key_event(self, record: dict[str, Any]) -> Any:
            calls.append(record["v"])
            if record["v"] == "none":
                return None
            if record["v"] == "filtered":
                return Filtered(at(record["t"]))
            event = super().key_event(record)
            return [event._replace(value=part) for part in event.value] if isinstance(event.value, list) else event

    return Counting()


@processed_in
@pytest.mark.parametrize(
    ("values", "collected", "failed"),
    [
        (["a", UNENCODABLE, "b"], ["a", "b"], [UNENCODABLE]),
        ([UNENCODABLE, "a", "fail"], ["a"], [UNENCODABLE, "fail"]),
        (["fail", UNENCODABLE, "a", "fail", UNENCODABLE], ["a"], ["fail", UNENCODABLE, "fail", UNENCODABLE]),
        (["none", UNENCODABLE, "filtered", "fail", "a"], ["a"], [UNENCODABLE, "fail"]),
        (["a", ["b", UNENCODABLE, "c"], ["d", "e"], "fail"], ["a", "d", "e"], [["b", UNENCODABLE, "c"], "fail"]),
        ([UNENCODABLE, UNENCODABLE], [], [UNENCODABLE, UNENCODABLE]),
    ],
    ids=["alone", "before others", "mixed", "with records without events", "among several events", "only"],
)
@pytest.mark.rule(19)
def test_only_a_record_with_an_event_that_cannot_be_encoded_is_a_dead_letter(
    process: Process, values: list[Any], collected: list[str], failed: list[Any]
) -> None:
    calls: list[Any] = []
    records = [record(second, value) for second, value in enumerate(values)]
    found, letters = process(counting(calls), records)
    assert found == collected
    assert calls == values
    assert [letter.callback for letter in letters] == ["key_event"] * len(failed)
    assert all(repr(value) in str(letter.record) for value, letter in zip(failed, letters, strict=True))


@processed_in
@pytest.mark.rule(19)
def test_the_dead_letter_of_an_event_that_cannot_be_encoded_has_the_complete_record(process: Process) -> None:
    class Making(Popping):
        def key_event(self, record: dict[str, Any]) -> Any:
            event = super().key_event(record)
            return event._replace(value=UNENCODABLE) if event.value == "unencodable" else event

    records = [record(1, "unencodable"), record(2, "fail"), record(3, "a"), record(4, "unencodable", parts=[1])]
    collected, letters = process(Making(), records)
    assert collected == ["a"]
    assert [letter.record for letter in letters] == [records[0], records[1], records[3]]
    assert [letter.error.split(":")[0] for letter in letters] == ["EncodeError", "ValueError", "EncodeError"]


@pytest.mark.rule(19)
def test_a_failing_key_event_is_counted_once_if_another_event_cannot_be_encoded() -> None:
    test_run = TestRun(job(counting([]), on_error="dead_letter", max_dead_letters=2))
    result = test_run.add_records([record(1, "fail"), record(2, UNENCODABLE), record(3, "a")]).run()
    assert len(result.dead_letters) == 2


@pytest.mark.rule(13)
def test_the_newest_time_of_a_record_with_an_event_that_cannot_be_encoded_does_not_advance_the_watermark() -> None:
    test_run = TestRun(job(counting([]), on_error="dead_letter"))
    result = test_run.add_records([record(3, "a"), record(50, UNENCODABLE), record(7, "filtered")]).end_batch().run()
    assert result.watermark == at(7)


class PoppingColumns(VectorizedHandler):
    """Takes the fields of many events out of records in one call."""

    out = SinkSpec(list)
    delegates_to = "window"
    window = TumblingWindow(10 * SECOND, Collect())

    def key_event(self, record: dict[str, Any]) -> KeyedEvent[Any]:
        return KeyedEvent(record.pop("k"), at(record.pop("t")), record.pop("v"))

    def key_batch(self, records: list[Any]) -> Any:
        keys = [record.pop("k") for record in records]
        return keys, [at(record.pop("t")) for record in records], [record.pop("v") for record in records]

    def on_event(self, subject: Subject, event: KeyedEvent[Any]) -> None:
        self.window.add(subject, event)

    @window.on_close
    def closed(self, subject: Subject, window: Window, values: list[Any]) -> None:
        self.out.collect(subject, values)


def test_a_test_run_does_not_change_the_records_of_a_test_in_the_vectorized_path() -> None:
    records = [record(1, "first"), record(2, "second")]
    test_run = TestRun(job(PoppingColumns())).add_records(records).crash()
    assert test_run.run(flush=True).records("out") == [["first", "second"]]
    assert records == [record(1, "first"), record(2, "second")]


@pytest.mark.rule(18)
def test_key_event_gets_the_records_as_they_were_after_key_batch_has_failed() -> None:
    records = [record(1, "first"), {"k": "a", "t": "now", "v": "second"}]
    with pytest.raises(CallbackError) as caught:
        run(job(PoppingColumns(), *records), engine="embedded")
    assert caught.value.error.startswith("TypeError")
