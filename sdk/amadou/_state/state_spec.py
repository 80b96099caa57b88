"""Base classes of state specs, with the code that loads, expires and migrates a subject's state."""

from collections.abc import Callable, Collection, Mapping
from datetime import timedelta
from functools import cached_property, partialmethod
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar, Final, Generic, TypeVar

from amadou._connectors.codec import Codec, codec_for
from amadou._handler.event import Key
from amadou._handler.subject import Subject
from amadou._state.encoding import Envelope, pack
from amadou._state.spec import MISSING, Spec, shown
from amadou._state.state_table import StateTable
from amadou.datatypes import Opaque, datatype, structure_of
from amadou.errors import SpecError, StateDecodeError
from amadou.event_time import MICROSECOND, to_micros

S = TypeVar("S")
NEVER: Final = -(1 << 62)
"""A time before all other times."""

OPERATORS: Final = {
    "__getitem__": "{}[…]",
    "__setitem__": "{}[…] = …",
    "__delitem__": "del {}[…]",
    "__contains__": "… in {}",
    "__iter__": "for … in {}",
    "__len__": "len({})",
}
"""The operators of containers; see `StateSpec._operators`."""
Migrate = Callable[[Any, int], Any]
"""Function that converts a value stored by an older version. The function receives the encoded value and the value's
version, and returns a value of the current type.
"""


def names_of(state: type) -> frozenset[str]:
    """Return the public names of a state class, for `StateSpec._of_subjects`."""
    return frozenset(name for name in dir(state) if not name.startswith("_")) - {"has_ttl"}


class ExpiringState:
    """A subject's state with a `ttl`: each encoded part is a pair; see `StateSpec`. Subclasses declare the slots.

    The state contains all parts that are stored. A callback sees the parts that have not expired at its time. The
    others stay for callbacks with earlier times, until `StateSpec.expire` removes them.
    """

    __slots__ = ()
    has_ttl = True
    _spec: Any

    def __init__(self, spec: "StateSpec[Any]", key: Key, encoded: Any, now: int) -> None:
        super().__init__(spec, key, encoded)  # type: ignore[call-arg] # `__init__` of the state class without a ttl
        self._see(now)

    def _see(self, now: int) -> None:
        """Set the time of the callback that uses the state, in microseconds."""
        self._now = now  # type: ignore[misc]
        self._expired_at = now - self._spec.life  # type: ignore[misc]
        """Parts that were written at this time or before have expired."""


class ExpiringParts(ExpiringState):
    """A subject's state with a `ttl` that has any number of parts."""

    __slots__ = ()
    _oldest: Callable[[], int]

    def __init__(self, spec: "StateSpec[Any]", key: Key, encoded: Any, now: int) -> None:
        super().__init__(spec, key, encoded, now)
        self._since = NEVER  # type: ignore[misc]
        """No part was written before this time."""

    def _content(self, part: Any) -> Any:
        return part[1]

    def _sees_all(self) -> bool:
        """Return `True` if no part has expired."""
        if self._since <= self._expired_at:
            self._since = self._oldest()  # type: ignore[misc]
        return bool(self._since > self._expired_at)


def are_timed(parts: Collection[Any]) -> bool:
    """Return `True` if parts of stored state are pairs of a time in microseconds and the part."""
    if not parts:
        return True
    if {*map(type, parts)} != {list} or {*map(len, parts)} != {2}:
        return False
    return {type(at) for at, _ in parts} == {int}


