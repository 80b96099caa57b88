"""Invalid data: an error of its record or callback, but not of the run. Valid data is stored unchanged."""

from datetime import datetime, timedelta, timezone
from decimal import Decimal
from typing import Any

import pytest
from tests.conformance.conftest import MakeRun
from tests.conformance.handlers import Recorder, at, event, job

from amadou import KeyedEvent, MapSpec, SinkSpec, Subject, ValueSpec
from amadou.errors import CallbackError
from amadou_plugins.windows import TumblingWindow, Window

EAST = timezone(timedelta(hours=2))
WEST = timezone(-timedelta(hours=2))
BEFORE_YEAR_1 = datetime(1, 1, 1, tzinfo=EAST)  # the default time of .NET, two hours before the year 1 in UTC
AFTER_YEAR_9999 = datetime.max.replace(tzinfo=WEST)
SURROGATE = "half \ud83d"


class SilentError(Exception):
    def __str__(self) -> str:
        raise ValueError("no words")


class Unreadable:
    def __repr__(self) -> str:
        raise ValueError("no words")


def tuples(depth: int) -> Any:
    value: Any = ()
    for _ in range(depth):
        value = (value,)
    return value


def sets(depth: int) -> Any:
    value: Any = frozenset()
    for _ in range(depth):
        value = frozenset({value})
    return value


def lists(depth: int) -> Any:
    value: Any = []
    for _ in range(depth):
        value = [value]
    return value


class InvalidData(Recorder):
    """Calls the method that an event's value names; collects other values."""

    anything = ValueSpec(Any)  # type: ignore[arg-type]
    time = ValueSpec(datetime)
    by_time = MapSpec(datetime, Any)  # type: ignore[arg-type]
    by_number = MapSpec(Decimal, int)
    by_pair = MapSpec(tuple[float, ...], int)
    by_any = MapSpec(Any, int)  # type: ignore[arg-type]
    texts = SinkSpec(str)

    def key_event(self, record: Any) -> Any:
        return record if isinstance(record, KeyedEvent) else getattr(self, record)()

    def on_event(self, subject: Subject, event: KeyedEvent[Any]) -> None:
        method = getattr(self, event.value, None) if isinstance(event.value, str) else None
        if method is None:
            self.texts.collect(subject, f"{event.value!r:.40}")
            return
        self.texts.collect(subject, event.value)
        method(subject)

    def timer_before_year_1(self, subject: Subject) -> None:
        subject.set_timer(BEFORE_YEAR_1)

    def timer_after_year_9999(self, subject: Subject) -> None:
        subject.set_timer(AFTER_YEAR_9999)

    def surrogate_in_tag(self, subject: Subject) -> None:
        subject.set_timer(at(100), SURROGATE)

    def surrogate_in_text(self, subject: Subject) -> None:
        self.texts.collect(subject, SURROGATE)

    def early_time_in_value(self, subject: Subject) -> None:
        self.anything.state_for(subject).value = [BEFORE_YEAR_1]

    def early_time_as_value(self, subject: Subject) -> None:
        self.time.state_for(subject).value = BEFORE_YEAR_1

    def early_time_as_map_key(self, subject: Subject) -> None:
        self.by_time.state_for(subject)[BEFORE_YEAR_1] = 1

    def late_time_in_map(self, subject: Subject) -> None:
        self.by_time.state_for(subject)[at(0)] = {"at": (AFTER_YEAR_9999,)}

    def deep_tuples(self, subject: Subject) -> None:
        self.anything.state_for(subject).value = tuples(2000)

    def deep_sets(self, subject: Subject) -> None:
        self.anything.state_for(subject).value = sets(2000)

    def deep_lists(self, subject: Subject) -> None:
        self.anything.state_for(subject).value = lists(2000)

    def deep_tuples_as_map_key(self, subject: Subject) -> None:
        self.by_any.state_for(subject)[tuples(2000)] = 1

    def deep_sets_as_map_key(self, subject: Subject) -> None:
        self.by_any.state_for(subject).get((sets(65),))

    def surrogate_in_error(self, subject: Subject) -> None:
        raise ValueError(SURROGATE)

    def silent_error(self, subject: Subject) -> None:
        raise SilentError

    def object_as_key(self) -> Any:
        return KeyedEvent(Unreadable(), at(0))  # type: ignore[arg-type]

    def deep_value(self) -> Any:
        return event(3, tuples(2000))

    def deep_key(self) -> Any:
        return event(3, key=tuples(2000))

    def key_beyond_the_limit(self) -> Any:
        return event(3, key=tuples(65))

    def surrogate_in_key(self) -> Any:
        return KeyedEvent(SURROGATE, at(0))

    def store_sets(self, subject: Subject) -> None:
        self.anything.state_for(subject).value = sets(50)

    def collect_sets(self, subject: Subject) -> None:
        self.texts.collect(subject, str(self.anything.state_for(subject).value == sets(50)))

    def count_equal_keys(self, subject: Subject) -> None:
        by_number, by_pair = self.by_number.state_for(subject), self.by_pair.state_for(subject)
        by_any = self.by_any.state_for(subject)
        for number in ("1.0", "1.00", "1", "100", "1E+2", "0", "-0.00", "1.05"):
            by_number[Decimal(number)] = by_number.get(Decimal(number), 0) + 1
            by_any[Decimal(number), "x"] = by_any.get((Decimal(number), "x"), 0) + 1
        for zero in (0.0, -0.0):
            by_pair[zero, 1.0] = by_pair.get((zero, 1.0), 0) + 1
            by_any[zero, frozenset({zero})] = by_any.get((zero, frozenset({-zero})), 0) + 1


