"""Bad input gets a clear error: it names handler, callback, key and record, and shows the user's own traceback."""

import enum
import json
import traceback
from collections.abc import Callable
from datetime import date, datetime, timezone
from typing import Any

import attrs
import pytest

from amadou import Handler, Job, KeyedEvent, MapSpec, MemorySink, MemorySource, SinkSpec, Subject, ValueSpec
from amadou.errors import CallbackError, JobError
from amadou.plugins import BufferingWriter, SinkBatch
from amadou_runtime import TestRun, run

START = datetime(2025, 1, 1, tzinfo=timezone.utc)


class Color(str, enum.Enum):
    RED = "red"


class Plain:
    def __repr__(self) -> str:
        return "Plain()"


@attrs.frozen
class Sum:
    sum: int


class Scripted(Handler):
    """Calls the function that is a record, and the function whose name is an event's value."""

    total = ValueSpec(int, default=0)
    by_time = MapSpec(datetime, list[int])
    sums = SinkSpec(Sum)
    anything = SinkSpec(object)

    def key_event(self, record: Any) -> Any:
        return record() if callable(record) else record

    def on_event(self, subject: Subject, event: KeyedEvent[str]) -> None:
        ACTIONS[event.value](self, subject)


ACTIONS: dict[str, Callable[[Any, Subject], Any]] = {
    "set a timer": lambda handler, subject: subject.set_timer(START),
    "set a naive timer": lambda handler, subject: subject.set_timer(datetime(2025, 1, 1)),
    "store a text as a number": lambda handler, subject: setattr(handler.total.state_for(subject), "value", "five"),
    "put a bad value": lambda handler, subject: handler.by_time.state_for(subject).update({START: ["a"]}),
    "put under a bad key": lambda handler, subject: handler.by_time.state_for(subject).update({"noon": [1]}),
    "collect another class": lambda handler, subject: handler.sums.collect(subject, {"sum": 1}),
    "collect a wrong part": lambda handler, subject: handler.sums.collect(subject, Sum("one")),  # type: ignore[arg-type]
    "collect a value that cannot be encoded": lambda handler, subject: handler.anything.collect(subject, [Plain()]),
    "divide": lambda handler, subject: 1 / 0,
}


def job(handler: Handler) -> Job:
    return Job(
        "bad-input",
        handler,
        sources={"in": MemorySource()},
        sinks={"sums": MemorySink(), "anything": MemorySink()},
    )


def failure(record: Any) -> CallbackError:
    with pytest.raises(CallbackError) as caught:
        TestRun(job(Scripted())).add_record(record).run()
    return caught.value


def printed(error: BaseException) -> str:
    """Return the text that Python prints for an uncaught error."""
    return "".join(traceback.format_exception(error))


def shows_only_the_users_frames(error: CallbackError) -> bool:
    files = [line for line in error.user_traceback.splitlines() if line.strip().startswith("File ")]
    return all("amadou/_" not in line and "amadou_runtime" not in line for line in files)


def test_the_error_for_a_record_that_key_event_cannot_parse_shows_record_and_line() -> None:
    class Parser(Scripted):
        def key_event(self, record: bytes) -> Any:
            return KeyedEvent(json.loads(record)["key"], START)

    with pytest.raises(CallbackError) as caught:
        TestRun(job(Parser())).add_record(b'{"key": "a"').run()
    error = caught.value
    assert (error.handler, error.callback, error.source) == ("Parser", "key_event", "in")
    assert error.record == repr(b'{"key": "a"')
    assert error.error.startswith("JSONDecodeError: Expecting")
    assert 'return KeyedEvent(json.loads(record)["key"], START)' in error.user_traceback
    assert shows_only_the_users_frames(error)
    assert printed(error).index("json.loads(record)") < printed(error).index("Parser.key_event failed")


def test_the_error_of_a_generator_that_fails_after_an_event_is_that_of_key_event() -> None:
    def half() -> Any:
        yield KeyedEvent("a", START)
        raise ValueError("the second half")

    error = failure(half)
    assert (error.callback, error.error) == ("key_event", "ValueError: the second half")
    assert shows_only_the_users_frames(error)


@pytest.mark.parametrize(
    "timestamp", [datetime(2025, 1, 1), date(2025, 1, 1), "2025-01-01T00:00:00Z", 1735689600, None]
)
def test_a_timestamp_that_is_not_an_aware_datetime_is_an_error(timestamp: Any) -> None:
    record = KeyedEvent[Any]("a", timestamp)
    error = failure(record)
    assert (error.handler, error.callback, error.key, error.record) == ("Scripted", "key_event", "a", repr(record))
    assert ("no time zone" in error.error) == (type(timestamp) is datetime)
    assert "datetime" in error.error
    assert shows_only_the_users_frames(error)


