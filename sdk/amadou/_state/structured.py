"""Codecs for compound types, such as classes and containers. A separate module, because cattrs is slow to import."""

import types
from collections.abc import Callable
from dataclasses import InitVar
from decimal import Decimal
from enum import Enum
from typing import Any, Final, Generic, TypeVar, get_args, get_origin
from typing import Union as _Union

from cattrs import BaseConverter, Converter
from cattrs.errors import StructureHandlerNotFoundError

from amadou._components.construction import is_needed, is_plain, made_fields, maker_of, resolved_annotations
from amadou._connectors.codec import SEQUENCES, AnyCodec, decode_leaf, encode_leaf
from amadou._state.encoding import TOO_DEEP, is_nested, nested, pack, unpack
from amadou._state.unions import (
    LEAVES,
    class_of,
    is_literal,
    structure_literal,
    structure_union,
    unstructure_literal,
    unstructure_union,
)
from amadou.datatypes import (
    Choice,
    DataType,
    Enumeration,
    Opaque,
    Record,
    Union,
    datatype,
    is_bare,
    is_stored_by_value,
    parts_of,
)
from amadou.errors import AmadouError, EncodeError, StateDecodeError, UnsupportedTypeError
from amadou.fields import field_types, fields_of, has_fields, is_named_tuple, is_typed_dict, items_of

T = TypeVar("T")

_UNIONS: Final = (_Union, types.UnionType)


def structured_codec(type_: Any) -> "StructuredCodec[Any]":
    """Return the codec of an enum, a typed container, a union, an attrs class, a dataclass or a named tuple.

    :raises UnsupportedTypeError: the type, or a type inside it, is not supported
    """
    try:
        _check_supported(datatype(type_), type_, set())
        return StructuredCodec(type_)
    except (StructureHandlerNotFoundError, TypeError, NameError) as error:
        raise UnsupportedTypeError(type_, str(error)) from error


class StructuredCodec(Generic[T]):
    """A codec that uses cattrs."""

    def __init__(self, type_: type[T]) -> None:
        self.type = type_
        self._unstructure = _converter.get_unstructure_hook(type_)
        self._structure = _converter.get_structure_hook(type_)

    def encode(self, value: T) -> Any:
        try:
            return self._unstructure(value)
        except EncodeError as error:
            if error.value is value:
                raise EncodeError(value, self.type, error.why) from error
            raise EncodeError(value, self.type, str(error)) from error
        except RecursionError as error:
            if is_nested():
                raise
            raise EncodeError(value, self.type, TOO_DEEP) from error
        except AmadouError:
            raise
        except (AttributeError, TypeError, ValueError, KeyError) as error:
            raise EncodeError(value, self.type, f"{type(error).__name__}: {error}") from error

    def decode(self, encoded: Any) -> T:
        try:
            return self._structure(encoded, self.type)  # type: ignore[no-any-return]
        except StateDecodeError as error:
            if error.stored is encoded:
                raise StateDecodeError(encoded, self.type, error.why) from error
            raise StateDecodeError(encoded, self.type, f"inside it, {error.mismatch}") from error
        except RecursionError as error:
            raise StateDecodeError(encoded, self.type, TOO_DEEP) from error
        except KeyError as error:
            raise StateDecodeError(encoded, self.type, f"{error} is missing") from error
        except (TypeError, ValueError, AttributeError) as error:
            raise StateDecodeError(encoded, self.type, f"{type(error).__name__}: {error}") from error


def _check_supported(type_: DataType, outer: Any, seen: set[str]) -> None:
    """Check a type and all types inside it, and raise an error for types that would otherwise fail at run time.

    :param outer: the annotation of the whole type
    :param seen: the names of the records that were checked
    """
    match type_:
        case Opaque(python=annotation):
            raise _unsupported(annotation, outer)
        case Choice(python=annotation):
            if not {type(value) for value in get_args(annotation)} <= {str, int, bool, bytes, type(None)}:
                raise UnsupportedTypeError(outer, "the values of a Literal must be str, int, bool, bytes or None")
        case Union(members):
            classes = [class_of(member.python) for _, member in members if not isinstance(member, Choice)]
            twice = {_name(kind) for kind in classes if classes.count(kind) > 1}
            if twice:
                why = f"the union has more than one {', '.join(twice)}: use different classes"
                raise UnsupportedTypeError(outer, why)
        case Enumeration(python=class_):
            _register_enum(class_)
        case Record(name, python=annotation):
            if name in seen:
                return
            seen.add(name)
            for hint in () if is_typed_dict(annotation) else _init_vars(get_origin(annotation) or annotation):
                _check_supported(datatype(hint), outer, seen)
    for part in parts_of(type_):
        _check_supported(part, outer, seen)


