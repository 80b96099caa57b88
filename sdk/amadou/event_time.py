"""Event time: the range of timestamps, and their conversion to microseconds or milliseconds since 1970."""

import re
from datetime import datetime, timedelta, timezone
from functools import lru_cache
from typing import Final

from amadou.errors import NaiveTimestampError, TimestampRangeError

EPOCH: Final = datetime(1970, 1, 1, tzinfo=timezone.utc)
MICROSECOND: Final = timedelta(microseconds=1)
MILLISECOND: Final = timedelta(milliseconds=1)
FIRST_TIME: Final = datetime.min.replace(tzinfo=timezone.utc)
LAST_TIME: Final = datetime.max.replace(tzinfo=timezone.utc)

# Consecutive events often fall into the same step, and handlers often set a timer for a time that they have just used.
# So the next result is often the same as the last one. This check is five times as fast as datetime arithmetic.
_last_step: tuple[timedelta, datetime, datetime] = (timedelta(0), EPOCH, EPOCH)
_last_micros: tuple[datetime, int] = (EPOCH, 0)


def truncate(timestamp: datetime, step: timedelta) -> datetime:
    """Round a timestamp down to a multiple of a step, counted from 1970-01-01T00:00Z. Times before 1970 are rounded
    down as well.

    :param timestamp: an aware datetime in any time zone
    :param step: any positive duration; a step of one day rounds down to midnight UTC
    :returns: an aware datetime in UTC
    :raises NaiveTimestampError: the timestamp has no time zone
    :raises TimestampRangeError: the timestamp or the result is outside the years 1 to 9999 in UTC
    :raises ValueError: the step is not positive
    """
    global _last_step
    last, start, end = _last_step
    try:
        if start <= timestamp < end and (last is step or last == step):
            return start
        if step <= timedelta(0):
            raise ValueError(f"the step must be positive, not {step}")
        since = timestamp - EPOCH
    except TypeError:
        raise NaiveTimestampError(timestamp) from None
    try:
        start = EPOCH + (since - since % step)
    except OverflowError:
        raise TimestampRangeError(timestamp, f"the timestamp rounded down to a multiple of {step}") from None
    try:
        _last_step = (step, start, start + step)
    except OverflowError:  # the last step before the year 10000 has no end
        return start
    return start


def to_micros(timestamp: datetime) -> int:
    """Return the exact number of microseconds between 1970-01-01T00:00Z and an aware timestamp.

    :raises NaiveTimestampError: the timestamp has no time zone
    :raises TimestampRangeError: the timestamp is outside the years 1 to 9999 in UTC
    """
    global _last_micros
    last, micros = _last_micros
    if timestamp == last:
        return micros
    try:
        micros = (timestamp - EPOCH) // MICROSECOND
    except TypeError:
        raise NaiveTimestampError(timestamp) from None
    if timestamp.tzinfo is timezone.utc:  # in other time zones, times that Python considers equal can differ (DST)
        _last_micros = (timestamp, micros)
    elif not FIRST_TIME <= timestamp <= LAST_TIME:
        raise TimestampRangeError(timestamp)
    return micros


BEGINNING_OF_TIME: Final = to_micros(FIRST_TIME)
"""`FIRST_TIME` in microseconds."""
END_OF_TIME: Final = to_micros(LAST_TIME)
"""`LAST_TIME` in microseconds: the last possible watermark. Windows and joins that are due later fire at this time."""


@lru_cache(4096)  # many keys have entries and timers at the same few times
def from_micros(micros: int) -> datetime:
    """Return the UTC timestamp for a number of microseconds since 1970-01-01T00:00Z."""
    return EPOCH + micros * MICROSECOND  # twice as fast as creating a timedelta


_MIDNIGHT: Final = re.compile(r"(.{8,10}[T ])24(:?00(?::?00(?:[.,]0+)?)?)?(Z|[+-].*)?")
_LEAP_SECOND: Final = re.compile(r".{8,10}[T ][0-9]{2}:?[0-9]{2}:?60")


def from_text(text: str) -> datetime:
    """Return the time of a text in the format of ISO 8601 or RFC 3339. Hour 24 is the end of a day, and ``t`` and ``z``
    can be lower-case.

    :returns: a datetime, which is naive if the text has no time zone
    :raises ValueError: the text is not a time, or its second is a leap second, which a datetime cannot express
    """
    try:
        return datetime.fromisoformat(text)
    except ValueError:
        return _from_rare_text(text)


def _from_rare_text(text: str) -> datetime:
    """Return the time of a text that Python does not read; see `from_text`."""
    upper = text.upper()
    midnight = _MIDNIGHT.fullmatch(upper)
    try:
        if midnight is None:
            return datetime.fromisoformat(upper)
        day, minutes, zone = (part or "" for part in midnight.groups())
        return datetime.fromisoformat(f"{day}00{minutes}{zone}") + timedelta(days=1)
    except ValueError as error:
        if _LEAP_SECOND.match(upper):
            raise ValueError("second 60 is a leap second: use 59, or 0 of the next minute") from None
        raise ValueError(str(error).replace(upper, text)) from None


def to_millis(timestamp: datetime) -> int:
    """Return the number of milliseconds between 1970-01-01T00:00Z and an aware timestamp, rounded down.

    :raises NaiveTimestampError: the timestamp has no time zone
    """
    try:
        return (timestamp - EPOCH) // MILLISECOND
    except TypeError:
        raise NaiveTimestampError(timestamp) from None


def from_millis(millis: int) -> datetime:
    """Return the UTC timestamp for a number of milliseconds since 1970-01-01T00:00Z."""
    return EPOCH + timedelta(milliseconds=millis)
