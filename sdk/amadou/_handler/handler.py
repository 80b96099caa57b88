from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from datetime import datetime
from functools import lru_cache
from inspect import getattr_static
from types import AsyncGeneratorType, CoroutineType, FunctionType, GeneratorType, MemberDescriptorType
from typing import TYPE_CHECKING, Any, ClassVar, Generic

from amadou._handler.event import Filtered, K, KeyedEvent
from amadou._handler.subject import Subject
from amadou._state.spec import MISSING, Spec
from amadou.errors import HandlerAttributeError, NotRunError

_running: ContextVar["Handler | None"] = ContextVar("running", default=None)
"""The handler whose callback is running in this thread."""
_assigned: dict[int, set[str]] = {}
"""By the `id` of a handler, the names of attributes that other code sets or deletes while the handler's callbacks run.
Other code is, for example, a thread that `open` started.
"""


class Handler(Generic[K]):
    """The base class of handlers. A handler processes the events of a stream by key.

    A subclass may declare the type of its keys: a `Handler[str]` has events with a `str` key, and each of its subjects
    is a `Subject[str]`. Without a declared type, type checkers treat keys as `Any`.

    `open` is called once in each worker, before the other callbacks. In each batch, `key_event` is called for each
    record from the sources, on any worker and in parallel. Then the callbacks of each key run on a single worker.
    `on_timer_expired` is called first, for the timers that the batch's watermark has reached, ordered by timestamp and
    tag. `on_event` follows for the batch's events, in the order of their source (`semantics.md` 5–7). The
    key's next callback sees the state that a callback has written.

    State belongs to subjects and is declared by specs on the class. Instance attributes are settings, and are sent to
    the workers when a run starts. Set instance attributes in `__init__` or `open`. A callback that sets an instance
    attribute fails with a `HandlerAttributeError`: other workers would not see the value, and a restart would lose it.

    Test runs also find changes that a run does not notice: a callback changes a class attribute, or changes a value in
    place after it has read it from state or assigned it. Set `check_in_place` to `False` on a class that does this on
    purpose.
    """

    check_in_place: ClassVar[bool] = True
    """`True` if test runs check that callbacks do not change class attributes, and values of state in place
    (`semantics.md` 14, 26)."""

    def open(self) -> None:
        """Called once in each worker before the first callback. Open connections and load models here."""

    def close(self) -> None:
        """Called when a run or test run on the embedded engine ends. Spark stops workers without calling `close`."""

    def key_event(self, record: Any) -> Iterable[KeyedEvent[Any, K]] | KeyedEvent[Any, K] | Filtered | None:
        """Turn a record from a source into any number of events. Not called for sources that have a `key_event=`.

        :param record: the record that the source delivers, such as the `bytes` of a line
        :returns: one event, multiple events, or `None` for no event. With `Filtered(timestamp)`, the record is no
            event, but its time advances the watermark
        """
        raise NotImplementedError

    def on_event(self, subject: Subject[K], event: KeyedEvent[Any, K]) -> None:
        """Called for each event, including late events (`subject.is_late`)."""
        raise NotImplementedError

    def on_timer_expired(self, subject: Subject[K], timestamp: datetime) -> None:
        """Called once for each timer that the watermark has reached (`semantics.md` 8–11).

        `subject.timestamp` is the timer's time, and `subject.timer_tag` is the timer's tag. `subject.watermark` is the
        new watermark, which may be far past the timer's time. Handlers that do not set timers need not define this
        callback.
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
    """Raise an error if a callback returned a generator or a coroutine. Use this function in components that call user
    functions directly; an `Invoke` performs this check itself.

    :param callback: the callback's name
    :param returned: the callback's return value
    :raises NotRunError: the value is a generator or a coroutine
    """
    if isinstance(returned, GeneratorType | CoroutineType | AsyncGeneratorType):
        if not isinstance(returned, AsyncGeneratorType):
            returned.close()  # otherwise Python warns that the coroutine was never awaited
        raise NotRunError(callback, type(returned).__name__)


@contextmanager
def callbacks_of(handler: Handler) -> Iterator[None]:
    """Within the context, prevent a handler's callbacks in this thread from changing the handler's attributes.

    :raises HandlerAttributeError: a callback changed an attribute without calling the handler's `__setattr__`
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
    """Return the values of a handler's slots. A handler that is an attrs class or a dataclass can have slots."""
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
    """Return `True` if a descriptor on the class, such as a `functools.cached_property`, sets the attribute."""
    found = getattr_static(kind, name, None)
    return hasattr(type(found), "__get__") and not isinstance(found, FunctionType)
