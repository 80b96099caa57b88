import math
from datetime import date, datetime, timedelta, timezone
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.sdk.subjects import START, new_subject

from amadou import Timer
from amadou.errors import EncodeError, NaiveTimestampError, TimerError

SECOND = timedelta(seconds=1)
MICROSECOND = timedelta(microseconds=1)


def test_a_new_subject_has_a_key_and_no_watermark() -> None:
    subject = new_subject(("a", 1))
    assert subject.key == ("a", 1)
    assert subject.watermark is None
    assert subject.timer_tag == ""
    assert repr(subject) == "Subject(key=('a', 1))"


def test_a_timer_that_is_set_is_listed() -> None:
    subject = new_subject()
    assert subject.set_timer(START, "tag") is True
    assert subject.timers() == [Timer(START, "tag")]


def test_timers_are_listed_in_order_of_time_and_tag() -> None:
    subject = new_subject()
    for seconds, tag in ((2, "b"), (1, "z"), (2, ""), (2, "a")):
        subject.set_timer(START + seconds * SECOND, tag)
    assert [((timer.timestamp - START) / SECOND, timer.tag) for timer in subject.timers()] == [
        (1, "z"),
        (2, ""),
        (2, "a"),
        (2, "b"),
    ]


def test_setting_a_timer_twice_sets_one_timer() -> None:
    subject = new_subject()
    zone = timezone(timedelta(hours=3))
    assert [subject.set_timer(START), subject.set_timer(START.astimezone(zone))] == [True, True]
    assert subject.timers() == [Timer(START, "")]


def test_timers_in_the_repeated_hour_of_autumn_are_two_timers() -> None:
    berlin = ZoneInfo("Europe/Berlin")
    subject = new_subject()
    for fold in (0, 1):
        subject.set_timer(datetime(2025, 10, 26, 2, 30, tzinfo=berlin, fold=fold))
    assert [timer.timestamp.hour for timer in subject.timers()] == [0, 1]


def test_a_timer_at_or_before_the_watermark_is_not_set() -> None:
    subject = new_subject(watermark=START)
    assert subject.watermark == START
    assert subject.set_timer(START) is False
    assert subject.set_timer(START - SECOND) is False
    assert subject.set_timer(START + MICROSECOND) is True
    assert subject.timers() == [Timer(START + MICROSECOND, "")]


def test_delete_timer_returns_whether_the_timer_was_set() -> None:
    subject = new_subject()
    subject.set_timer(START)
    subject.set_timer(START, "tag")
    assert subject.delete_timer(START) is True
    assert subject.delete_timer(START) is False
    assert subject.delete_timer(START, "other") is False
    assert subject.timers() == [Timer(START, "tag")]


@given(st.lists(st.tuples(st.booleans(), st.integers(0, 4), st.sampled_from(["", "a"]))))
def test_timers_behave_like_a_set_of_times_and_tags(script: list[tuple[bool, int, str]]) -> None:
    subject, model = new_subject(), set()
    for is_set, seconds, tag in script:
        timer = Timer(START + seconds * SECOND, tag)
        if is_set:
            assert subject.set_timer(*timer) is True
            model.add(timer)
        else:
            assert subject.delete_timer(*timer) is (timer in model)
            model.discard(timer)
        assert subject.timers() == sorted(model)
        assert subject._batch.timers.pending == len(model)


@pytest.mark.parametrize("timestamp", [datetime(2025, 1, 1), date(2025, 1, 1), 5])
def test_a_timers_time_must_be_an_aware_datetime(timestamp: Any) -> None:
    for method in (new_subject().set_timer, new_subject().delete_timer):
        with pytest.raises(NaiveTimestampError, match="use an aware datetime"):
            method(timestamp)


@pytest.mark.parametrize("tag", [5, b"tag", None, ["tag"]])
def test_a_timers_tag_must_be_a_text(tag: Any) -> None:
    subject = new_subject()
    with pytest.raises(TypeError, match="a timer's tag must be a str"):
        subject.set_timer(START, tag)
    assert subject.timers() == []


def test_a_handler_without_on_timer_expired_cannot_set_timers() -> None:
    with pytest.raises(TimerError, match=r"MyHandler .* does not define on_timer_expired"):
        new_subject(has_timer_callback=False).set_timer(START)


@pytest.mark.parametrize(
    ("counter", "by"), [(5, 1), (None, 1), ("a", "1"), ("a", 0.5), ("a", math.nan), ("a", 2**54), ("\ud800", 1)]
)
def test_a_counter_that_metrics_cannot_show_is_refused(counter: Any, by: Any) -> None:
    subject = new_subject()
    with pytest.raises((TypeError, ValueError, EncodeError)):
        subject.count(counter, by)
    subject.count("ä", 2)
    subject.count("ä", -3)
    assert subject._batch.counts == {"ä": -1}
