import time
from datetime import timedelta
from typing import Any


def clock_time() -> int:
    """Return the current time in microseconds since 1970."""
    return time.time_ns() // 1000


def seconds_or_time(value: Any) -> Any:
    """Convert a number of seconds into a `timedelta`. Return other values, and numbers out of range, unchanged."""
    if not isinstance(value, int | float) or isinstance(value, bool):
        return value
    try:
        return timedelta(seconds=value)
    except (ValueError, OverflowError):  # NaN, or too large
        return value
