"""The types of values, as data. A type is read once: from an annotation, or from the structure that is stored with
state. Codecs, formats and checks are functions over the classes in this module.
"""

import types
from collections.abc import Callable, Iterator, Mapping
from enum import Enum, Flag
from typing import Annotated, Any, Final, Literal, NamedTuple, TypeVar, get_args, get_origin
from typing import Union as _Union

import attrs

from amadou.fields import field_types, fields_of, has_fields, is_typed_dict, items_of

SCALARS: Final = ("str", "int", "float", "bool", "bytes", "None", "datetime", "date", "timedelta", "Decimal", "UUID")
"""The names of scalar types."""
_CONTAINERS: Final = (list, set, frozenset, tuple, dict)
_PACKED: Final = ("Any", *(container.__name__ for container in _CONTAINERS))


@attrs.frozen
class DataType:
    """A type.

    :param python: the annotation; `None` for a type that was read from a structure
    """

    python: Any = attrs.field(default=None, kw_only=True, eq=False, repr=False)


@attrs.frozen
class Scalar(DataType):
    """A type whose values are stored unchanged.

    :param name: one of `SCALARS`
    """

    name: str


@attrs.frozen
class Packed(DataType):
    """`Any`, or a container without item types: values are stored in packed form, with the names of their classes.

    :param name: ``Any``, or the name of the container
    """

    name: str


@attrs.frozen
class Opaque(DataType):
    """A type of which nothing is known, such as that of a `codec=`."""

    name: str


@attrs.frozen
class Sequence(DataType):
    """A container of any number of items.

    :param container: ``list``, ``set``, ``frozenset`` or ``tuple``
    """

    container: str
    item: DataType


@attrs.frozen
class Fixed(DataType):
    """A tuple of fixed length."""

    items: tuple[DataType, ...]


@attrs.frozen
class Map(DataType):
    """A `dict`."""

    key: DataType
    value: DataType


@attrs.frozen
class Choice(DataType):
    """A `Literal`.

    :param values: the values, as pairs of the type's name and the text
    """

    values: tuple[tuple[str, str], ...]


@attrs.frozen
class Enumeration(DataType):
    """An enum. See `Choice` for `values`, which are the names of the members if a value is not a scalar.

    :param accepts: `True` if it accepts other values, too; ``flags`` if it accepts combinations
    """

    name: str
    values: tuple[tuple[str, str], ...]
    accepts: bool | str


@attrs.frozen
class Union(DataType):
    """One of several types.

    :param members: the types, with the tags that are stored with values
    """

    members: tuple[tuple[str, DataType], ...]


class FieldType(NamedTuple):
    """The type of a field, and `True` if an object needs a value for it."""

    type: DataType
    is_required: bool


@attrs.frozen(eq=False)
class Record(DataType):
    """An attrs class, a dataclass, a named tuple or a `TypedDict`. It may contain itself.

    :param name: the name of the class; unique within a structure
    :param fields: the fields by name
    """

    name: str
    fields: dict[str, FieldType] = attrs.field(repr=False)


def datatype(annotation: Any) -> DataType:
    """Return the type behind an annotation. A part that amadou does not support is `Opaque`.

    :raises NameError: an annotation in a class uses an undefined name
    """
    return _Annotations().read(annotation)


def is_bare(annotation: Any) -> bool:
    """Return `True` for a container type without declared item types, and for `Any`, `object` and type variables."""
    return annotation in (*_CONTAINERS, Any, object) or isinstance(annotation, TypeVar)


def union_tag(member: Any) -> str:
    """Return the tag that is stored with the values of a union member.

    :param member: the annotation
    """
    return member.__qualname__ if isinstance(member, type) and get_origin(member) is None else str(member)