@pytest.mark.parametrize(
    "key", [1.5, True, None, ["a"], {"a": 1}, Color.RED, ("a", None), (("a", 1.0),), date(2025, 1, 1), bytearray(b"a")]
)
def test_a_key_of_an_unsupported_type_is_an_error(key: Any) -> None:
    record = KeyedEvent[Any](key, START)
    error = failure(record)
    assert (error.callback, error.record) == ("key_event", repr(record))
    assert error.error.startswith("KeyTypeError: the key ")
    assert "a key must be a str, bytes or int, or a tuple of those" in error.error
    assert shows_only_the_users_frames(error)


@pytest.mark.parametrize(
    ("returned", "expected"),
    [
        ([5], "an iterable with 5"),
        (5, "or None, not a value of type int ('int' object is not iterable)"),
        ((1, 2), "with 1"),
    ],
)
def test_the_error_for_a_result_of_key_event_shows_the_result(returned: Any, expected: str) -> None:
    assert expected in failure(returned).error


def test_the_error_for_an_event_of_a_test_run_shows_the_event() -> None:
    event = KeyedEvent("a", datetime(2025, 1, 1), 5)
    with pytest.raises(CallbackError) as caught:
        TestRun(job(Scripted())).add_event(event).run()
    assert caught.value.record == repr(event)


def test_a_key_that_is_not_valid_unicode_is_an_error() -> None:
    error = failure(KeyedEvent("\ud800", START))
    assert (error.callback, error.key) == ("key_event", r"\ud800")
    assert "surrogates not allowed" in error.error
    assert shows_only_the_users_frames(error)


@pytest.mark.parametrize("returned", [("a", START, 1), ("abc", START, 1), (("a", 1, 2), START, 1), (7, START)])
@pytest.mark.parametrize("on_error", ["fail", "dead_letter"])
def test_the_error_for_a_plain_tuple_from_key_event_suggests_a_keyed_event(returned: Any, on_error: str) -> None:
    test_job = attrs.evolve(job(Scripted()), on_error=on_error)
    run = TestRun(test_job).add_record(lambda: returned)
    if on_error == "fail":
        with pytest.raises(CallbackError) as caught:
            run.run()
        error = caught.value.error
    else:
        (letter,) = run.run().dead_letters
        error = letter.error
    assert f"not the plain tuple {returned!r}: write KeyedEvent(key, timestamp, value)" in error


def test_the_error_for_a_list_of_plain_tuples_from_key_event_suggests_a_keyed_event() -> None:
    with pytest.raises(CallbackError, match=r"not the plain tuple .*: write KeyedEvent"):
        TestRun(job(Scripted())).add_record(lambda: [("a", START)]).run()


@pytest.mark.parametrize("returned", [5, "abc", [5], ["abc"], [None], ("a", START), object()])
def test_a_result_of_key_event_that_is_not_an_event_is_an_error(returned: Any) -> None:
    error = failure(lambda: returned)
    assert error.callback == "key_event"
    assert error.error.startswith("EventTypeError: key_event must return a KeyedEvent, an iterable of them, Filtered")
    assert shows_only_the_users_frames(error)


@pytest.mark.parametrize("value", [Plain(), [Plain()], {"a": (Plain(),)}, lambda: None, "\ud800", datetime(2025, 1, 1)])
def test_a_value_of_an_event_that_cannot_be_encoded_is_an_error(value: Any) -> None:
    record = KeyedEvent("the key", START, value)
    run = TestRun(job(Scripted())).add_records([KeyedEvent("the key", START, "divide"), record])
    with pytest.raises(CallbackError) as caught:
        run.run()
    error = caught.value
    assert (error.callback, error.key, error.record) == ("key_event", "the key", repr(record))
    assert error.error.startswith(("EncodeError: cannot store", "NaiveTimestampError: "))
    assert "codec=" not in error.error  # there is no spec to give it to
    assert shows_only_the_users_frames(error)