class VersionedSpec(Spec):
    """Base class of specs whose stored values can have an older version."""

    version: int
    _migrate: Migrate | None
    _noun = "state"
    """What messages call a stored value."""

    def _check_version(self) -> None:
        if type(self.version) is not int or self.version < 0:
            raise SpecError(f"version must be a non-negative integer, not {self.version!r}")
        if (self.version > 0) != (self._migrate is not None):
            raise SpecError("version= and migrate= go together: set both, with a version above 0, or neither")

    def is_older(self, stored: Any) -> bool:
        """Return `True` if a stored value has an older version."""
        return (stored.version if type(stored) is Envelope else 0) < self.version

    def newer(self, encoded: Any, version: int, key: Key) -> StateDecodeError:
        """Return the error for a stored value of a newer version."""
        mismatch = f"the {self._noun} has version {version}, but the spec has version {self.version}"
        advice = f"set the spec's version={version} and migrate= again"
        return StateDecodeError(encoded, self._shown_part(), mismatch, self.name, key, advice)

    def unreadable(self, error: Exception, encoded: Any, type_: Any, key: Key) -> StateDecodeError:
        """Return the error for a stored value that could not be decoded.

        :param error: the codec's exception
        """
        why = error.why if isinstance(error, StateDecodeError) else f"{type(error).__name__}: {error}"
        return StateDecodeError(encoded, type_, why, self.name, key)

    def migrated(self, part: Any, version: int, key: Key) -> Any:
        """Return the encoded form of a stored value of an older version."""
        assert self._migrate is not None
        try:
            return self.encode_part(self._migrate(part, version))
        except Exception as error:
            why = f"migrate= failed for version {version}: {type(error).__name__}: {error}"
            failed = StateDecodeError(part, self._shown_part(), why, self.name, key, "fix migrate=")
            raise failed.with_traceback(error.__traceback__) from error  # the traceback shows the lines of migrate=

    def encode_part(self, value: Any) -> Any:
        """Return the encoded form of a value."""
        raise NotImplementedError

    def _shown_part(self) -> Any:
        """Return the type of a value."""
        raise NotImplementedError

    def _structure_of(self, **parts: tuple[Any, Any]) -> dict[str, Any]:
        """Return the structure of a spec; see `StateSpec.structure`.

        :param parts: the type and the codec of each part, by name
        """
        structure = {"kind": type(self).__name__, "version": self.version}
        if not parts:
            return structure
        structures = {
            name: structure_of(datatype(type_) if codec is None else Opaque("codec"))
            for name, (type_, codec) in parts.items()
        }
        return {**structure, "shown": self.shown_type(), "parts": structures}


