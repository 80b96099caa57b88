"""Checks in test runs that callbacks do not change a handler's class attributes."""

from collections import deque
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from operator import is_
from typing import Any, Final, NamedTuple, TypeAlias

from amadou import Handler
from amadou.errors import HandlerAttributeError, VectorizedPathError

Attribute: TypeAlias = tuple[type, str]
"""The class that has an attribute, and its name."""
_EQUAL: Final = frozenset({str, int, float, bool, bytes})
"""Types of which an equal value is no change. Python may have one or several objects for it."""
_WITHOUT_PARTS: Final = frozenset({*_EQUAL, type(None)})
"""The most frequent types of objects that are not containers."""
_LARGE: Final = 1_000
"""Number of items above which a container is compared by its length only, such as a table of constants."""
_checked: dict[type, "_Attributes"] = {}
"""By class, the attributes that are being checked."""


@contextmanager
def class_attributes_checked(handler: Handler) -> Iterator[None]:
    """Check that callbacks neither set the class attributes of a handler nor change those that are containers. Within
    another context for the same class, do nothing.

    :raises HandlerAttributeError: an attribute is not as it was at the beginning of the context
    """
    class_ = type(handler)
    if not class_.check_in_place or class_ in _checked:
        yield
        return
    _checked[class_] = _Attributes(class_)
    try:
        yield
        _checked[class_].check()
    except VectorizedPathError:  # the change may have made the paths differ
        _checked[class_].check()
        raise
    finally:
        del _checked[class_]


@contextmanager
def class_attributes_unchecked(handler: Handler) -> Iterator[None]:
    """Within a context of `class_attributes_checked`, let code that is no callback change class attributes."""
    class_ = type(handler)
    if class_ in _checked:
        _checked[class_].check()
    yield
    if class_ in _checked:
        _checked[class_] = _Attributes(class_)


class _Parts(NamedTuple):
    """What can change in a container.

    :param shape: what is compared by equality: the keys of a dict, a set, bytes, or the length of a large container
    :param items: what is compared by identity
    """

    shape: Any
    items: list[Any]

    def are_same(self, now: "_Parts") -> bool:
        """Return `True` if a container that had these parts has not changed."""
        if len(self.items) != len(now.items) or type(self.shape) is not type(now.shape) or self.shape != now.shape:
            return False
        # most items are the same objects, and a loop in Python would take far longer
        return all(map(is_, self.items, now.items)) or all(map(_is_same, self.items, now.items))


class _Attributes:
    """The class attributes of a handler as they were."""

    def __init__(self, class_: type[Handler]) -> None:
        self._class = class_
        self._values = _values_of(class_)
        self._containers = [*_containers_in(self._values)]

    def check(self) -> None:
        """Check that the attributes are as they were.

        :raises HandlerAttributeError: an attribute is not
        """
        for _, name in self._changed():
            raise HandlerAttributeError(self._class.__name__, name, "NoneType", None, "changed")

    def _changed(self) -> Iterator[Attribute]:
        before, now = self._values, _values_of(self._class)
        for attribute in {**before, **now}:
            if attribute not in before or attribute not in now or not _is_same(before[attribute], now[attribute]):
                yield attribute
        for attribute, container, parts in self._containers:
            if not parts.are_same(_parts_of(container) or _Parts(None, [])):
                yield attribute


def _values_of(class_: type[Handler]) -> dict[Attribute, Any]:
    return {
        (owner, name): value
        for owner in class_.__mro__
        if owner not in Handler.__mro__
        for name, value in vars(owner).items()
        if not name.startswith("__")
    }


def _containers_in(values: Mapping[Attribute, Any]) -> Iterator[tuple[Attribute, Any, _Parts]]:
    """Return the containers that attributes refer to, and those inside them, with their parts."""
    seen: set[int] = set()  # a container may contain itself
    left = [*values.items()]
    while left:
        attribute, value = left.pop()
        parts = None if type(value) in _WITHOUT_PARTS or id(value) in seen else _parts_of(value)
        if parts is not None:
            seen.add(id(value))
            yield attribute, value, parts
            if not _WITHOUT_PARTS.issuperset(map(type, parts.items)):
                left += [(attribute, item) for item in parts.items]


def _parts_of(value: Any) -> _Parts | None:
    """Return the parts of an object; `None` if it is no container."""
    if not isinstance(value, dict | list | deque | tuple | set):
        content = _content_of(value)
        return None if content is None else _Parts(content, [])
    if len(value) > _LARGE:
        return _Parts(len(value), [])
    if isinstance(value, set):
        return _Parts(set(value), [])
    return _Parts([*value], [*value.values()]) if isinstance(value, dict) else _Parts(None, [*value])


def _content_of(value: Any) -> bytes | int | None:
    """Return the content of a `bytearray` or an array, such as one of `array` or NumPy; its size if it is large."""
    try:
        with memoryview(value) as view:
            return None if view.readonly else view.nbytes if view.nbytes > _LARGE else view.tobytes()
    except (TypeError, ValueError, BufferError):  # it has no buffer, or one that cannot be read
        return None


def _is_same(before: Any, now: Any) -> bool:
    return before is now or (type(before) is type(now) and type(now) in _EQUAL and bool(before == now))
