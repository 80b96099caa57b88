"""Shows numbers and times as text."""

from collections.abc import Callable
from datetime import datetime
from typing import Any, Final

_NONE: Final = "–"
_CUT: Final = 120


def shown_seconds(seconds: float | None) -> str:
    """Return a duration as text with two units at most."""
    if seconds is None:
        return _NONE
    sign, seconds = ("-" if seconds < 0 else ""), abs(seconds)
    if seconds < 1:
        return f"{sign}{seconds * 1000:.0f} ms"
    if seconds < 60:
        return f"{sign}{seconds:.1f} s"
    for unit, size, small, rest in (("min", 60, "s", 1), ("h", 3600, "min", 60), ("days", 86400, "h", 3600)):
        if unit == "days" or seconds < size * (60 if unit == "min" else 24):
            whole, left = divmod(seconds, size)
            return f"{sign}{whole:,.0f} {unit} {left // rest:.0f} {small}"
    raise AssertionError("the last unit fits")


def shown_number(number: float | None) -> str:
    """Return a number with separators of thousands."""
    if number is None:
        return _NONE
    return f"{number:,.0f}" if number == int(number) or number >= 100 else f"{number:,.{1 if number >= 10 else 2}f}"


def shown_figure(value: float | None, unit: str) -> str:
    """Return a figure with its unit; see `Series`."""
    if unit == "s":
        return shown_seconds(value)
    return f"{shown_number(value)}{' per second' if unit and value is not None else ''}"


def shown_time(time: datetime | str | None) -> str:
    """Return a time in UTC, to the second."""
    if time is None:
        return _NONE
    moment = datetime.fromisoformat(time) if isinstance(time, str) else time
    return f"{moment:%Y-%m-%d %H:%M:%S}"


def cut(text: str) -> str:
    """Return the first line of a text, shortened."""
    line = (text.splitlines() or [""])[0]
    return line if len(line) <= _CUT else f"{line[:_CUT]}…"


FILTERS: Final[dict[str, Callable[..., Any]]] = {
    "seconds": shown_seconds,
    "number": shown_number,
    "figure": shown_figure,
    "time": shown_time,
    "cut": cut,
}
"""The filters of the page templates."""