class _Annotations:
    """Reads annotations, each class only once."""

    def __init__(self) -> None:
        self._records: dict[Any, Record] = {}
        self._names: set[str] = set()

    def read(self, type_: Any) -> DataType:
        scalar = _scalar_name(type_)
        if scalar is not None:
            return Scalar(scalar, python=type_)
        if is_bare(type_):
            return Packed(type_.__name__ if type_ in _CONTAINERS else "Any", python=type_)
        origin, arguments = get_origin(type_), get_args(type_)
        if origin is Annotated:
            return self.read(arguments[0])
        if origin is Literal:
            return Choice(tuple(map(_shown, arguments)), python=type_)
        if origin in (_Union, types.UnionType):
            if any(is_bare(member) and member not in _CONTAINERS for member in arguments):
                return Packed("Any", python=type_)
            return Union(tuple((union_tag(member), self.read(member)) for member in arguments), python=type_)
        if origin in _CONTAINERS:
            return self._container(origin, arguments, type_)
        if isinstance(type_, type) and issubclass(type_, Enum):
            return _enumeration(type_)
        if is_typed_dict(type_) or has_fields(type_):
            return self._record(type_)
        return Opaque(str(type_), python=type_)

    def _container(self, origin: type, arguments: tuple[Any, ...], type_: Any) -> DataType:
        if origin is dict:
            key, value = arguments or (Any, Any)
            return Map(self.read(key), self.read(value), python=type_)
        if origin is tuple and Ellipsis not in arguments:
            return Fixed(tuple(map(self.read, arguments)), python=type_)
        return Sequence(origin.__name__, self.read((*arguments, Any)[0]), python=type_)

    def _record(self, type_: Any) -> Record:
        if type_ in self._records:
            return self._records[type_]
        name = base = type_.__qualname__ if isinstance(type_, type) else str(type_)
        while name in self._names:
            name = f"{base} {len(self._records)}"
        self._names.add(name)
        record = self._records[type_] = Record(name, {}, python=type_)
        for field, (kind, needed) in _fields_of(type_).items():
            record.fields[field] = FieldType(self.read(kind), needed)
        return record


def _fields_of(type_: Any) -> dict[str, tuple[Any, bool]]:
    """Return the annotations of a class's fields, each with `True` if an object needs a value for it.

    :raises NameError: an annotation uses an undefined name
    """
    from amadou._components.construction import is_needed

    class_ = get_origin(type_) or type_
    try:
        if is_typed_dict(type_):
            return items_of(type_)
        kinds = field_types(type_) or {}
    except NameError as error:
        raise NameError(f"in {class_.__qualname__}, {error}: import it") from error
    return {field.name: (kinds[field.name], is_needed(class_, field)) for field in fields_of(class_)}


def _scalar_name(type_: Any) -> str | None:
    if type_ is None or type_ is type(None):
        return "None"
    name = getattr(type_, "__name__", "")
    if name not in SCALARS or not isinstance(type_, type):
        return None
    return name if type_.__module__ in ("builtins", "datetime", "decimal", "uuid") else None


def _enumeration(class_: type[Enum]) -> Enumeration:
    by_value = is_stored_by_value(class_)
    values = tuple(_shown(member.value if by_value else member.name) for member in class_)
    is_open = by_value and "_missing_" in {name for of in class_.__mro__[:-1] for name in _own(of)}
    accepts = "flags" if by_value and not is_open and issubclass(class_, Flag) else is_open
    return Enumeration(class_.__qualname__, values, accepts, python=class_)


def is_stored_by_value(class_: type[Enum]) -> bool:
    """Return `True` for an enum whose members are stored as their values, `False` for one that stores their names."""
    return all(_scalar_name(type(member.value)) is not None for member in class_)


def _own(class_: type) -> Any:
    """Return the attributes that a class itself defines; empty for the classes of Python's `enum` module."""
    return () if class_.__module__ == "enum" else vars(class_)


def _shown(value: Any) -> tuple[str, str]:
    return ("None" if value is None else type(value).__name__), repr(value)


def structure_of(type_: DataType) -> dict[str, Any]:
    """Return the structure of a type as plain data: ``{"is": description, "classes": {name: fields}}``.

    A description is the name of a scalar, of a container without item types, ``"Any"`` or ``"codec"``; ``{"list":
    description}``, and so on for containers; ``{"fixed": [description, …]}`` for a tuple of fixed length; ``{"dict":
    [description, description]}``; ``{"union": [[tag, description], …]}``; ``{"literal": [[type, text], …]}``;
    ``{"enum": name, "values": [[type, text], …], "open": true if the enum accepts other values, "flags" if it accepts
    combinations}``; or ``{"class": name}``. The fields of a class are ``{name: [description, true if the field is
    required]}``.
    """
    classes: dict[str, dict[str, Any]] = {}

    def described(type_: DataType) -> Any:
        match type_:
            case Scalar(name) | Packed(name) | Opaque(name):
                return name
            case Sequence(container, item):
                return {container: described(item)}
            case Fixed(items):
                return {"fixed": [*map(described, items)]}
            case Map(key, value):
                return {"dict": [described(key), described(value)]}
            case Choice(values):
                return {"literal": [*map(list, values)]}
            case Enumeration(name, values, accepts):
                return {"enum": name, "values": [*map(list, values)], "open": accepts}
            case Union(members):
                return {"union": [[tag, described(member)] for tag, member in members]}
            case Record(name, fields):
                if name not in classes:
                    of = classes[name] = {}
                    of.update({field: [described(kind), needed] for field, (kind, needed) in fields.items()})
                return {"class": name}
        raise TypeError(f"{type_!r} is no type of values")

    return {"is": described(type_), "classes": classes}


