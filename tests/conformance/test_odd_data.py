"""Data that nobody meant: each is an error of its record or callback, or is kept as it is, and never of the run."""

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
NO_TIME = datetime(1, 1, 1, tzinfo=EAST)  # what .NET says for no time at all, two hours before the year 1 in UTC
AFTER_ALL = datetime.max.replace(tzinfo=WEST)
HALF = "half \ud83d"


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


class Odd(Recorder):
    """An event's value names a method, which is called with the subject; any other value is reported."""

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

    def timer_before_all_time(self, subject: Subject) -> None:
        subject.set_timer(NO_TIME)

    def timer_after_all_time(self, subject: Subject) -> None:
        subject.set_timer(AFTER_ALL)

    def half_a_tag(self, subject: Subject) -> None:
        subject.set_timer(at(100), HALF)

    def half_a_text(self, subject: Subject) -> None:
        self.texts.collect(subject, HALF)

    def no_time_in_anything(self, subject: Subject) -> None:
        self.anything.state_for(subject).value = [NO_TIME]

    def no_time_as_value(self, subject: Subject) -> None:
        self.time.state_for(subject).value = NO_TIME

    def no_time_as_key(self, subject: Subject) -> None:
        self.by_time.state_for(subject)[NO_TIME] = 1

    def no_time_in_map(self, subject: Subject) -> None:
        self.by_time.state_for(subject)[at(0)] = {"at": (AFTER_ALL,)}

    def many_tuples(self, subject: Subject) -> None:
        self.anything.state_for(subject).value = tuples(2000)

    def many_sets(self, subject: Subject) -> None:
        self.anything.state_for(subject).value = sets(2000)

    def many_lists(self, subject: Subject) -> None:
        self.anything.state_for(subject).value = lists(2000)

    def many_tuples_as_key(self, subject: Subject) -> None:
        self.by_any.state_for(subject)[tuples(2000)] = 1

    def many_sets_as_key(self, subject: Subject) -> None:
        self.by_any.state_for(subject).get((sets(65),))

    def half_an_error(self, subject: Subject) -> None:
        raise ValueError(HALF)

    def silent_error(self, subject: Subject) -> None:
        raise SilentError

    def no_key_at_all(self) -> Any:
        return KeyedEvent(Unreadable(), at(0))  # type: ignore[arg-type]

    def much_too_deep(self) -> Any:
        return event(3, tuples(2000))

    def much_too_deep_a_key(self) -> Any:
        return event(3, key=tuples(2000))

    def too_deep_a_key(self) -> Any:
        return event(3, key=tuples(65))

    def half_a_key(self) -> Any:
        return KeyedEvent(HALF, at(0))

    def keep_sets(self, subject: Subject) -> None:
        self.anything.state_for(subject).value = sets(50)

    def tell_sets(self, subject: Subject) -> None:
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
    "timer_before_all_time": "TimestampRangeError: the timestamp 0001-01-01T00:00:00+02:00",
    "timer_after_all_time": "TimestampRangeError: the timestamp 9999-12-31T23:59:59.999999-02:00",
    "half_a_tag": "EncodeError",
    "half_a_text": "EncodeError: texts: cannot store 'half \\ud83d'",
    "no_time_in_anything": "EncodeError: anything: ",
    "no_time_as_value": "TimestampRangeError",
    "no_time_as_key": "TimestampRangeError",
    "no_time_in_map": "EncodeError: by_time: ",
    "many_tuples": "EncodeError: anything: ",
    "many_sets": "EncodeError: anything: ",
    "many_lists": "EncodeError: anything: ",
    "many_tuples_as_key": "EncodeError: by_any: ",
    "many_sets_as_key": "EncodeError: by_any: ",
    "half_an_error": "ValueError: half \\ud83d",
    "silent_error": "SilentError: <its message failed: ValueError>",
}
RECORDS: dict[Any, str] = {
    KeyedEvent("k", NO_TIME, "early"): "TimestampRangeError",
    KeyedEvent("k", AFTER_ALL, "late"): "TimestampRangeError",
    KeyedEvent("k", at(3), (NO_TIME,)): "EncodeError",
    "much_too_deep": "EncodeError",
    "no_key_at_all": "KeyTypeError",
    "half_a_key": "UnicodeEncodeError",
    "much_too_deep_a_key": "KeyTypeError",
    "too_deep_a_key": "KeyTypeError",
}


