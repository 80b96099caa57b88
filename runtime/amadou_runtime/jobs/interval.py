"""Intervals as text, such as "90 seconds" or "1 hour"."""

import re
from datetime import timedelta

_UNITS = {"second": 1, "minute": 60, "hour": 3600, "day": 86_400}
_PART = re.compile(rf"\s*(\d+)\s+({'|'.join(_UNITS)})s?", re.IGNORECASE)


def interval(text: str) -> timedelta:
    """Return the interval that a text describes.

    :raises ValueError: the text does not describe a positive interval
    """
    parts = _PART.findall(text)
    total = timedelta(seconds=sum(int(number) * _UNITS[unit.lower()] for number, unit in parts))
    if _PART.sub("", text).strip() or not total:
        raise ValueError(f'an interval is a number with a unit, such as "90 seconds" or "1 hour", not {text!r}')
    return total