def datatype_in(structure: Mapping[str, Any]) -> DataType:
    """Return the type whose structure this is; see `structure_of`. It may come from somebody else.

    :raises ValueError: it is no structure
    """
    return _Structure(structure["classes"]).read(structure["is"])


class _Structure:
    """Reads descriptions of types.

    :param classes: the fields of the classes in the descriptions, by name
    """

    def __init__(self, classes: Mapping[str, Mapping[str, Any]]) -> None:
        self._records = {_text(name): Record(name, {}) for name in classes}
        for name, fields in classes.items():
            for field, (description, needed) in fields.items():
                if type(needed) is not bool:
                    raise ValueError(f"a field of {name} is neither required nor not")
                self._records[name].fields[_text(field)] = FieldType(self.read(description), needed)

    def read(self, description: Any) -> DataType:
        if isinstance(description, str):
            kind: Any = Scalar if description in SCALARS else Packed if description in _PACKED else Opaque
            return kind(description)  # type: ignore[no-any-return]
        ((kind, inner), *more) = description.items()
        if more and (kind != "enum" or description.keys() != {"enum", "values", "open"}):
            raise ValueError(f"the description of a type has more than one kind: {', '.join(map(str, description))}")
        if kind == "enum":
            return Enumeration(_text(inner), _values(description["values"]), description["open"])
        if kind not in self._KINDS:
            raise ValueError(f"{kind!r} is no kind of type")
        return self._KINDS[kind](self, kind, inner)

    def _sequence(self, kind: str, inner: Any) -> DataType:
        return Sequence(kind, self.read(inner))

    def _fixed(self, _: str, inner: Any) -> DataType:
        return Fixed(tuple(map(self.read, _list(inner))))

    def _map(self, _: str, inner: Any) -> DataType:
        key, value = inner
        return Map(self.read(key), self.read(value))

    def _choice(self, _: str, inner: Any) -> DataType:
        return Choice(_values(inner))

    def _union(self, _: str, inner: Any) -> DataType:
        return Union(tuple((_text(tag), self.read(member)) for tag, member in _list(inner)))

    def _record(self, _: str, inner: Any) -> DataType:
        if inner not in self._records:
            raise ValueError(f"there are no fields of the class {inner}")
        return self._records[inner]

    _KINDS: Final[Mapping[str, Callable[["_Structure", str, Any], DataType]]] = {
        **dict.fromkeys(("list", "set", "frozenset", "tuple"), _sequence),
        "fixed": _fixed,
        "dict": _map,
        "union": _union,
        "literal": _choice,
        "class": _record,
    }


def _values(inner: Any) -> tuple[tuple[str, str], ...]:
    return tuple((_text(kind), _text(text)) for kind, text in _list(inner))


def _list(value: Any) -> list[Any]:
    if type(value) is not list:
        raise ValueError(f"a description has {type(value).__name__} where a list belongs")
    return value


def _text(value: Any) -> str:
    if type(value) is not str:
        raise ValueError(f"a name in a structure is not text, but {type(value).__name__}")
    return value


def parts_of(type_: DataType) -> Iterator[DataType]:
    """Yield the types of which a type directly consists."""
    match type_:
        case Sequence(_, item):
            yield item
        case Fixed(items):
            yield from items
        case Map(key, value):
            yield from (key, value)
        case Union(members):
            yield from (member for _, member in members)
        case Record(_, fields):
            yield from (field.type for field in fields.values())


def shown_type(type_: DataType) -> str:
    """Return a readable name of a type for messages."""
    match type_:
        case Scalar(name) | Packed(name) | Opaque(name) | Enumeration(name) | Record(name):
            return name
        case Union(members):
            return " | ".join(shown_type(member) for _, member in members)
        case Choice(values):
            return f"Literal[{', '.join(text for _, text in values)}]"
        case Map(key, value):
            return f"dict[{shown_type(key)}, {shown_type(value)}]"
        case Fixed(items):
            return f"tuple[{', '.join(map(shown_type, items))}]"
        case Sequence(container, item):
            return f"{container}[{shown_type(item)}{', ...' if container == 'tuple' else ''}]"
    raise TypeError(f"{type_!r} is no type of values")
