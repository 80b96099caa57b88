from collections.abc import Callable
from datetime import date, datetime, timedelta, timezone
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from amadou import from_millis, truncate
from amadou.errors import NaiveTimestampError, TimestampRangeError
from amadou.event_time import from_micros, to_micros, to_millis

EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)
MICROSECOND = timedelta(microseconds=1)
MINUTE = timedelta(minutes=1)
HOUR = timedelta(hours=1)
BERLIN = ZoneInfo("Europe/Berlin")
ZONES = st.sampled_from(
    [
        timezone.utc,
        timezone(timedelta(hours=5, minutes=45)),
        timezone(-timedelta(hours=11)),
        BERLIN,
        ZoneInfo("Asia/Kolkata"),
    ]
)
TIMES = st.datetimes(datetime(1900, 1, 1), datetime(2100, 1, 1), timezones=ZONES)
STEPS = st.timedeltas(MICROSECOND, timedelta(days=40))

# The second 02:30 of the night in which Berlin's clocks go back.
FIRST = datetime(2025, 10, 26, 2, 30, tzinfo=BERLIN, fold=0)
SECOND = datetime(2025, 10, 26, 2, 30, tzinfo=BERLIN, fold=1)


def micros(timestamp: datetime) -> int:
    return (timestamp - EPOCH) // MICROSECOND


@given(st.lists(st.tuples(TIMES, STEPS), min_size=1))
@example([(FIRST, MINUTE), (SECOND, MINUTE), (FIRST, MINUTE)])
def test_truncate_is_floor_division_of_microseconds(calls: list[tuple[datetime, timedelta]]) -> None:
    # Several in a row: the result must not depend on earlier calls.
    for timestamp, step in calls:
        length = step // MICROSECOND
        truncated = truncate(timestamp, step)
        assert micros(truncated) == micros(timestamp) // length * length
        assert truncated.tzinfo is timezone.utc


@given(TIMES, st.lists(STEPS, min_size=2))
def test_truncate_returns_a_multiple_of_the_step_for_any_step(timestamp: datetime, steps: list[timedelta]) -> None:
    for step in steps:
        length = step // MICROSECOND
        assert micros(truncate(timestamp, step)) % length == 0
        assert timedelta(0) <= timestamp - truncate(timestamp, step) < step


def test_truncate_rounds_down_before_1970() -> None:
    assert truncate(EPOCH - MICROSECOND, MINUTE) == EPOCH - MINUTE
    assert truncate(EPOCH - MINUTE, MINUTE) == EPOCH - MINUTE


def test_truncating_to_a_day_returns_midnight_in_utc_for_every_time_zone() -> None:
    early_in_kathmandu = datetime(2025, 1, 2, 1, 0, tzinfo=timezone(timedelta(hours=5, minutes=45)))
    assert truncate(early_in_kathmandu, timedelta(days=1)) == datetime(2025, 1, 1, tzinfo=timezone.utc)


def test_truncate_distinguishes_the_repeated_hours_of_autumn() -> None:
    assert truncate(FIRST, HOUR) == datetime(2025, 10, 26, 0, tzinfo=timezone.utc)
    assert truncate(SECOND, HOUR) == datetime(2025, 10, 26, 1, tzinfo=timezone.utc)


def test_the_last_time_of_the_year_9999_can_be_truncated() -> None:
    end = datetime.max.replace(tzinfo=timezone.utc)
    assert truncate(end, MINUTE) == end.replace(second=0, microsecond=0)


@pytest.mark.parametrize("step", [timedelta(0), -MINUTE])
def test_truncate_needs_a_positive_step(step: timedelta) -> None:
    truncate(EPOCH, MINUTE)
    with pytest.raises(ValueError, match="must be positive"):
        truncate(EPOCH, step)


@pytest.mark.parametrize("function", [lambda timestamp: truncate(timestamp, MINUTE), to_millis])
@pytest.mark.parametrize("timestamp", [datetime(2025, 1, 1), date(2025, 1, 1), "2025-01-01", None])
def test_a_timestamp_that_is_not_an_aware_datetime_is_refused(function: Callable[[Any], Any], timestamp: Any) -> None:
    with pytest.raises(NaiveTimestampError, match="use an aware datetime") as caught:
        function(timestamp)
    assert caught.value.timestamp == timestamp


@given(TIMES)
def test_millis_are_rounded_down(timestamp: datetime) -> None:
    assert to_millis(timestamp) == micros(timestamp) // 1000
    assert timedelta(0) <= timestamp - from_millis(to_millis(timestamp)) < timedelta(milliseconds=1)


@given(st.integers(-(10**13), 10**14))
def test_milliseconds_converted_to_a_time_and_back_are_unchanged(millis: int) -> None:
    assert to_millis(from_millis(millis)) == millis
    assert from_millis(millis).tzinfo is timezone.utc


@pytest.mark.parametrize(
    "timestamp",
    [
        datetime(1, 1, 1, tzinfo=timezone(timedelta(hours=2))),
        datetime.max.replace(tzinfo=timezone(-timedelta(hours=1))),
    ],
)
def test_a_time_outside_the_years_1_to_9999_in_utc_is_refused(timestamp: datetime) -> None:
    for function in (to_micros, lambda timestamp: truncate(timestamp, MINUTE)):
        with pytest.raises(TimestampRangeError, match=r"out of range: .* must be within the years 1 to 9999") as caught:
            function(timestamp)
        assert caught.value.timestamp == timestamp


def test_the_first_and_the_last_time_converted_to_microseconds_and_back_are_unchanged() -> None:
    for timestamp in (datetime.min.replace(tzinfo=timezone.utc), datetime.max.replace(tzinfo=timezone.utc)):
        assert from_micros(to_micros(timestamp)) == timestamp


def test_truncating_to_a_time_before_the_year_1_is_refused() -> None:
    with pytest.raises(TimestampRangeError, match="the timestamp rounded down to a multiple of 7 days"):
        truncate(datetime.min.replace(tzinfo=timezone.utc), timedelta(weeks=1))
