import time
from datetime import timedelta
from typing import Any


def clock_time() -> int:
    """The time now, in microseconds since 1970."""
    return time.time_ns() // 1000


def seconds_or_time(value: Any) -> Any:
    """A setting that may be a number of seconds: as a `timedelta`, and as it is where that cannot be."""
    if not isinstance(value, int | float) or isinstance(value, bool):
        return value
    try:
        return timedelta(seconds=value)
    except (ValueError, OverflowError):  # no number, or beyond measure
        return value
