import types
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from enum import Enum
from functools import cache
from typing import Any, Final, Generic, Literal, Protocol, TypeVar, Union, get_args, get_origin
from uuid import UUID

import attrs
from cattrs import BaseConverter, Converter
from cattrs.errors import BaseValidationError, StructureHandlerNotFoundError

from amadou._wire import pack, unpack
from amadou.errors import AmadouError, EncodeError, NaiveTimestampError, StateDecodeError, UnsupportedTypeError

T = TypeVar("T")


class Codec(Protocol[T]):
    """Turns values of one type into what msgpack carries, and back.

    What `encode` returns must share nothing that can change with the value, and `decode` must make a new value: this
    is what keeps state free of aliasing (`semantics.md` 14).
    """

    def encode(self, value: T) -> Any:
        """The wire form of a value: `None`, `bool`, `int`, `float`, `str`, `bytes`, aware datetimes in UTC, `date`,
        `timedelta`, `Decimal`, `UUID`, and lists and dicts of those.

        :raises EncodeError: the value does not fit the type
        """

    def decode(self, wire: Any) -> T:
        """The value of a wire form.

        :raises StateDecodeError: the wire form does not fit the type
        """


SCALARS: Final = (str, int, float, bool, bytes)
_LEAVES: Final = (*SCALARS, type(None), datetime, date, timedelta, Decimal, UUID)
_BARE: Final = (list, dict, tuple, set, frozenset, object, Any)


def codec_for(type_: Any) -> Codec[Any]:
    """The codec of a type.

    Scalars (`str`, `int`, `float`, `bool`, `bytes`) are checked and go through with no conversion; `datetime` (comes
    back in UTC), `date`, `timedelta`, `Decimal` and `UUID` likewise. Enums, typed containers, `Optional`, unions,
    attrs classes, dataclasses and named tuples go through cattrs; `Any`, bare containers and type variables carry
    whatever msgpack does, attrs classes and dataclasses included.

    :raises UnsupportedTypeError: for any other type, with the reason
    """
    try:
        return _codec_for(type_)
    except TypeError:  # not hashable, so no type
        raise UnsupportedTypeError(type_, "it is not a type") from None


@cache
def _codec_for(type_: Any) -> Codec[Any]:
    if type_ in _BARE or isinstance(type_, TypeVar):
        return _AnyCodec(type_)
    if type_ is None or type_ in _LEAVES:
        return _LeafCodec(type(None) if type_ is None else type_)
    _check_supported(type_, type_)
    try:
        return _StructuredCodec(type_)
    except (StructureHandlerNotFoundError, TypeError, NameError) as error:
        raise UnsupportedTypeError(type_, str(error)) from error


class _LeafCodec(Generic[T]):
    def __init__(self, type_: type[T]) -> None:
        self.type = type_
        self.is_datetime = type_ is datetime

    def encode(self, value: T) -> Any:
        if type(value) is self.type and not self.is_datetime:
            return value
        return _leaf_to_wire(value, self.type)

    def decode(self, wire: Any) -> T:
        if type(wire) is self.type:
            return wire
        return _leaf_from_wire(wire, self.type)  # type: ignore[no-any-return]


class _AnyCodec:
    def __init__(self, type_: Any) -> None:
        self.type = type_

    def encode(self, value: Any) -> bytes:
        if self.type in (list, dict, tuple, set, frozenset) and not isinstance(value, self.type):
            raise EncodeError(value, self.type)
        return pack(value)

    def decode(self, wire: Any) -> Any:
        if type(wire) is not bytes:
            raise StateDecodeError(wire, self.type)
        value = unpack(wire)
        if self.type in (list, dict, tuple, set, frozenset) and not isinstance(value, self.type):
            raise StateDecodeError(value, self.type)
        return value


class _StructuredCodec(Generic[T]):
    def __init__(self, type_: type[T]) -> None:
        self.type = type_
        self._unstructure = _converter.get_unstructure_hook(type_)
        self._structure = _converter.get_structure_hook(type_)
        checked = object if _is_union(type_) else get_origin(type_) or type_
        self._class = checked if isinstance(checked, type) else object

    def encode(self, value: T) -> Any:
        if not isinstance(value, self._class):
            raise EncodeError(value, self.type)
        try:
            return self._unstructure(value)
        except AmadouError as error:
            if isinstance(error, EncodeError) and error.value is not value:
                raise EncodeError(value, self.type, str(error)) from error
            raise
        except (AttributeError, TypeError, ValueError, KeyError) as error:
            raise EncodeError(value, self.type, f"{type(error).__name__}: {error}") from error

    def decode(self, wire: Any) -> T:
        try:
            return self._structure(wire, self.type)  # type: ignore[no-any-return]
        except BaseValidationError as error:
            raise StateDecodeError(wire, self.type, "; ".join(_leaf_messages(error))) from error
        except StateDecodeError as error:
            raise StateDecodeError(wire, self.type, str(error)) from error
        except (TypeError, ValueError, KeyError, AttributeError) as error:
            raise StateDecodeError(wire, self.type, f"{type(error).__name__}: {error}") from error


def _leaf_messages(error: BaseException) -> list[str]:
    if isinstance(error, BaseExceptionGroup):
        return [message for inner in error.exceptions for message in _leaf_messages(inner)]
    return [str(error)]


def _leaf_to_wire(value: Any, type_: Any) -> Any:
    if isinstance(value, type_) and not (type_ is date and isinstance(value, datetime)):
        if type_ is datetime:
            if value.utcoffset() is None:
                raise NaiveTimestampError(value)
            # equal to, but cheaper than, a conversion where there is nothing to convert
            return value if value.tzinfo is UTC and type(value) is datetime else _exact_datetime(value)
        return value if type(value) is type_ else _exact_leaf(value, type_)
    if type_ is float and isinstance(value, int):
        return float(value)
    raise EncodeError(value, type_)


