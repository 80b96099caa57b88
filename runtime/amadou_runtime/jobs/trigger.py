"""Checks a run's trigger, which sets the interval between batches."""

import re
from datetime import timedelta

from amadou.text import shown_value

AVAILABLE_NOW = "available-now"
_UNITS = {"millisecond": 0.001, "second": 1, "minute": 60, "hour": 3600, "day": 86_400, "week": 604_800}
_PART = rf"(\d+)\s+({'|'.join(_UNITS)})s?"
_PACE = re.compile(rf"\s*{_PART}(?:\s+{_PART})*\s*", re.IGNORECASE)


def trigger_problem(trigger: str | None) -> str | None:
    """Return an error message if a trigger is not valid; otherwise `None`.

    :param trigger: see `run`
    """
    if trigger is None or trigger == AVAILABLE_NOW:
        return None
    if isinstance(trigger, str) and _PACE.fullmatch(trigger):
        try:
            trigger_interval(trigger)
        except (OverflowError, ValueError):
            return f"the trigger must be an interval of less than a billion days, not {shown_value(trigger, 80)}"
        return None
    number = re.fullmatch(r"\s*(\d+)\s*(s|sec|secs)?\s*", str(trigger))
    example = f"{number[1]} seconds" if number else "5 seconds"
    return f'the trigger must be an interval with a unit, such as "{example}", or "{AVAILABLE_NOW}", not {trigger!r}'


def trigger_interval(trigger: str | None) -> timedelta | None:
    """Return the interval between batches; `None` if a trigger is not an interval.

    :param trigger: a valid trigger
    """
    if trigger is None or trigger == AVAILABLE_NOW:
        return None
    parts = re.findall(_PART, trigger, re.IGNORECASE)
    return timedelta(seconds=sum(int(number) * _UNITS[unit.lower()] for number, unit in parts))