def _init_vars(class_: type) -> list[Any]:
    """Return the annotations of arguments that are no fields."""
    return [hint for hint in resolved_annotations(class_).values() if isinstance(hint, InitVar)]


def _unsupported(type_: Any, outer: Any) -> UnsupportedTypeError:
    origin = get_origin(type_)
    if origin is Callable:
        return UnsupportedTypeError(outer, "functions cannot be stored: use a different type")
    if origin is not None and not isinstance(origin, type):
        return UnsupportedTypeError(outer, f"{type_} cannot be stored: use a different type")
    class_ = origin or type_
    if not isinstance(class_, type):
        aggregate = all(callable(getattr(type_, name, None)) for name in ("create", "add", "result"))
        hint = ", but an aggregate: use a RunningSpec from amadou_plugins.aggregates" if aggregate else ": pass a type"
        if isinstance(class_, str):  # Python 3.10 does not resolve a name within an annotation
            hint = f': use Python 3.11 or newer, or quote the whole annotation, such as "list[{class_}]"'
        return UnsupportedTypeError(outer, f"{type_!r} is not a type{hint}")
    inner = "" if type_ is outer else f"it contains {_name(class_)}: "
    return UnsupportedTypeError(
        outer,
        f"{inner}use str, int, float, bool, bytes, datetime, date, timedelta, Decimal, UUID, an Enum, a list, "
        "dict, set or tuple of these types, an attrs class, a dataclass, a named tuple or a TypedDict",
        setting="codec",
    )


def _name(class_: Any) -> str:
    if not isinstance(class_, type) or class_.__module__ == "builtins":
        return getattr(class_, "__name__", str(class_))
    return f"{class_.__module__}.{class_.__qualname__}"


# The hooks below check values when they are encoded and decoded. By default, cattrs accepts "ab" as a list of strings,
# a subclass, or a different class with the same attributes, as the declared class. It drops unexpected attributes.


def _unstructure_fields(type_: Any, converter: Converter) -> Callable[[Any], Any]:
    if type_ in _in_the_making:  # a class that contains itself: look up the hook for each value
        return lambda value: nested(converter.get_unstructure_hook(type_), value)
    class_ = get_origin(type_) or type_
    _in_the_making.add(type_)
    try:
        fields = converter.gen_unstructure_attrs_fromdict(type_)
    finally:
        _in_the_making.discard(type_)
    made = made_fields(type_)

    def unstructure(value: Any) -> Any:
        if type(value) is not class_:
            raise EncodeError(value, type_)
        encoded = fields(value)
        for name, kind in made.items():  # cattrs omits these fields
            if hasattr(value, name):
                encoded[name] = converter.get_unstructure_hook(kind)(getattr(value, name))
        return encoded

    return unstructure


def _is_recreated(type_: Any) -> bool:
    return has_fields(type_) and not _is_open(type_) and not is_plain(type_)


def _structure_recreated(type_: Any, converter: Converter) -> Callable[[Any, Any], Any]:
    class_, types = get_origin(type_) or type_, field_types(type_) or {}
    made = maker_of(class_)
    needed = {of.name for of in fields_of(class_) if of.alias is not None and is_needed(class_, of)}
    hook_for = converter.get_structure_hook  # called for each value: a class may contain itself

    def structure(encoded: Any, _: Any) -> Any:
        if type(encoded) is not dict:
            raise StateDecodeError(encoded, type_)
        parts = {
            name: hook_for(kind)(encoded[name], kind)
            for name, kind in types.items()
            if name in needed or name in encoded
        }
        value = made(parts)
        for name, part in parts.items():  # replace values that the class itself has set
            object.__setattr__(value, name, part)
        return value

    return structure


_in_the_making: set[Any] = set()


def _is_open(type_: Any) -> bool:
    """Return `True` for a generic class without type arguments."""
    return isinstance(type_, type) and bool(getattr(type_, "__parameters__", ())) and has_fields(type_)


def _filled(type_: Any) -> Any:
    return type_[tuple(Any for _ in type_.__parameters__)]


def _unstructure_open(type_: Any, converter: BaseConverter) -> Callable[[Any], Any]:
    return converter.get_unstructure_hook(_filled(type_))


def _structure_open(type_: Any, converter: BaseConverter) -> Callable[[Any, Any], Any]:
    filled = _filled(type_)
    hook = converter.get_structure_hook(filled)
    return lambda encoded, _: hook(encoded, filled)


