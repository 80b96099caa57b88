"""Checks in runs that callbacks do not change values of state in place, for a sample of the calls."""

from collections.abc import Callable
from random import random
from typing import Any, Final

from amadou.engine import Watch
from amadou_runtime.core.observer import Call, Observer

_SHARE: Final = 0.1
"""Share of the calls that are checked, drawn at random: a fixed order could leave out some keys or callbacks."""


class InPlaceObserver(Observer):
    """Lets a call fail that changes a value of state in place."""

    def observed(self, function: Callable[..., Any], call: Callable[..., Call]) -> Callable[..., Any]:
        def observed(*arguments: Any) -> Any:
            if random() >= _SHARE:
                return function(*arguments)
            with Watch() as watch:
                returned = function(*arguments)
            watch.check()
            return returned

        return observed