MISTAKES = {
    "timer_before_year_1": "TimestampRangeError: the timestamp 0001-01-01T00:00:00+02:00",
    "timer_after_year_9999": "TimestampRangeError: the timestamp 9999-12-31T23:59:59.999999-02:00",
    "surrogate_in_tag": "EncodeError",
    "surrogate_in_text": "EncodeError: texts: cannot store 'half \\ud83d'",
    "early_time_in_value": "EncodeError: anything: ",
    "early_time_as_value": "TimestampRangeError",
    "early_time_as_map_key": "TimestampRangeError",
    "late_time_in_map": "EncodeError: by_time: ",
    "deep_tuples": "EncodeError: anything: ",
    "deep_sets": "EncodeError: anything: ",
    "deep_lists": "EncodeError: anything: ",
    "deep_tuples_as_map_key": "EncodeError: by_any: ",
    "deep_sets_as_map_key": "EncodeError: by_any: ",
    "surrogate_in_error": "ValueError: half \\ud83d",
    "silent_error": "SilentError: <its message failed: ValueError>",
}
RECORDS: dict[Any, str] = {
    KeyedEvent("k", BEFORE_YEAR_1, "early"): "TimestampRangeError",
    KeyedEvent("k", AFTER_YEAR_9999, "late"): "TimestampRangeError",
    KeyedEvent("k", at(3), (BEFORE_YEAR_1,)): "EncodeError",
    "deep_value": "EncodeError",
    "object_as_key": "KeyTypeError",
    "surrogate_in_key": "UnicodeEncodeError",
    "deep_key": "KeyTypeError",
    "key_beyond_the_limit": "KeyTypeError",
}


@pytest.mark.on_spark("dead letters of workers")
@pytest.mark.rule(25, 31)
def test_each_invalid_value_in_a_callback_is_a_dead_letter_and_other_events_are_processed(test_run: MakeRun) -> None:
    run = test_run(job(InvalidData(), on_error="dead_letter"))
    for second, mistake in enumerate(MISTAKES):
        run.add_records([event(second, "before"), event(second, mistake), event(second, "after")])
    result = run.end_batch().restart().add_record(event(100, "in the end")).run(flush=True)
    assert result.records("texts") == ["'before'", "'after'"] * len(MISTAKES) + ["'in the end'"]
    assert result.keys() == []
    dead_letters = result.dead_letters
    assert [(dead_letter.callback, dead_letter.record.value) for dead_letter in dead_letters] == [
        ("on_event", name) for name in MISTAKES
    ]
    for dead_letter, message in zip(dead_letters, MISTAKES.values(), strict=True):
        assert dead_letter.error.startswith(message)
    deep = [dead_letter.error for dead_letter in dead_letters if "many" in dead_letter.record.value]
    assert all("nested deeper than 64 tuples, sets or classes, or 1,024 lists" in error for error in deep)