def _is_namedtuple(type_: Any) -> bool:
    return is_named_tuple(get_origin(type_) or type_)


def _unstructure_namedtuple(type_: Any, converter: Converter) -> Callable[[Any], Any]:
    class_ = get_origin(type_) or type_
    # Window results are tuples. For speed, do not count the nesting of leaves, or of values that are packed separately.
    fields = [(name, kind, kind is Any or kind in LEAVES) for name, kind in (field_types(type_) or {}).items()]
    hook_for = converter.get_unstructure_hook

    def unstructure(value: Any) -> Any:
        if type(value) is not class_:
            raise EncodeError(value, type_)
        return {
            name: hook_for(kind)(part) if is_flat else nested(hook_for(kind), part)
            for (name, kind, is_flat), part in zip(fields, value, strict=True)
        }

    return unstructure


def _structure_namedtuple(type_: Any, converter: BaseConverter) -> Callable[[Any, Any], Any]:
    class_, types = get_origin(type_) or type_, field_types(type_) or {}
    hook_for = converter.get_structure_hook  # called for each value: a class may contain itself

    def structure(encoded: Any, _: Any) -> Any:
        if type(encoded) is not dict:
            raise StateDecodeError(encoded, type_)
        return class_(**{name: hook_for(kind)(encoded[name], kind) for name, kind in types.items() if name in encoded})

    return structure


def _unstructure_typed_dict(type_: Any, converter: Converter) -> Callable[[Any], Any]:
    items, hook_for = items_of(type_), converter.get_unstructure_hook  # called for each value: it may contain itself
    required = {name for name, (_, is_required) in items.items() if is_required}

    def unstructure(value: Any) -> Any:
        if not isinstance(value, dict):
            raise EncodeError(value, type_)
        for name in sorted(required - value.keys()):
            raise EncodeError(value, type_, f"the key {name!r} is missing")
        for name in sorted(value.keys() - items.keys(), key=repr):
            raise EncodeError(value, type_, f"the key {name!r} is not one of the type's")
        return {name: nested(hook_for(items[name][0]), part) for name, part in value.items()}

    return unstructure


def _structure_typed_dict(type_: Any, converter: Converter) -> Callable[[Any, Any], Any]:
    items, hook_for = items_of(type_), converter.get_structure_hook

    def structure(encoded: Any, _: Any) -> Any:
        if type(encoded) is not dict:
            raise StateDecodeError(encoded, type_)
        return {
            name: hook_for(kind)(encoded[name], kind)
            for name, (kind, is_required) in items.items()
            if is_required or name in encoded
        }

    return structure


def _is_sequence(type_: Any) -> bool:
    return get_origin(type_) in SEQUENCES and not _is_fixed_tuple(type_)


def _unstructure_sequence(type_: Any, converter: BaseConverter) -> Callable[[Any], Any]:
    class_: Any = get_origin(type_)
    hook = converter.get_unstructure_hook((*get_args(type_), Any)[0])
    if class_ in (set, frozenset):
        # sorted so that the order is the same in every process: the encoded value may become a key or an output
        def unstructure_set(value: Any) -> list[Any]:
            if not isinstance(value, class_):
                raise EncodeError(value, type_)
            encoded_values = [hook(part) for part in value]
            try:
                return sorted(encoded_values)
            except TypeError:
                return sorted(encoded_values, key=pack)

        return unstructure_set

    def unstructure(value: Any) -> list[Any]:
        if not isinstance(value, class_):
            raise EncodeError(value, type_)
        return [hook(part) for part in value]

    return unstructure


def _structure_sequence(type_: Any, converter: BaseConverter) -> Callable[[Any, Any], Any]:
    class_: Any = get_origin(type_)
    member = (*get_args(type_), Any)[0]
    hook = converter.get_structure_hook(member)

    def structure(encoded: Any, _: Any) -> Any:
        if type(encoded) is not list:
            raise StateDecodeError(encoded, type_)
        parts = [hook(part, member) for part in encoded]
        return parts if class_ is list else class_(parts)

    return structure


def _is_fixed_tuple(type_: Any) -> bool:
    return get_origin(type_) is tuple and Ellipsis not in get_args(type_)


def _unstructure_fixed_tuple(type_: Any, converter: BaseConverter) -> Callable[[Any], Any]:
    hooks = [converter.get_unstructure_hook(member) for member in get_args(type_)]

    def unstructure(value: Any) -> list[Any]:
        if not isinstance(value, tuple):
            raise EncodeError(value, type_)
        if len(value) != len(hooks):
            raise EncodeError(value, type_, f"expected {len(hooks)} elements, got {len(value)}")
        return [hook(part) for hook, part in zip(hooks, value, strict=True)]

    return unstructure


