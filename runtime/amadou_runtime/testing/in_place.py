"""Checks in test runs that callbacks do not change a handler's class attributes."""

from collections import deque
from typing import Any, Final

from amadou import Handler
from amadou.errors import HandlerAttributeError

_VALUES: Final = frozenset({str, int, float, bool, bytes})


class ClassAttributes:
    """The class attributes of a handler that are lists, dicts, sets, numbers or texts."""

    def __init__(self, handler: Handler) -> None:
        self._class = type(handler)
        self._is_checked = self._class.check_in_place
        self._before = self._now()

    def check(self) -> None:
        """Check that the attributes are as they were at the last call of this method.

        :raises HandlerAttributeError: a callback has changed an attribute
        """
        now = self._now()
        before, self._before = self._before, now
        if now != before:
            name = next(name for name in {**before, **now} if before.get(name) != now.get(name))
            raise HandlerAttributeError(self._class.__name__, name, "NoneType", None, "changed")

    def _now(self) -> dict[str, Any]:
        if not self._is_checked:
            return {}
        found: dict[str, Any] = {}
        for class_ in self._class.__mro__:
            if issubclass(class_, Handler) and class_ is not Handler:
                for name, value in vars(class_).items():
                    if not name.startswith("__") and (form := _form(value)) is not None:
                        found.setdefault(name, form)
        return found


def _form(value: Any) -> Any:
    """Return a copy of a container, number or text, in which other objects are represented by their identity; `None` if
    it is none of these.
    """
    if type(value) in _VALUES:
        return type(value), value
    if isinstance(value, dict):
        return "dict", [(key, _part(part)) for key, part in value.items()]
    if isinstance(value, list | deque):
        return "list", [_part(part) for part in value]
    if isinstance(value, set):
        return "set", set(value)
    return ("bytes", bytes(value)) if isinstance(value, bytearray) else None


def _part(value: Any) -> Any:
    form = _form(value)
    return ("object", id(value)) if form is None else form