@pytest.mark.on_spark("dead letters of workers")
@pytest.mark.rule(25, 31)
def test_each_mistake_is_a_letter_and_the_others_go_on(test_run: MakeRun) -> None:
    run = test_run(job(Odd(), on_error="dead_letter"))
    for second, mistake in enumerate(MISTAKES):
        run.add_records([event(second, "before"), event(second, mistake), event(second, "after")])
    result = run.end_batch().restart().add_record(event(100, "in the end")).run(flush=True)
    assert result.records("texts") == ["'before'", "'after'"] * len(MISTAKES) + ["'in the end'"]
    assert result.keys() == []
    letters = result.dead_letters
    assert [(letter.callback, letter.record.value) for letter in letters] == [("on_event", name) for name in MISTAKES]
    for letter, told in zip(letters, MISTAKES.values(), strict=True):
        assert letter.error.startswith(told)
    deep = [letter.error for letter in letters if "many" in letter.record.value]
    assert all("nested deeper than 64 tuples, sets or classes, or 1,024 lists" in told for told in deep)


@pytest.mark.rule(1, 31)
def test_each_record_that_cannot_be_an_event_is_a_letter(test_run: MakeRun) -> None:
    run = test_run(job(Odd(), on_error="dead_letter")).add_record(event(1, "before"))
    run.add_records(RECORDS).add_record(event(2, "after")).end_batch()
    result = run.add_record(event(3, "in the end")).run()
    assert result.records("texts") == ["'before'", "'after'", "'in the end'"]
    letters = result.dead_letters
    assert [letter.callback for letter in letters] == ["key_event"] * len(RECORDS)
    assert [letter.error.partition(":")[0] for letter in letters] == list(RECORDS.values())
    deep = [letter.error for letter in letters if letter.record in ("much_too_deep_a_key", "too_deep_a_key")]
    assert all("is nested more than 64 tuples deep" in told for told in deep)


@pytest.mark.parametrize(
    "mistake", [KeyedEvent("k", NO_TIME, "early"), event(1, "half_a_text"), event(1, "half_a_tag")]
)
@pytest.mark.rule(1)
def test_without_letters_it_ends_the_run_and_names_the_record(test_run: MakeRun, mistake: KeyedEvent[Any]) -> None:
    run = test_run(job(Odd())).add_record(mistake)
    with pytest.raises(CallbackError) as failed:
        run.run()
    assert repr(mistake) in str(failed.value)


@pytest.mark.on_spark("values travel")
@pytest.mark.rule(25)
def test_what_is_nested_deep_comes_back(test_run: MakeRun) -> None:
    run = test_run(job(Odd())).add_record(event(1, "keep_sets")).end_batch()
    assert run.add_record(event(2, "tell_sets")).run().records("texts")[-1] == "True"


class Deep(Recorder):
    """Counts events in state and in a window, but for those that fail."""

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
def test_a_key_as_deep_as_may_be_is_like_any_other(test_run: MakeRun) -> None:
    key = tuples(63)  # 64, with the one inside
    run = test_run(job(Deep(), on_error="dead_letter")).add_records([event(0, key=key), event(1, "fail", key)])
    result = run.restart().add_record(event(2, key=key)).add_watermark(at(20)).end_batch().run()
    assert (result.keys(), result.records("counts")) == ([key], [2, 2])
    assert [letter.key for letter in result.dead_letters] == [key]


@pytest.mark.rule(25)
def test_keys_that_are_equal_are_one_entry(test_run: MakeRun) -> None:
    result = test_run(job(Odd())).add_record(event(1, "count_equal_keys")).run()
    assert result.state("by_number", "k") == {Decimal(1): 3, Decimal(100): 2, Decimal(0): 2, Decimal("1.05"): 1}
    assert result.state("by_pair", "k") == {(0.0, 1.0): 2}
    counts = result.state("by_any", "k")
    assert counts.pop((0.0, frozenset({0.0}))) == 2
    assert counts == {(key, "x"): count for key, count in result.state("by_number", "k").items()}
    assert [str(key) for key in result.state("by_number", "k")] == ["1", "100", "0", "1.05"]