def _structure_fixed_tuple(type_: Any, converter: BaseConverter) -> Callable[[Any, Any], Any]:
    members = [(converter.get_structure_hook(member), member) for member in get_args(type_)]

    def structure(encoded: Any, _: Any) -> Any:
        if type(encoded) is not list or len(encoded) != len(members):
            raise StateDecodeError(encoded, type_)
        return tuple([hook(part, member) for (hook, member), part in zip(members, encoded, strict=True)])

    return structure


def _is_packed_key(type_: Any) -> bool:
    return type_ not in LEAVES and not (isinstance(type_, type) and issubclass(type_, Enum))


def _unstructure_dict(type_: Any, converter: BaseConverter) -> Callable[[Any], Any]:
    key, member = get_args(type_) or (Any, Any)
    key_hook, hook = converter.get_unstructure_hook(key), converter.get_unstructure_hook(member)
    packed = _is_packed_key(key)

    def unstructure(value: Any) -> dict[Any, Any]:
        if not isinstance(value, dict):
            raise EncodeError(value, type_)
        if packed:
            return {pack(key_hook(key)): hook(part) for key, part in value.items()}
        return {key_hook(key): hook(part) for key, part in value.items()}

    return unstructure


def _structure_dict(type_: Any, converter: BaseConverter) -> Callable[[Any, Any], Any]:
    key, member = get_args(type_) or (Any, Any)
    key_hook, hook = converter.get_structure_hook(key), converter.get_structure_hook(member)
    packed = _is_packed_key(key)

    def structure(encoded: Any, _: Any) -> Any:
        if type(encoded) is not dict:
            raise StateDecodeError(encoded, type_)
        if packed:
            return {key_hook(unpack(name), key): hook(part, member) for name, part in encoded.items()}
        return {key_hook(name, key): hook(part, member) for name, part in encoded.items()}

    return structure


def _register_enum(class_: type[Enum]) -> None:
    by_value = is_stored_by_value(class_)

    def unstructure(value: Any) -> Any:
        if type(value) is not class_:
            raise EncodeError(value, class_)
        return value.value if by_value else value.name

    def structure(encoded: Any, _: Any) -> Any:
        try:
            return class_(encoded) if by_value else class_[encoded]
        except (ValueError, KeyError) as error:
            for member in class_ if isinstance(encoded, float | Decimal) else ():
                if repr(member.value) == repr(encoded):  # NaN, which is not equal to itself
                    return member
            raise StateDecodeError(encoded, class_, f"{class_.__name__} has no such member") from error

    # registered by class: otherwise an IntEnum would be treated as an int
    _converter.register_unstructure_hook(class_, unstructure)
    _converter.register_structure_hook(class_, structure)


def _make_converter() -> Converter:
    converter = Converter(detailed_validation=False)
    for leaf in LEAVES:
        converter.register_unstructure_hook(leaf, lambda value, leaf=leaf: encode_leaf(value, leaf))
        converter.register_structure_hook(leaf, lambda encoded, _, leaf=leaf: decode_leaf(encoded, leaf))
    converter.register_unstructure_hook_factory(has_fields, _unstructure_fields)
    converter.register_structure_hook_factory(_is_recreated, _structure_recreated)
    factories: list[tuple[Callable[[Any], bool], Any, Any]] = [
        (_is_open, _unstructure_open, _structure_open),
        (_is_namedtuple, _unstructure_namedtuple, _structure_namedtuple),
        (is_typed_dict, _unstructure_typed_dict, _structure_typed_dict),
        (is_bare, lambda type_: AnyCodec(type_).encode, lambda type_: _decode_with(AnyCodec(type_))),
        (_is_sequence, _unstructure_sequence, _structure_sequence),
        (_is_fixed_tuple, _unstructure_fixed_tuple, _structure_fixed_tuple),
        (lambda type_: get_origin(type_) is dict, _unstructure_dict, _structure_dict),
        (is_literal, unstructure_literal, structure_literal),
        (lambda type_: get_origin(type_) in _UNIONS, unstructure_union, structure_union),
    ]
    for applies, unstructure, structure in factories:
        converter.register_unstructure_hook_factory(applies, unstructure)
        converter.register_structure_hook_factory(applies, structure)
    return converter


def _decode_with(codec: AnyCodec) -> Callable[[Any, Any], Any]:
    return lambda encoded, _: codec.decode(encoded)


_converter = _make_converter()
