"""Checks the form of structures, which may come from somebody else; see `StateSpec.structure` and `structure_of` in
`amadou._state.structure`.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import attrs

from amadou_runtime.formats.documents import structured
from amadou_runtime.jobs.state_schema import Structure


@attrs.frozen
class _Structure:
    """The fields of structures that amadou reads. Components can have others."""

    kind: str
    version: int
    noun: str = ""
    shown: str = ""
    source: str = ""
    keeps: str = ""
    settings: Mapping[str, str] = attrs.field(factory=dict)
    aggregate: Any = ""
    parts: Mapping[str, Mapping[str, Any]] = attrs.field(factory=dict)


_FIELDS: Final = frozenset(attrs.fields_dict(_Structure))


def check_structures(structures: Sequence[Structure]) -> None:
    """Check that these are all structures that a spec has had.

    :raises Exception: they are not: one of `formats.documents.UNREADABLE`
    """
    if not structures:
        raise ValueError("a spec has no structure")
    for structure in structures:
        found = structured(_Structure, {name: structure[name] for name in structure if name in _FIELDS})
        if found.version < 0:
            raise ValueError("the version of a structure is negative")
        _check_aggregate(found.aggregate)
        for part in found.parts.values():
            _Types(part["classes"]).check(part["is"])


def _check_aggregate(aggregate: Any) -> None:
    if isinstance(aggregate, dict):
        for part in aggregate.values():
            _check_aggregate(part)
    else:
        _check_text(aggregate)


def _check_text(*values: Any) -> None:
    for value in values:
        if type(value) is not str:
            raise ValueError(f"a name in a structure is not text, but {type(value).__name__}")


class _Types:
    """Checks descriptions of types.

    :param classes: the fields of the classes in the descriptions
    """

    def __init__(self, classes: Mapping[str, Mapping[str, Any]]) -> None:
        self._classes = classes
        for name, fields in classes.items():
            _check_text(name, *fields)
            for description, is_needed in fields.values():
                self.check(description)
                if type(is_needed) is not bool:
                    raise ValueError(f"a field of {name} is neither required nor not")

    def check(self, description: Any) -> None:
        if isinstance(description, str):
            return
        ((kind, inner), *more) = description.items()
        if more and (kind != "enum" or description.keys() != {"enum", "values", "open"}):
            raise ValueError(f"the description of a type has more than one kind: {', '.join(map(str, description))}")
        if kind not in self._KINDS:
            raise ValueError(f"{kind!r} is no kind of type")
        self._KINDS[kind](self, inner)
        if kind == "enum":
            self._check_values(description["values"])

    def _check_pair(self, inner: Any) -> None:
        key, value = inner
        self.check(key)
        self.check(value)

    def _check_each(self, inner: Any) -> None:
        for description in _list(inner):
            self.check(description)

    def _check_members(self, inner: Any) -> None:
        for tag, description in _list(inner):
            _check_text(tag)
            self.check(description)

    def _check_values(self, inner: Any) -> None:
        for kind, text in _list(inner):
            _check_text(kind, text)

    def _check_class(self, inner: Any) -> None:
        if inner not in self._classes:
            raise ValueError(f"there are no fields of the class {inner}")

    _KINDS: Final[Mapping[str, Callable[["_Types", Any], None]]] = {
        **dict.fromkeys(("list", "set", "frozenset", "tuple"), check),
        "fixed": _check_each,
        "dict": _check_pair,
        "union": _check_members,
        "literal": _check_values,
        "enum": lambda _, name: _check_text(name),
        "class": _check_class,
    }


def _list(value: Any) -> list[Any]:
    if type(value) is not list:
        raise ValueError(f"a description has {type(value).__name__} where a list belongs")
    return value
