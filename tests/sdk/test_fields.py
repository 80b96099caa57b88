"""The fields of classes of values."""

from collections import namedtuple
from dataclasses import KW_ONLY, InitVar, dataclass, field
from typing import Any, ClassVar, Generic, NamedTuple, TypeVar

import attrs
import pytest

from amadou import codec_for
from amadou.errors import UnsupportedTypeError
from amadou.fields import Field, field_types, fields_of, has_fields, is_named_tuple

T = TypeVar("T")
U = TypeVar("U")


@attrs.frozen
class Attrs:
    _hidden: int
    made: str = attrs.field(init=False, default="m")
    several: list[int] = attrs.field(factory=list, kw_only=True)


@dataclass
class Data:
    constant: ClassVar[int] = 1
    given: int
    _: KW_ONLY
    made: str = field(init=False, default="m")
    several: list[int] = field(default_factory=list)


class Named(NamedTuple):
    given: int
    other: str = "o"


Untyped = namedtuple("Untyped", ["x", "y"])


@attrs.frozen
class Pair(Generic[T, U]):
    left: T
    right: list[U]


FACTORY = attrs.Factory(list)


@pytest.mark.parametrize(
    ("class_", "fields"),
    [
        (Attrs, (Field("_hidden", "hidden"), Field("made", None, "m"), Field("several", "several", FACTORY, True))),
        (Data, (Field("given", "given"), Field("made", None, "m", True), Field("several", "several", FACTORY, True))),
        (Named, (Field("given", "given"), Field("other", "other", "o"))),
        (Untyped, (Field("x", "x"), Field("y", "y"))),
        (Pair[int, str], (Field("left", "left"), Field("right", "right"))),
    ],
)
def test_fields_come_with_their_arguments_and_defaults(class_: Any, fields: tuple[Field, ...]) -> None:
    assert has_fields(class_)
    assert fields_of(class_) == fields
    assert list(field_types(class_) or {}) == [each.name for each in fields]


@pytest.mark.parametrize("type_", [int, str, dict[str, int], tuple[int, str], Any, None, int | None, "Data"])
def test_other_types_have_no_fields(type_: Any) -> None:
    assert not has_fields(type_)
    assert fields_of(type_) == ()
    assert field_types(type_) is None


def test_types_have_the_arguments_of_a_generic_class_and_any_without() -> None:
    assert field_types(Pair[int, str]) == {"left": int, "right": list[str]}
    assert field_types(Pair) == {"left": Any, "right": list[Any]}
    assert field_types(Named) == {"given": int, "other": str}
    assert field_types(Untyped) == {"x": Any, "y": Any}


def test_an_annotation_without_a_type_is_an_error() -> None:
    @dataclass
    class Wrong:
        x: "Missing"  # type: ignore[name-defined]  # noqa: F821

    assert [each.name for each in fields_of(Wrong)] == ["x"]
    with pytest.raises(NameError):
        field_types(Wrong)


def test_only_classes_of_named_tuples_are_such() -> None:
    assert is_named_tuple(Named)
    assert is_named_tuple(Untyped)
    assert not any(map(is_named_tuple, (tuple, tuple[int], Data, Named(1), None)))


def test_a_constant_of_a_class_is_not_stored_with_its_values() -> None:
    codec = codec_for(Data)
    assert codec.encode(Data(1)) == {"given": 1, "made": "m", "several": []}
    assert codec.decode(codec.encode(Data(1))) == Data(1)


def test_a_class_that_needs_more_than_its_fields_cannot_be_stored() -> None:
    @dataclass
    class Needing:
        x: int
        more: InitVar[int]

    with pytest.raises(UnsupportedTypeError, match="InitVar"):
        codec_for(Needing)
