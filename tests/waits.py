"""Waits for a condition, with a time limit."""

import time
from collections.abc import Callable


def wait_for(
    condition: Callable[[], object],
    message: Callable[[], str] = lambda: "",
    *,
    has_ended: Callable[[], object] = lambda: False,
    patience: float = 240,
    pause: float = 0.05,
) -> None:
    """Wait until a condition is true.

    :param message: returns more text for the error's message
    :param has_ended: returns `True` if the condition cannot become true any more
    :param patience: number of seconds after which the wait fails
    :param pause: number of seconds between two looks at the condition
    """
    until = time.monotonic() + patience
    while not condition():
        assert not has_ended(), f"ended before the condition was true\n{message()}"
        assert time.monotonic() < until, f"the condition was not true within {patience} seconds\n{message()}"
        time.sleep(pause)