class StateSpec(VersionedSpec, Generic[S]):
    """Base class of specs that declare named state, stored per subject.

    State consists of parts: a single value, the values of a map or the items of a list. Each part expires separately,
    and parts from an older version are migrated one by one. With a `ttl`, each part is stored as a pair: the time at
    which the part was written, in microseconds, and the part's encoded form.
    """

    _removal = "state_for(subject).clear()"
    _of_subjects: ClassVar[frozenset[str]] = frozenset()
    """Attribute names that users may look up on the spec by mistake, instead of on a subject's state."""
    _operators: ClassVar[Mapping[str, str]] = MappingProxyType({})
    """Operators that users may apply to the spec by mistake, with the correct code for a subject's state."""
    ttl: timedelta | None
    has_timers = False
    """`True` for a spec that has timers; see `Component`."""
    is_watched = True
    """`True` if a test run checks that callbacks do not change values that they read in place."""
    counts_expired = False
    """`True` if the run counts the state that a `ttl` removes, as ``<name>.expired``."""

    def __init_subclass__(cls, **more: Any) -> None:
        super().__init_subclass__(**more)
        for operator, use in vars(cls).get("_operators", {}).items():
            setattr(cls, operator, partialmethod(cls._refuse, use))

    def _refuse(self, use: str, *_: Any) -> Any:
        raise TypeError(self._said_of_subjects(use))

    def _said_of_subjects(self, use: str) -> str:
        """Return the message for code that uses the spec as if it were a subject's state.

        :param use: the correct code, with ``{}`` as a placeholder for the state
        """
        kind, state = type(self).__name__, f"self.{self._name}.state_for(subject)"
        return f"{self._name or 'this'} is a {kind}, not the state of a subject: use {use.format(state)}"

    def _set_ttl(self, name: str | None, ttl: timedelta | None, version: int, migrate: Migrate | None) -> None:
        self._name = name
        self.ttl = ttl
        self.version = version
        self._migrate = migrate
        self.is_plain = ttl is None and not version
        """`True` if state is stored in its encoded form, without an `Envelope`."""

    @cached_property
    def life(self) -> int:
        """The `ttl` in microseconds."""
        assert self.ttl is not None
        return self.ttl // MICROSECOND

    def state_for(self, subject: Subject) -> S:
        """Return the state of a subject."""
        table = subject._tables.get(self._name) or subject._table(self.name)  # type: ignore[arg-type]
        key = subject.key
        state: S | None = table.states.get(key)
        if state is None:
            encoded = table.encoded_values.get(key, MISSING)
            if self.is_plain and type(encoded) is not Envelope:
                state = self._state(key, encoded)
            else:
                state = self.opened(key, encoded, subject)
            table.states[key] = state
            table.has_ttl = self.ttl is not None
        elif table.has_ttl:
            state._see(time_of_state(subject))  # type: ignore[attr-defined]
        return state

    def bound(self, subject: Subject) -> StateTable:
        """Check that the spec can read the stored state, and return the spec's state table. The spec may have been
        created at run time.

        :raises StateDecodeError: the spec cannot read the state
        """
        table = subject._tables.get(self.name) or subject._table(self.name)
        if table.component is not self:
            if subject._batch.keeper is not None:
                subject._batch.keeper.take(self, subject.key)
            table.component = self
        return table

    def shown(self, subject: Subject) -> Any:
        """Return a subject's state in readable form, for example for assertions in tests."""
        return self.state_for(subject)._shown()  # type: ignore[attr-defined]

    def shown_stored(self, key: Key, stored: Any, subject: Subject | None = None) -> Any:
        """Return a subject's stored state in readable form.

        :param subject: the subject of a callback, to show what the callback sees; `None` to show expired parts, too
        """
        return self.opened(key, stored, subject)._shown()  # type: ignore[attr-defined]

    def assign(self, subject: Subject, value: Any) -> None:
        """Set a subject's state, for tests.

        :param value: the value of a `ValueSpec`, a mapping for a `MapSpec`, a list for a `ListSpec`
        """
        self.state_for(subject)._assign(value)  # type: ignore[attr-defined]

    @cached_property
    def packed_structure(self) -> bytes:
        """The packed `structure`, which is stored with the state."""
        return pack(self.structure())

    def expire(self, state: Any, now: int) -> bool:
        """Remove the parts of a state object that have expired at a time. Return `True` if the state has changed.

        :param now: an event time in microseconds, such as the watermark
        """
        encoded = state._stored()
        left = encoded if encoded is MISSING else self._parts_after(encoded, now - self.life)
        if left is encoded:
            return False
        state._encoded = left
        state._changed = True
        return True

    def count_expired(self, subject: Subject) -> None:
        """Count that a subject's state has been removed because of its `ttl`."""
        subject.count(f"{self.name}.expired")

    def opened(self, key: Key, stored: Any, subject: Subject | None) -> S:
        """Return a state object for stored state of any version, with or without a `ttl`.

        :param subject: the subject of the callback that uses the state; `None` to see expired parts, too
        """
        version, had_ttl, encoded = stored if type(stored) is Envelope else (0, False, stored)
        if version > self.version:
            raise self.newer(encoded, version, key)
        if had_ttl and not self._has_times(encoded):
            why = "it is stored without the times of its writes"
            raise StateDecodeError(encoded, self._shown_part(), why, self.name, key)
        changed = False
        if encoded is not MISSING and version < self.version:
            if had_ttl and self.ttl is not None and subject is not None and (since := subject._batch.since) is not None:
                encoded = self._parts_after(encoded, since - self.life)  # what no callback can see is not migrated
            if encoded is not MISSING:
                encoded = self._converted(encoded, had_ttl, lambda part: self.migrated(part, version, key))
            changed = True
        if encoded is not MISSING and had_ttl != (self.ttl is not None):
            at = 0 if subject is None else time_of_state(subject)
            encoded = self._each_part(encoded, (lambda part: part[1]) if had_ttl else (lambda part: [at, part]))
            changed = True
        if self.ttl is None:
            state: Any = self._state(key, encoded)
        else:
            state = self._state_with_ttl(key, encoded, NEVER if subject is None else time_of_state(subject))
        state._changed |= changed
        return state  # type: ignore[no-any-return]

    def _converted(self, encoded: Any, had_ttl: bool, convert: Callable[[Any], Any]) -> Any:
        return self._each_part(encoded, (lambda part: [part[0], convert(part[1])]) if had_ttl else convert)

    def structure(self) -> dict[str, Any]:
        """Return a description of the stored state, as plain data for the checkpoint: the ``kind`` and ``version`` of
        the spec. If the spec declares types, the description also contains the structure of the ``parts`` (see
        `structure_of`) and the types as text, under ``shown``.
        """
        return self._structure_of()

    def _state(self, key: Key, encoded: Any) -> S:
        """Return a state object for stored state."""
        raise NotImplementedError

    def _state_with_ttl(self, key: Key, encoded: Any, now: int) -> S:
        """Return a state object for stored state with a `ttl`.

        :param now: the time of the callback that uses the state, in microseconds
        """
        raise NotImplementedError

    def _each_part(self, encoded: Any, convert: Callable[[Any], Any]) -> Any:
        """Return stored state with each part converted. By default, state is a single part."""
        return convert(encoded)

    def _has_times(self, encoded: Any) -> bool:
        """Return `True` if each part of stored state is a pair of a time and the part."""
        return are_timed([encoded])

    def _parts_after(self, encoded: Any, begin: int) -> Any:
        """Return stored state without the parts written at or before a time; the same object if no part is removed."""
        return encoded if encoded[0] > begin else MISSING

    if not TYPE_CHECKING:  # otherwise type checkers would accept any attribute

        def __getattr__(self, name: str) -> Any:
            self._check_attribute(name)
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

        def __setattr__(self, name: str, value: Any) -> None:
            self._check_attribute(name)
            super().__setattr__(name, value)

        def _check_attribute(self, name: str) -> None:
            if name in type(self)._of_subjects:
                raise AttributeError(self._said_of_subjects(f"{{}}.{name}"))

    def _check_ttl(self) -> None:
        if self.ttl is not None and (not isinstance(self.ttl, timedelta) or self.ttl <= timedelta(0)):
            raise SpecError(f"ttl must be a positive timedelta or None, not {self.ttl!r}")
        self._check_version()


