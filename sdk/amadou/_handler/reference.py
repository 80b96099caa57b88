"""References: mappings that all keys share."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import datetime, timedelta
from types import UnionType
from typing import Annotated, Any, Final, Generic, Literal, TypeVar, Union, get_args, get_origin, overload

import attrs
from typing_extensions import TypeForm

from amadou._connectors.codec import codec_for
from amadou._connectors.connector import Source
from amadou._handler.subject import Subject
from amadou._state.encoding import Envelope, pack, unpack
from amadou._state.spec import MISSING, shown
from amadou._state.state_spec import Migrate, VersionedSpec
from amadou._state.value import ValueSpec
from amadou.errors import ReferenceKeyError, SpecError

ON_CHANGE: Final = "on_reference_changed"
"""Name of the callback for keys that watch a reference."""
_WATCHING: Final = " watching"
"""End of the name of the state with the keys that watch a reference."""
_KEYS: Final = (str, int, bytes)
K = TypeVar("K")
V = TypeVar("V")
D = TypeVar("D")


class ReferenceSpec(VersionedSpec, Generic[K, V]):
    """A mapping that all keys read, and that the events of a source update, such as rules or exchange rates::

        class Alerts(Handler):
            limits = ReferenceSpec(str, float, source="limits")

            def on_event(self, subject, event):
                if event.value.amount > self.limits[subject, event.value.currency]:
                    ...

    `key_event` turns the source's records into events: the key and the value of an event are those of an entry. The
    value `None` removes the entry. If several events have the same key, the newest by event time wins.

    All callbacks of a batch see the same entries: those after the updates in this batch (`semantics.md` 37). The source
    does not deliver its events to `on_event`, and does not hold the watermark back. Every worker has the whole mapping
    in memory.

    A handler that defines ``on_reference_changed(self, subject, change)`` is notified of updates: for each key that has
    called `watch`, before the timers and events of the batch.

    Entries are stored with the job's state, and changes of their types follow the rules for state (`semantics.md` 17).
    `migrate` is called each time that an entry of an older version is read, until an update replaces the entry.

    :param key_type: type of the keys of the entries, such as `str` or `tuple[str, int]`: one that the keys of events
        can have
    :param type: type of the values; any type that `codec_for` supports
    :param source: the name of the job's source
    :param name: the reference's name; by default the attribute's name
    :param version: the version of the type; must be a positive integer if `migrate` is set
    :param migrate: function that converts a value stored by an older version; see `ValueSpec`
    :raises SpecError: the source is not a name, or `version` and `migrate` do not go together
    """

    _usage = _removal = "get(subject, …)"
    _functions = ("encode_key", "_encode", "_decode")
    _noun = "entry"

    def __init__(
        self,
        key_type: TypeForm[K],
        type: TypeForm[V],
        *,
        source: str,
        name: str | None = None,
        version: int = 0,
        migrate: Migrate | None = None,
    ) -> None:
        if not isinstance(source, str) or not source:
            raise SpecError(f"source must be the name of a source of the job, not {source!r}")
        self.key_type: Any = key_type
        self.type: Any = type
        self.source = source
        self._name = name
        self.version = version
        self._migrate = migrate
        self._check_version()
        self.watching = ValueSpec(bool, default=False, name=None if name is None else name + _WATCHING)
        """The state with the keys that watch the reference."""
        self._defer()

    def __set_name__(self, owner: type, name: str) -> None:
        super().__set_name__(owner, name)
        self.watching._name = f"{self._name}{_WATCHING}"

    encode_key: Callable[[Any], Any]
    _encode: Callable[[Any], Any]
    _decode: Callable[[Any], Any]

    def _resolve(self) -> None:
        values = codec_for(self.type)
        self.encode_key = codec_for(self.key_type).encode
        self._encode, self._decode = values.encode, values.decode

    def encode_value(self, value: V) -> bytes:
        """Return the stored form of a value."""
        encoded = self.encode_part(value)
        return pack(Envelope(self.version, False, encoded) if self.version else encoded)

    def _decoded(self, key: Any, packed: bytes) -> V:
        """Return a stored value.

        :raises StateDecodeError: the value does not fit the type
        """
        stored = unpack(packed)
        version, _, encoded = stored if type(stored) is Envelope else (0, False, stored)
        if version > self.version:
            raise self.newer(encoded, version, key)
        if version < self.version:
            encoded = self.migrated(encoded, version, key)
        try:
            return self._decode(encoded)  # type: ignore[no-any-return]
        except Exception as error:
            raise self.unreadable(error, encoded, self.type, key) from error

    def __getitem__(self, at: tuple[Subject, K]) -> V:
        """Return the value of an entry: ``self.rules[subject, "limit"]``.

        :raises ReferenceKeyError: there is no such entry
        """
        subject, key = at
        found: Any = self.get(subject, key, MISSING)
        if found is MISSING:
            raise ReferenceKeyError(self.name, key)
        return found  # type: ignore[no-any-return]

    def __contains__(self, at: tuple[Subject, K]) -> bool:
        subject, key = at
        return self._table(subject).get(key) is not None

    @overload
    def get(self, subject: Subject, key: K) -> V | None: ...
    @overload
    def get(self, subject: Subject, key: K, default: D) -> V | D: ...
    def get(self, subject: Subject, key: K, default: Any = None) -> Any:
        """Return the value of an entry; a default if there is no such entry. Changing the value does not change the
        entry.
        """
        packed = self._table(subject).get(key)
        return default if packed is None else self._decoded(key, packed)

    def items(self, subject: Subject) -> Iterator[tuple[K, V]]:
        """Yield the keys and values of all entries, in the order in which the entries were added."""
        for key, packed in self._table(subject).items():
            yield key, self._decoded(key, packed)

    def size(self, subject: Subject) -> int:
        """Return the number of entries."""
        return len(self._table(subject))

    def watch(self, subject: Subject) -> None:
        """Let `on_reference_changed` be called for the subject's key in each batch that updates entries, until
        `unwatch`.

        :raises SpecError: the handler does not define `on_reference_changed`
        """
        if not hasattr(subject._batch.handler, ON_CHANGE):
            kind = type(subject._batch.handler).__name__
            raise SpecError(f"{kind} does not define {ON_CHANGE}(self, subject, change), which {self.name} would call")
        self.watching.state_for(subject).value = True

    def unwatch(self, subject: Subject) -> None:
        """Undo `watch`. A key that does not watch the reference is not changed."""
        self.watching.state_for(subject).clear()

    def _table(self, subject: Subject) -> Any:
        return subject._batch.references[self._name]  # type: ignore[index]  # a handler's references have names

    def shown(self, table: Mapping[Any, bytes]) -> dict[K, V]:
        """Return entries by key."""
        return {key: self._decoded(key, packed) for key, packed in table.items()}

    def encode_part(self, value: V) -> Any:
        return self._encode(value)

    def _shown_part(self) -> Any:
        return self.type

    def structure(self) -> dict[str, Any]:
        """Return a description of the stored entries; see `StateSpec.structure`."""
        structure = self._structure_of(key=(self.key_type, None), value=(self.type, None))
        return {**structure, "kind": ReferenceSpec.__name__, "source": self.source}

    def check(self) -> None:
        codec_for(self.key_type)
        codec_for(self.type)
        if not _can_be_key(self.key_type):
            raise SpecError(
                f"the keys of a ReferenceSpec are those of events: str, int, bytes or tuples of these, not "
                f"{shown(self.key_type)}"
            )

    def shown_type(self) -> str:
        return f"{shown(self.key_type)} → {shown(self.type)}"

    def __repr__(self) -> str:
        return f"ReferenceSpec({self.shown_type()}, from {self.source})"


def _can_be_key(type_: Any) -> bool:
    """Return `False` if no value of a type can be the key of an event."""
    origin, arguments = get_origin(type_), get_args(type_)
    if origin is tuple:
        return all(part is Ellipsis or _can_be_key(part) for part in arguments)
    if origin in (Union, UnionType):
        return any(map(_can_be_key, arguments))
    if origin is Annotated:
        return _can_be_key(arguments[0])
    if origin is Literal:
        return any(type(value) in _KEYS for value in arguments)
    if origin is not None or isinstance(type_, type):
        return type_ in (*_KEYS, tuple, Any)
    return True  # such as a TypeVar


def is_watching(name: str) -> bool:
    """Return `True` for the name of the state with the keys that watch a reference."""
    return name.endswith(_WATCHING)


@attrs.frozen
class ReferenceChange:
    """An update of a reference in a batch.

    :param reference: the reference's name
    :param keys: the keys of the entries that were set or removed, in the order of `semantics.md` 6
    :param timestamp: the newest time of the updates
    """

    reference: str
    keys: tuple[Any, ...]
    timestamp: datetime


class TableSource(Source):
    """The base class of sources for references that can be read completely at any time, such as a database table.

    A run reads the table before its first batch, and again before a batch once `refresh` has passed. The rows that a
    batch has seen are stored with the batch, so that the batch sees the same rows if it is processed again. A row that
    is no longer in the table removes its entry.
    """

    refresh: timedelta | None = None
    """Time between two readings of the table; `None` to read it only before the first batch of each run."""

    def records(self) -> Iterable[Any]:
        """Return the rows that are currently in the table.

        `key_event` turns a row into an entry. The timestamp of its `KeyedEvent` is not used, and can be `None`. A
        row that fails is a dead letter, and is tried again once its `repr` has changed.

        :raises SourceError: the table cannot be read
        """
        raise NotImplementedError