@pytest.mark.rule(1, 31)
def test_each_record_with_an_invalid_key_time_or_value_is_a_dead_letter(test_run: MakeRun) -> None:
    run = test_run(job(InvalidData(), on_error="dead_letter")).add_record(event(1, "before"))
    run.add_records(RECORDS).add_record(event(2, "after")).end_batch()
    result = run.add_record(event(3, "in the end")).run()
    assert result.records("texts") == ["'before'", "'after'", "'in the end'"]
    dead_letters = result.dead_letters
    assert [dead_letter.callback for dead_letter in dead_letters] == ["key_event"] * len(RECORDS)
    assert [dead_letter.error.partition(":")[0] for dead_letter in dead_letters] == list(RECORDS.values())
    deep = [
        dead_letter.error for dead_letter in dead_letters if dead_letter.record in ("deep_key", "key_beyond_the_limit")
    ]
    assert all("is nested more than 64 tuples deep" in error for error in deep)


@pytest.mark.parametrize(
    "mistake", [KeyedEvent("k", BEFORE_YEAR_1, "early"), event(1, "surrogate_in_text"), event(1, "surrogate_in_tag")]
)
@pytest.mark.rule(1)
def test_without_dead_letters_invalid_data_ends_the_run_and_the_error_names_the_record(
    test_run: MakeRun, mistake: KeyedEvent[Any]
) -> None:
    run = test_run(job(InvalidData())).add_record(mistake)
    with pytest.raises(CallbackError) as failed:
        run.run()
    assert repr(mistake) in str(failed.value)


@pytest.mark.rule(25)
def test_deeply_nested_values_are_stored_unchanged(test_run: MakeRun) -> None:
    run = test_run(job(InvalidData())).add_record(event(1, "store_sets")).end_batch()
    assert run.add_record(event(2, "collect_sets")).run().records("texts")[-1] == "True"


class CountsInStateAndWindow(Recorder):
    """Counts events in state and in a window; fails at the value "fail"."""

    total = ValueSpec(int, 0)
    window = TumblingWindow(timedelta(seconds=10))
    counts = SinkSpec(int)

    def on_event(self, subject: Subject, event: KeyedEvent[Any]) -> None:
        self.total.state_for(subject).value += 1
        self.window.add(subject, event)
        subject.set_timer(at(20))
        if event.value == "fail":
            raise ValueError("no")

    @window.on_close
    def window_closed(self, subject: Subject, window: Window, count: int) -> None:
        self.counts.collect(subject, count)

    def on_timer_expired(self, subject: Subject, timestamp: datetime) -> None:
        self.counts.collect(subject, self.total.state_for(subject).value)


@pytest.mark.rule(25)
def test_a_key_at_the_nesting_limit_has_state_windows_timers_and_dead_letters(test_run: MakeRun) -> None:
    key = tuples(63)  # 64 with the innermost
    run = test_run(job(CountsInStateAndWindow(), on_error="dead_letter")).add_records(
        [event(0, key=key), event(1, "fail", key)]
    )
    result = run.restart().add_record(event(2, key=key)).add_watermark(at(20)).end_batch().run()
    assert (result.keys(), result.records("counts")) == ([key], [2, 2])
    assert [dead_letter.key for dead_letter in result.dead_letters] == [key]


@pytest.mark.rule(25)
def test_equal_map_keys_are_one_entry(test_run: MakeRun) -> None:
    result = test_run(job(InvalidData())).add_record(event(1, "count_equal_keys")).run()
    assert result.state("by_number", "k") == {Decimal(1): 3, Decimal(100): 2, Decimal(0): 2, Decimal("1.05"): 1}
    assert result.state("by_pair", "k") == {(0.0, 1.0): 2}
    counts = result.state("by_any", "k")
    assert counts.pop((0.0, frozenset({0.0}))) == 2
    assert counts == {(key, "x"): count for key, count in result.state("by_number", "k").items()}
    assert [str(key) for key in result.state("by_number", "k")] == ["1", "100", "0", "1.05"]
