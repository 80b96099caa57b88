"""Checks in test runs that callbacks do not change a handler's class attributes."""

from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

from amadou import Handler
from amadou.errors import HandlerAttributeError, VectorizedPathError

_VALUES: Final = frozenset({str, int, float, bool, bytes})
_LARGE: Final = 1_000
"""Number of items above which a container is compared by its length only, such as a table of constants."""


@contextmanager
def class_attributes_checked(handler: Handler) -> Iterator[None]:
    """Check that callbacks do not change the class attributes of a handler that are containers, numbers or texts.

    :raises HandlerAttributeError: an attribute is not as it was at the beginning of the context
    """
    class_ = type(handler)
    before = _values_of(class_)
    try:
        yield
    except VectorizedPathError:  # the change may have made the paths differ
        _check(class_, before)
        raise
    _check(class_, before)


def _check(class_: type[Handler], before: dict[str, Any]) -> None:
    now = _values_of(class_)
    if now != before:
        name = next(name for name in {**before, **now} if before.get(name) != now.get(name))
        raise HandlerAttributeError(class_.__name__, name, "NoneType", None, "changed")


def _values_of(class_: type[Handler]) -> dict[str, Any]:
    if not class_.check_in_place:
        return {}
    found: dict[str, Any] = {}
    for owner in class_.__mro__:
        if owner not in Handler.__mro__:
            for name, value in vars(owner).items():
                if not name.startswith("__") and (form := _form(value)) is not None:
                    found.setdefault(name, form)
    return found


def _form(value: Any) -> Any:
    """Return a copy of a container, number or text, in which other objects are represented by their identity; `None` if
    it is none of these.
    """
    if type(value) in _VALUES:
        return type(value), value
    if isinstance(value, dict | list | deque | tuple | set) and len(value) > _LARGE:
        return "large", id(value), len(value)
    try:
        if isinstance(value, dict):
            return "dict", [(key, _part(part)) for key, part in value.items()]
        if isinstance(value, list | deque | tuple):
            return type(value), [_part(part) for part in value]
    except RecursionError:  # it may contain itself
        return "object", id(value)
    if isinstance(value, set):
        return "set", set(value)
    return ("bytes", bytes(value)) if isinstance(value, bytearray) else None


def _part(value: Any) -> Any:
    form = _form(value)
    return ("object", id(value)) if form is None else form