def time_of_state(subject: Subject) -> int:
    """Return the event time of the current callback, in microseconds, for the `ttl` of state (`semantics.md` 16): the
    time of the event, but never before the watermark; or the time of the timer.
    """
    batch = subject._batch
    if batch.firing_micros is not None:
        return batch.firing_micros
    watermark = batch.last_watermark if batch.at_watermark else batch.watermark_micros
    if watermark is None:
        return to_micros(subject.timestamp)
    return watermark if batch.at_watermark else max(to_micros(subject.timestamp), watermark)


class SingleTypeSpec(StateSpec[S]):
    """Base class of state specs whose parts all have the same type."""

    _functions = ("encode", "decode")
    type: Any
    """The type of a part."""
    encode: Callable[[Any], Any]
    """Encodes a part."""
    decode: Callable[[Any], Any]
    """Decodes a part."""
    _codec: Codec[Any] | None

    def encode_part(self, value: Any) -> Any:
        return self.encode(value)

    def _shown_part(self) -> Any:
        return self.type

    def _resolve(self) -> None:
        codec = self._codec or codec_for(self.type)
        self.encode, self.decode = codec.encode, codec.decode

    def check(self) -> None:
        self._check_ttl()
        self._resolve()

    def shown_type(self) -> str:
        return shown(self.type)

    def __repr__(self) -> str:
        return f"{self.__class__.__name__}({self.shown_type()})"
