"""Checks in runs that callbacks do not change values of state in place, for a sample of the calls."""

from collections.abc import Callable
from datetime import datetime
from typing import Any, Final

from amadou.engine import watched
from amadou_runtime.core.observer import Call

_EVERY: Final = 10
"""One of this number of calls is checked."""


class InPlaceObserver:
    """Observes the callbacks of an operator; see `Observer`. A call that changes a value of state in place fails."""

    def __init__(self) -> None:
        self._calls = 0

    def observed(self, function: Callable[..., Any], call: Callable[..., Call]) -> Callable[..., Any]:
        def observed(*arguments: Any) -> Any:
            self._calls += 1
            if self._calls % _EVERY:
                return function(*arguments)
            with watched() as watch:
                returned = function(*arguments)
            watch.check()
            return returned

        return observed

    def failed(self, error: str, outputs: list[tuple[str, Any]]) -> None:
        """Do nothing."""

    def not_delivered(
        self, outcome: str, source: str, event: tuple[Any, ...], watermark: datetime | None, encoded: Any = None
    ) -> None:
        """Do nothing."""
