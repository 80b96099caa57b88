"""Time windows and their ids."""

from datetime import datetime
from functools import lru_cache
from typing import Final

import attrs

from amadou import from_millis
from amadou_plugins.window_node._errors import MessageError

_PREFIX: Final = "window-"


@attrs.frozen
class Window:
    """A time window.

    :param start: start in milliseconds since 1970
    :param size: size in milliseconds
    :param fields: the window's id and bounds, as they appear in replies
    """

    start: int
    size: int
    fields: dict[str, str]


@lru_cache(10_000)  # consecutive messages usually refer to the same windows
def window(number: int, size: int) -> Window:
    """Return the window with a given number and size.

    :param number: the start of the window, in milliseconds since 1970, divided by the size; negative before 1970
    :param size: the size in milliseconds, a positive integer
    :raises MessageError: the window begins or ends outside the years 1 to 9999
    """
    start = number * size
    try:
        bounds = {"window_start": from_millis(start), "window_end": from_millis(start + size)}
    except OverflowError:
        problem = f"the window of {size} ms that starts at {start} ms since 1970 is not within the years 1 to 9999"
        raise MessageError("window_out_of_range", f"{problem}: correct the timestamp or the size") from None
    shown = {name: _text(bound) for name, bound in bounds.items()}
    return Window(start, size, {"window_id": f"{_PREFIX}{start}", **shown})


def start_of(window_id: str) -> int | None:
    """Return the start that a window id encodes, in milliseconds since 1970; `None` if the id is invalid."""
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