def _exact_datetime(value: datetime) -> datetime:
    return datetime.fromisoformat(value.astimezone(UTC).isoformat())


def _exact_leaf(value: Any, type_: Any) -> Any:
    """The value of a subclass (`StrEnum`, `numpy.float64`, …) as its base type."""
    if type_ is date:
        return date(value.year, value.month, value.day)
    if type_ is timedelta:
        return timedelta(value.days, value.seconds, value.microseconds)
    if type_ is str:
        return str.__str__(value)
    if type_ is UUID:
        return UUID(int=value.int)
    return type_(value)


def _leaf_from_wire(wire: Any, type_: Any) -> Any:
    if type(wire) is type_:
        return wire
    if type_ is float and type(wire) is int:
        return float(wire)
    raise StateDecodeError(wire, type_)


def _check_supported(type_: Any, whole: Any) -> None:
    """Walk a type down to its leaves and refuse what could only fail at run time."""
    if type_ in _BARE or type_ in _LEAVES or type_ is None or type_ is Ellipsis or isinstance(type_, TypeVar):
        return
    origin = get_origin(type_)
    if origin is not None:
        if origin is Callable:
            raise UnsupportedTypeError(whole, "functions cannot be stored")
        if origin is Literal:
            return
        if isinstance(origin, type) and attrs.has(origin):
            return
        for argument in get_args(type_):
            _check_supported(argument, whole)
        return
    if not isinstance(type_, type):
        raise UnsupportedTypeError(whole, f"{type_!r} is not a type")
    if issubclass(type_, Enum) or attrs.has(type_) or hasattr(type_, "__dataclass_fields__"):
        return
    if issubclass(type_, tuple) and hasattr(type_, "_fields"):
        return
    inner = "" if type_ is whole else f"{type_.__module__}.{type_.__qualname__} in it: "
    raise UnsupportedTypeError(
        whole,
        f"{inner}use str, int, float, bool, bytes, datetime, date, timedelta, Decimal, UUID, an Enum, a list, dict, "
        "set or tuple of those, an attrs class, a dataclass or a named tuple, or give the spec a codec=",
    )


def _is_fixed_tuple(type_: Any) -> bool:
    return get_origin(type_) is tuple and Ellipsis not in get_args(type_)


def _unstructure_fixed_tuple(type_: Any, converter: BaseConverter) -> Callable[[Any], Any]:
    hooks = [converter.get_unstructure_hook(member) for member in get_args(type_)]

    def unstructure(value: Any) -> list[Any]:
        return [hook(part) for hook, part in zip(hooks, value, strict=True)]

    return unstructure


def _is_union(type_: Any) -> bool:
    return get_origin(type_) in (Union, types.UnionType)


def _unstructure_union(type_: Any, converter: BaseConverter) -> Callable[[Any], Any]:
    members = get_args(type_)
    leaves = tuple(member for member in members if member in _LEAVES)
    others = [member for member in members if member not in leaves]
    hooks = {get_origin(member) or member: (converter.get_unstructure_hook(member), _tag(member)) for member in others}

    def unstructure(value: Any) -> Any:
        for kind in type(value).__mro__:
            if kind in hooks:
                hook, tag = hooks[kind]
                return hook(value) if len(others) == 1 else {"_type": tag, "_value": hook(value)}
            if kind in leaves:
                return _leaf_to_wire(value, kind)
        if float in leaves and isinstance(value, int):
            return float(value)
        raise EncodeError(value, type_)

    return unstructure


def _structure_union(type_: Any, converter: BaseConverter) -> Callable[[Any, Any], Any]:
    members = get_args(type_)
    leaves = tuple(member for member in members if member in _LEAVES)
    tagged = {_tag(member): member for member in members if member not in leaves}

    def structure(wire: Any, _: Any) -> Any:
        if type(wire) in leaves:
            return wire
        if type(wire) is dict and wire.get("_type") in tagged:
            return converter.structure(wire["_value"], tagged[wire["_type"]])
        # The union's only class, or written before the union was widened: the first member that can read it.
        for member in tagged.values():
            try:
                return converter.structure(wire, member)
            except (BaseValidationError, StateDecodeError, TypeError, ValueError, KeyError, AttributeError):
                continue
        raise StateDecodeError(wire, type_)

    return structure


def _tag(member: Any) -> str:
    return member.__qualname__ if isinstance(member, type) and get_origin(member) is None else str(member)


def _make_converter() -> Converter:
    converter = Converter(detailed_validation=False)
    for leaf in _LEAVES:
        converter.register_unstructure_hook(leaf, lambda value, leaf=leaf: _leaf_to_wire(value, leaf))
        converter.register_structure_hook(leaf, lambda wire, _, leaf=leaf: _leaf_from_wire(wire, leaf))
    any_codec = _AnyCodec(Any)
    for bare in _BARE:
        codec = any_codec if bare in (Any, object) else _AnyCodec(bare)
        converter.register_unstructure_hook_func(
            lambda type_, bare=bare: type_ is bare, lambda value, codec=codec: codec.encode(value)
        )
        converter.register_structure_hook_func(
            lambda type_, bare=bare: type_ is bare, lambda wire, _, codec=codec: codec.decode(wire)
        )
    converter.register_unstructure_hook_factory(_is_fixed_tuple, _unstructure_fixed_tuple)
    converter.register_unstructure_hook_factory(_is_union, _unstructure_union)
    converter.register_structure_hook_factory(_is_union, _structure_union)
    return converter


_converter = _make_converter()
