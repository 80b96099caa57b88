"""The window of a time, and the id of a window."""

from datetime import datetime
from functools import lru_cache
from typing import Final

import attrs

from amadou import from_millis
from amadou_plugins.window_node._errors import MessageError

_PREFIX: Final = "window-"


@attrs.frozen
class Window:
    """A window of time.

    :param start: start in milliseconds since 1970
    :param size: size in milliseconds
    :param told: its id and its bounds, as replies have them
    """

    start: int
    size: int
    told: dict[str, str]


@lru_cache(10_000)  # neighbouring messages concern the same windows
def window(number: int, size: int) -> Window:
    """Return the window of a number and a size. The number of a time is the time divided by the size, rounded down,
    also before 1970.

    :param size: the size in milliseconds, above zero
    :raises MessageError: the window is not within the years 1 to 9999
    """
    start = number * size
    try:
        bounds = {"window_start": from_millis(start), "window_end": from_millis(start + size)}
    except OverflowError:
        told = f"a window of {size} ms there is not within the years 1 to 9999"
        raise MessageError("window_out_of_range", told) from None
    shown = {name: _text(bound) for name, bound in bounds.items()}
    return Window(start, size, {"window_id": f"{_PREFIX}{start}", **shown})


def start_of(window_id: str) -> int | None:
    """Return the start of the windows of an id, in milliseconds since 1970; `None` where no window can have the id."""
    digits = window_id.removeprefix(_PREFIX)
    if len(digits) > 16 or not digits.removeprefix("-").isdecimal():
        return None
    start = int(digits)
    try:
        from_millis(start)
    except OverflowError:
        return None
    return start if window_id == f"{_PREFIX}{start}" else None


def _text(timestamp: datetime) -> str:
    precision = "milliseconds" if timestamp.microsecond else "seconds"
    return timestamp.isoformat(timespec=precision).replace("+00:00", "Z")