@pytest.mark.parametrize(
    ("action", "expected"),
    [
        ("set a timer", "TimerError: Scripted set a timer but does not define on_timer_expired"),
        ("set a naive timer", "TimerError: Scripted set a timer but does not define on_timer_expired"),
        ("store a text as a number", "EncodeError: total: cannot store 'five' (str) as int"),
        ("put a bad value", "EncodeError: by_time: cannot store ['a'] (list) as list[int]"),
        ("put under a bad key", "EncodeError: by_time: cannot store 'noon' (str) as datetime"),
        ("collect another class", "EncodeError: sums: cannot store {'sum': 1} (dict) as Sum"),
        ("collect a wrong part", "EncodeError: sums: cannot store Sum(sum='one') (Sum) as Sum: cannot store 'one' "),
        ("collect a value that cannot be encoded", "EncodeError: anything: cannot store [Plain()] (list) as object"),
        ("divide", "ZeroDivisionError: division by zero"),
    ],
)
def test_the_error_of_a_callback_shows_handler_callback_key_and_record(action: str, expected: str) -> None:
    record = KeyedEvent(("the", "key"), START, action)
    error = failure(record)
    assert error.error.startswith(expected)
    assert (error.handler, error.callback, error.key) == ("Scripted", "on_event", ("the", "key"))
    assert (error.source, error.record) == ("in", repr(record))
    assert "ACTIONS[event.value](self, subject)" in error.user_traceback
    assert error.user_traceback.count("Traceback (most recent call last)") == 1
    assert shows_only_the_users_frames(error)


def test_the_printed_error_of_a_callback_begins_with_the_users_frames() -> None:
    shown = printed(failure(KeyedEvent("a", START, "store a text as a number")))
    first = next(line for line in shown.splitlines() if line.strip().startswith("File "))
    assert "test_bad_input.py" in first
    assert shown.count("The above exception was the direct cause") == 1
    assert shown.index("cannot store 'five'") < shown.index("Scripted.on_event failed")
    assert "During handling" not in shown


@pytest.mark.parametrize("bad", ["state", "map key", "map value", "port"])
def test_writing_a_text_that_is_not_valid_unicode_is_an_error_of_that_callback(bad: str) -> None:
    class Surrogate(Handler):
        text = ValueSpec(str)
        texts = MapSpec(str, str)
        out = SinkSpec(str)

        def key_event(self, record: Any) -> Any:
            return record

        def on_event(self, subject: Subject, event: KeyedEvent[Any]) -> None:
            if subject.key != "b":
                self.text.state_for(subject).value = self.texts.state_for(subject)["a"] = "fine"
            elif bad == "state":
                self.text.state_for(subject).value = "\ud800"
            elif bad == "map key":
                self.texts.state_for(subject)["\ud800"] = "a"
            elif bad == "map value":
                self.texts.state_for(subject)["a"] = "\ud800"
            else:
                self.out.collect(subject, "\ud800")

    made = Job("bad", Surrogate(), sources={"in": MemorySource()}, sinks={"out": MemorySink()})
    run = TestRun(made).add_records([KeyedEvent(key, START) for key in "abc"])
    with pytest.raises(CallbackError, match="surrogates") as caught:
        run.run()
    assert (caught.value.callback, caught.value.source, caught.value.key) == ("on_event", "in", "b")


class TwoOfOneName(Scripted):
    first = ValueSpec(int, name="same")
    second = ValueSpec(int, name="same")


class Unsupported(Scripted):
    odd = ValueSpec(complex)


@pytest.mark.parametrize(
    ("handler", "sinks", "expected"),
    [
        (TwoOfOneName, ["sums", "anything"], "the name 'same' is used by 2 specs of TwoOfOneName (first, second)"),
        (Unsupported, ["sums", "anything"], "Unsupported.odd: the type complex is not supported"),
        (Scripted, ["sums"], "the port 'anything' of Scripted has no sink: add one to sinks"),
        (
            Scripted,
            ["sums", "anything", "more"],
            "Scripted has no port for the sink 'more': name the sink after a port (anything, sums)",
        ),
    ],
)
def test_an_inconsistent_job_is_an_error_that_names_the_mistake(
    handler: type[Handler], sinks: list[str], expected: str
) -> None:
    with pytest.raises(JobError) as caught:
        Job("bad", handler(), sources={"in": MemorySource()}, sinks={name: MemorySink() for name in sinks})
    assert expected in str(caught.value)


def test_a_part_that_a_sink_cannot_write_is_aborted() -> None:
    aborted = []

    class Full(BufferingWriter):
        def write(self, encoded_values: Any) -> None:
            raise OSError("no space left")

        def abort(self) -> None:
            aborted.append(True)

    class Disk(MemorySink):
        def open(self, batch: SinkBatch, part: str) -> Full:
            return Full()

    job = Job("disk", Scripted(), {"in": MemorySource()}, {"sums": Disk(), "anything": MemorySink()})
    with pytest.raises(OSError, match="no space left"):
        run(job, engine="embedded")
    assert aborted == [True]
