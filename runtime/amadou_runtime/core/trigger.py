"""Checks a run's trigger, which sets the interval between batches."""

import re

AVAILABLE_NOW = "available-now"
_UNITS = "millisecond|second|minute|hour|day|week"
_PACE = re.compile(rf"\s*\d+\s+(?:{_UNITS})s?(?:\s+\d+\s+(?:{_UNITS})s?)*\s*", re.IGNORECASE)


def trigger_problem(trigger: str | None) -> str | None:
    """Return an error message if a trigger is not valid; otherwise `None`.

    :param trigger: see `run`
    """
    if trigger is None or trigger == AVAILABLE_NOW or (isinstance(trigger, str) and _PACE.fullmatch(trigger)):
        return None
    number = re.fullmatch(r"\s*(\d+)\s*(s|sec|secs)?\s*", str(trigger))
    example = f"{number[1]} seconds" if number else "5 seconds"
    return f'the trigger must be an interval with a unit, such as "{example}", or "{AVAILABLE_NOW}", not {trigger!r}'
