from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from datetime import datetime
from functools import lru_cache
from inspect import getattr_static
from types import AsyncGeneratorType, CoroutineType, FunctionType, GeneratorType, MemberDescriptorType
from typing import TYPE_CHECKING, Any, Generic

from amadou._event import K, KeyedEvent
from amadou._spec import MISSING, Spec
from amadou._subject import Subject
from amadou.errors import HandlerAttributeError, NotRunError

_running: ContextVar["Handler | None"] = ContextVar("running", default=None)
"""The handler whose callbacks run in this thread."""
_assigned: dict[int, set[str]] = {}
"""Attributes that other code, such as a thread that `open` started, set while a handler's callbacks run; by the
handler's identity.
"""


class Handler(Generic[K]):
    """The base class of every handler: it processes the events of a stream, key by key.

    A subclass may name the type of its keys: a `Handler[str]` has events with a `str` key, and each of its subjects is
    a `Subject[str]`. Without it, type checkers treat keys as `Any`.

    Callbacks are called in this order. `open`: once in each worker, before anything else. `key_event`: for each record
    of the sources, anywhere and in parallel. Then, for each key in one place and one batch after the other: first
    `on_timer_expired` for the timers that the batch's watermark has reached, by timestamp and tag; then `on_event`
    for the batch's events, in the order of their source (`semantics.md` 5–7). The key's next callback sees the state
    that a callback writes.

    State belongs to subjects and is declared by specs on the class. An instance attribute is a setting: it travels to
    the workers when a run starts. Set it in `__init__` or `open`. A callback that sets one fails with a
    `HandlerAttributeError`: no other worker would see the value, nor would this worker after a restart.
    """

    def open(self) -> None:
        """Called once in each worker before the first callback. Open connections and load models here."""

    def close(self) -> None:
        """Called at the end of a run or test run on the embedded engine. Spark ends its workers without calling it."""

    def key_event(self, record: Any) -> Iterable[KeyedEvent[Any, K]] | KeyedEvent[Any, K] | None:
        """Turn a record of a source into any number of events. A source may have a `key_event=` of its own.

        :param record: the record as the source reads it, such as the `bytes` of a line
        :returns: one event, several, or `None`
        """
        raise NotImplementedError

    def on_event(self, subject: Subject[K], event: KeyedEvent[Any, K]) -> None:
        """Called for each event, including late ones (`subject.is_late`)."""
        raise NotImplementedError

    def on_timer_expired(self, subject: Subject[K], timestamp: datetime) -> None:
        """Called once for each timer that the watermark has reached (`semantics.md` 8–11).

        `subject.timestamp` is the timer's time, `subject.timer_tag` its tag and `subject.watermark` the new
        watermark, which may be far past that time. A handler that sets no timers need not define this.
        """
        raise NotImplementedError

    if not TYPE_CHECKING:  # otherwise type checkers would accept any attribute

        def __setattr__(self, name: str, value: Any) -> None:
            spec = getattr(type(self), name, None)
            hides_spec = isinstance(spec, Spec) and not isinstance(value, Spec)
            if hides_spec or _running.get() is self:
                usage = f"self.{name}.{spec._usage}" if hides_spec else None
                raise HandlerAttributeError(type(self).__name__, name, type(spec).__name__, usage)
            super().__setattr__(name, value)
            _assigned.get(id(self), set()).add(name)

        def __delattr__(self, name: str) -> None:
            spec = getattr(type(self), name, None)
            if isinstance(spec, Spec) or _running.get() is self:
                usage = f"self.{name}.{spec._removal}" if isinstance(spec, Spec) else None
                raise HandlerAttributeError(type(self).__name__, name, type(spec).__name__, usage, "deleted")
            super().__delattr__(name)
            _assigned.get(id(self), set()).add(name)


def check_ran(callback: str, returned: Any) -> None:
    """Refuse a generator or a coroutine that a callback returned. For components that call the user's functions
    directly; an `Invoke` does this check itself.

    :param callback: the callback's name
    :param returned: the value that it returned
    :raises NotRunError: the value is a generator or a coroutine
    """
    if isinstance(returned, GeneratorType | CoroutineType | AsyncGeneratorType):
        if not isinstance(returned, AsyncGeneratorType):
            returned.close()  # otherwise Python warns that it was never awaited
        raise NotRunError(callback, type(returned).__name__)


@contextmanager
def callbacks_of(handler: Handler) -> Iterator[None]:
    """Run the callbacks of a handler in this thread; they may not set its attributes.

    :raises HandlerAttributeError: a callback changed an attribute past the handler's `__setattr__`
    """
    token, before, in_slots = _running.set(handler), dict(vars(handler)), _in_slots(handler)
    elsewhere = _assigned.setdefault(id(handler), set())
    try:
        yield
    finally:
        _running.reset(token)
        _assigned.pop(id(handler), None)
    after, left = vars(handler), _in_slots(handler)
    changed = [
        name
        for name in {**before, **after}
        if before.get(name, MISSING) is not after.get(name, MISSING) and not _is_cached(type(handler), name)
    ]
    changed += [name for name, value in in_slots.items() if left.get(name, MISSING) is not value]
    for name in changed:
        if name not in elsewhere:
            did = "set" if name in after or name in left else "deleted"
            raise HandlerAttributeError(type(handler).__name__, name, "NoneType", None, did)


def _in_slots(handler: Handler) -> dict[str, Any]:
    """Return the values of a handler's slots, which attrs classes and dataclasses make."""
    found = {}
    for name, slot in _slots(type(handler)):  # type: ignore[arg-type] # mypy looks for the hash of a handler
        with suppress(AttributeError):  # not set yet
            found[name] = slot.__get__(handler)
    return found


@lru_cache(maxsize=64)
def _slots(kind: type) -> list[tuple[str, Any]]:
    members = [member for class_ in kind.__mro__ for member in vars(class_).items()]
    return [(name, member) for name, member in members if isinstance(member, MemberDescriptorType)]


def _is_cached(kind: type, name: str) -> bool:
    """Return `True` where a descriptor on the class fills an attribute, such as a `functools.cached_property`."""
    found = getattr_static(kind, name, None)
    return hasattr(type(found), "__get__") and not isinstance(found, FunctionType)
