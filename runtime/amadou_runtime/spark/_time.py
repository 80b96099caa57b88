"""Event time as Spark sees it.

Spark's watermark is a number of milliseconds that begins at zero, which means none, and only rises. So that times
before 1970 work like any other, all times that Spark sees count from the year 1.
"""

from datetime import UTC, datetime

from amadou._time import to_micros

_SHIFT = -to_micros(datetime.min.replace(tzinfo=UTC)) + 1000


def to_spark(micros: int) -> int:
    """Microseconds since 1970 as Spark sees them."""
    return micros + _SHIFT


def watermark_from_spark(millis: int) -> int | None:
    """Spark's watermark in microseconds since 1970; `None` before the first."""
    return None if millis <= 0 else millis * 1000 - _SHIFT


def timeout_for(timer: int) -> int:
    """The timeout, in Spark's milliseconds, that fires as soon as the watermark has reached a timer.

    Spark fires at `timeout < watermark`, a timer is due at `timer <= watermark`.
    """
    return -(-to_spark(timer) // 1000) - 1
