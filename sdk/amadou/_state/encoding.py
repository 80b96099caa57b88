"""amadou's msgpack encoding, which preserves exact types and has extensions for types that msgpack lacks."""

import sys
import threading
from collections.abc import Callable, Mapping
from datetime import date, datetime, timedelta
from decimal import Decimal
from functools import lru_cache
from types import ModuleType
from typing import Any, Final, NamedTuple

import attrs
import msgpack

from amadou.errors import AmadouError, EncodeError, NaiveTimestampError, StateDecodeError, UnsupportedTypeError
from amadou.event_time import MICROSECOND

# The numbers are part of the format of stored state: never reuse one.
_TUPLE, _SET, _FROZENSET, _DATE, _TIMEDELTA, _DECIMAL, _UUID, _BIG_INT, _OBJECT, _ENVELOPE = range(1, 11)

MAX_NESTING: Final = 64
"""Maximum nesting depth of tuples, sets and classes. Decoding one level uses 45 kB of the stack, and some threads have
a stack of only 8 MB. Lists and dicts alone may be nested 1,024 levels deep, which is msgpack's limit.
"""
TOO_DEEP: Final = f"it is nested deeper than {MAX_NESTING} tuples, sets or classes, or 1,024 lists or dicts"
_NO_SUCH_TIME: Final = "it contains a time before the year 1 or after the year 9999 in UTC"
_LONG_TIME: Final = b"\xc7\x0c\xff"
"""First bytes of a packed time before 1970 or after 2514. Only a packed time that starts with these bytes can be
unreadable."""

_PACKAGES: Final = ("amadou", "amadou_plugins")
_UNPACK_OPTIONS: Final[dict[str, Any]] = {"timestamp": 3, "strict_map_key": False}


class Envelope(NamedTuple):
    """Stored state of a spec with a version or a ttl."""

    version: int
    has_ttl: bool
    """`True` if each part is stored as a pair: the time of the part's last write, in microseconds, and the encoded
    part."""
    encoded: Any


@attrs.frozen
class StoredObject:
    """An object as it is stored: it can be shown, compared and stored again without its class.

    :param packed: the other two in packed form
    :param type: the name of its class; see `type_reference`
    :param encoded: the encoded form of its fields
    """

    packed: bytes
    type: str = attrs.field(eq=False)
    encoded: Any = attrs.field(eq=False)

    @classmethod
    def of(cls, packed: bytes) -> "StoredObject":
        """Return the object whose packed form this is.

        :raises StateDecodeError: this is not the packed form of an object
        """
        parts = unpack_stored(packed)
        if type(parts) is not list or len(parts) != 2 or type(parts[0]) is not str:
            raise StateDecodeError(packed, Any, "an object has the name of a class, and fields")
        return cls(packed, *parts)

    def __repr__(self) -> str:
        has_fields = type(self.encoded) is dict and all(type(name) is str for name in self.encoded)
        fields = [f"{name}={part!r}" for name, part in self.encoded.items()] if has_fields else [repr(self.encoded)]
        return f"{self.type.rpartition(':')[2].rpartition('.')[2]}({', '.join(fields)})"


_known_types: dict[str, type] = {}


def pack(value: Any) -> bytes:
    """Encode a value as msgpack bytes.

    :raises EncodeError: msgpack does not support the value or a part of it
    :raises NaiveTimestampError: the value contains a datetime without a time zone
    """
    try:
        packed: bytes = _packer.pack(value)
        if _LONG_TIME in packed:
            _check_times(packed)
    except RecursionError as error:
        _packer.reset()
        if is_nested():  # reported once, for the whole value
            raise
        raise EncodeError(value, Any, TOO_DEEP) from error
    except (ValueError, OverflowError) as error:
        _packer.reset()
        why = TOO_DEEP if str(error).startswith("recursion limit exceeded") else str(error)
        raise EncodeError(value, Any, why) from error
    except BaseException:
        _packer.reset()
        raise
    return packed


def unpack(data: bytes) -> Any:
    """Return the value that `pack` encoded as these bytes.

    :raises StateDecodeError: the bytes cannot be unpacked
    """
    return _unpacked(data, _from_extension)


def unpack_stored(data: bytes) -> Any:
    """Return the value that `pack` encoded as these bytes, with a `StoredObject` in place of each object of a class.

    :raises StateDecodeError: the bytes cannot be unpacked
    """
    return _unpacked(data, _stored_from_extension)


def _unpacked(data: bytes, from_extension: Callable[[int, bytes], Any]) -> Any:
    try:
        return msgpack.unpackb(data, ext_hook=from_extension, **_UNPACK_OPTIONS)
    except AmadouError:
        raise
    except Exception as error:
        raise _undecodable(data, error) from error


def unpack_all(joined: bytes) -> list[Any]:
    """Return the values whose packed bytes are concatenated. Far faster than unpacking each value separately.

    :raises StateDecodeError: the bytes cannot be unpacked
    """
    unpacker = msgpack.Unpacker(ext_hook=_from_extension, max_buffer_size=0, **_UNPACK_OPTIONS)
    unpacker.feed(joined)
    try:
        return list(unpacker)
    except AmadouError:
        raise
    except Exception as error:
        raise _undecodable(joined, error) from error


def _undecodable(data: bytes, error: Exception) -> StateDecodeError:
    """Return the error for bytes on which msgpack, or the constructor of a type, has failed."""
    if isinstance(error, RecursionError | msgpack.StackError):
        return StateDecodeError(data, Any, TOO_DEEP)
    if isinstance(error, OverflowError):
        return StateDecodeError(data, Any, _NO_SUCH_TIME)
    return StateDecodeError(data, Any, f"they are no packed value ({type(error).__name__}: {error})")


def unpack_times(data: bytes) -> list[int]:
    """Return the timestamps of a packed list, as microseconds since 1970."""
    return [nanos // 1000 for nanos in msgpack.unpackb(data, timestamp=2)]


def know_types(types: Mapping[str, type]) -> None:
    """Register classes that are not found in their module by their name, such as the classes of a `__main__` script in
    a worker. Classes that an earlier call registered are removed.

    :param types: the classes by their `type_reference`
    """
    _known_types.clear()
    _known_types.update(types)


def type_reference(type_: type) -> str:
    """Return the name that identifies a class in packed values: `MODULE:QUALNAME`. A class that amadou exports has the
    package that exports it as its module: its own module can change.
    """
    return _reference_to(type_)


@lru_cache(maxsize=1024)
def _reference_to(type_: type) -> str:
    exporting = _exporting(type_.__module__)
    module = exporting if _found_in(exporting, type_.__qualname__) is type_ else type_.__module__
    return f"{module}:{type_.__qualname__}"


def _exporting(module: str) -> str:
    """Return the package that exports the classes of one of amadou's private modules; otherwise the module itself."""
    return module.partition("._")[0] if module.partition(".")[0] in _PACKAGES else module


def _found_in(module: str, qualname: str) -> Any:
    """Return what a module that is imported has under a name; `None` if it has nothing."""
    found: Any = sys.modules.get(module)
    for name in qualname.split("."):
        found = vars(found).get(name) if isinstance(found, type | ModuleType) else None
    return found


def _to_extension(value: Any) -> Any:
    kind = type(value)
    if kind in _PACKED_AS:
        code, packed = _PACKED_AS[kind]
        return msgpack.ExtType(code, packed(value))
    if kind is set or kind is frozenset:
        # sorted by packed members, because this order is the same in every process
        members = b"".join(sorted(map(pack_nested, value)))
        header = _new_packer().pack_array_header(len(value))
        return msgpack.ExtType(_SET if kind is set else _FROZENSET, header + members)
    if isinstance(value, datetime):
        if value.utcoffset() is None:
            raise NaiveTimestampError(value)
        return datetime.fromisoformat(value.isoformat())  # a subclass, such as pandas.Timestamp
    if is_uuid(kind):
        return msgpack.ExtType(_UUID, value.bytes)
    if isinstance(value, dict):
        return dict(value)
    if isinstance(value, list):
        return list(value)
    from amadou._connectors.codec import codec_for  # the codecs are built on this module

    try:
        if kind is object:
            raise UnsupportedTypeError(kind, "it has no fields")
        codec = codec_for(kind)
    except UnsupportedTypeError as error:
        raise EncodeError(value, Any, f"{type_reference(kind)} is not supported: {error.why}") from None
    reference = type_reference(kind)
    if "<locals>" in reference and reference not in _known_types:
        raise EncodeError(value, Any, "a class defined inside a function cannot be imported: define it in a module")
    return msgpack.ExtType(_OBJECT, nested(_pack_object, (reference, codec, value)))


def pack_nested(value: Any) -> bytes:
    """Pack a value inside another value that is being packed."""
    return nested(_new_packer().pack, value)  # type: ignore[no-any-return]


_PACKED_AS: Final[Mapping[type, tuple[int, Callable[[Any], bytes]]]] = {
    tuple: (_TUPLE, lambda value: pack_nested(list(value))),
    Envelope: (_ENVELOPE, lambda value: pack_nested(list(value))),
    date: (_DATE, lambda value: value.toordinal().to_bytes(4, "big")),
    timedelta: (_TIMEDELTA, lambda value: pack_nested(value // MICROSECOND)),
    Decimal: (_DECIMAL, lambda value: str(value).encode()),
    int: (_BIG_INT, lambda value: value.to_bytes(value.bit_length() // 8 + 1, "big", signed=True)),
    StoredObject: (_OBJECT, lambda value: value.packed),
}
"""The extension and the packed form of values of types that msgpack lacks, and of integers with more than 64 bits."""


def nested(function: Callable[[Any], Any], value: Any) -> Any:
    """Call a function with a nested value, and track the nesting depth.

    :raises RecursionError: the value is nested deeper than `MAX_NESTING`
    """
    if _nesting.depth == MAX_NESTING:
        raise RecursionError(TOO_DEEP)
    _nesting.depth += 1
    try:
        return function(value)
    finally:
        _nesting.depth -= 1


def is_nested() -> bool:
    """Return `True` while a nested value is being encoded or decoded."""
    return _nesting.depth > 0


class _Nesting(threading.local):
    depth = 0


_nesting = _Nesting()


def _pack_object(parts: tuple[str, Any, Any]) -> bytes:
    """Pack an object with the codec of its class. The object needs a new packer: the current packer's only buffer is in
    use, and the codec may call `pack`.
    """
    global _packer
    reference, codec, value = parts
    busy, _packer = _packer, _new_packer()
    try:
        return pack([reference, codec.encode(value)])
    finally:
        _packer = busy


def is_uuid(type_: Any) -> bool:
    """Return `True` for the class `UUID`, which is not imported here, because importing uuid is slow."""
    return getattr(type_, "__name__", "") == "UUID" and type_.__module__ == "uuid"


def _check_times(packed: bytes) -> None:
    """Check that all times in packed bytes can be read back.

    :raises OverflowError: a time is before the year 1 or after the year 9999 in UTC
    """

    def inside(code: int, data: bytes) -> None:
        if code in (_TUPLE, _SET, _FROZENSET, _ENVELOPE, _OBJECT):
            _check_times(data)

    try:
        msgpack.unpackb(packed, ext_hook=inside, **_UNPACK_OPTIONS)
    except OverflowError as error:
        raise OverflowError(_NO_SUCH_TIME) from error


def _from_extension(code: int, data: bytes, unpack: Callable[[bytes], Any] = unpack) -> Any:
    if code == _TUPLE:
        return tuple(nested(unpack, data))
    if code == _SET:
        return set(nested(unpack, data))
    if code == _FROZENSET:
        return frozenset(nested(unpack, data))
    if code == _DATE:
        return date.fromordinal(int.from_bytes(data, "big"))
    if code == _TIMEDELTA:
        return timedelta(microseconds=unpack(data))
    if code == _DECIMAL:
        return Decimal(data.decode())
    if code == _UUID:
        from uuid import UUID

        return UUID(bytes=data)
    if code == _BIG_INT:
        return int.from_bytes(data, "big", signed=True)
    if code == _ENVELOPE:
        envelope = Envelope(*nested(unpack, data))
        if type(envelope.version) is not int or envelope.version < 0 or type(envelope.has_ttl) is not bool:
            raise StateDecodeError(data, Any, "a state has a version, and says whether it has times")
        return envelope
    if code == _OBJECT:
        return nested(_object_from, data)
    raise StateDecodeError(data, Any, f"amadou does not support the msgpack extension type {code}")


def _stored_from_extension(code: int, data: bytes) -> Any:
    return nested(StoredObject.of, data) if code == _OBJECT else _from_extension(code, data, unpack_stored)


def _object_from(data: bytes) -> Any:
    from amadou._connectors.codec import codec_for

    reference, encoded = unpack(data)
    if type(reference) is not str:
        raise StateDecodeError(reference, Any, "this is not the name of a class")
    return codec_for(_type_behind(reference)).decode(encoded)


def _type_behind(reference: str) -> type:
    known = _known_types.get(reference)
    if known is not None:
        return known
    module, _, qualname = reference.partition(":")
    found = _found_in(module, qualname) or _found_in(_exporting(module), qualname)
    if found is None and module not in sys.modules:
        why = f"the module {module} is not imported: list the class in Job(types=[…])"
        raise StateDecodeError(reference, Any, f"the class {reference} is not known: {why}")
    if not isinstance(found, type) or found in (StoredObject, Envelope):  # these two stand for other values
        raise StateDecodeError(reference, Any, f"the class {reference} is not known: {module} has no such class")
    _known_types[reference] = found
    return found


def _new_packer() -> Any:
    return msgpack.Packer(default=_to_extension, datetime=True, strict_types=True)


_packer = _new_packer()
