"""The fields of classes of values."""

from collections import namedtuple
from dataclasses import KW_ONLY, InitVar, dataclass, field
from typing import Any, ClassVar, Generic, NamedTuple, TypeVar

import attrs
import pytest

from amadou.errors import UnsupportedTypeError
from amadou.fields import Field, field_types, fields_of, has_fields, is_named_tuple
from amadou.plugins import codec_for

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
    required: int
    _: KW_ONLY
    made: str = field(init=False, default="m")
    several: list[int] = field(default_factory=list)


class Named(NamedTuple):
    required: int
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
        (
            Data,
            (Field("required", "required"), Field("made", None, "m", True), Field("several", "several", FACTORY, True)),
        ),
        (Named, (Field("required", "required"), Field("other", "other", "o"))),
        (Untyped, (Field("x", "x"), Field("y", "y"))),
        (Pair[int, str], (Field("left", "left"), Field("right", "right"))),
    ],
)
def test_the_fields_of_a_class_have_its_arguments_and_defaults(class_: Any, fields: tuple[Field, ...]) -> None:
    assert has_fields(class_)
    assert fields_of(class_) == fields
    assert list(field_types(class_) or {}) == [each.name for each in fields]


@pytest.mark.parametrize("type_", [int, str, dict[str, int], tuple[int, str], Any, None, int | None, "Data"])
def test_types_other_than_classes_of_values_have_no_fields(type_: Any) -> None:
    assert not has_fields(type_)
    assert fields_of(type_) == ()
    assert field_types(type_) is None


def test_the_types_of_fields_are_those_of_the_generic_classs_arguments_or_any() -> None:
    assert field_types(Pair[int, str]) == {"left": int, "right": list[str]}
    assert field_types(Pair) == {"left": Any, "right": list[Any]}
    assert field_types(Named) == {"required": int, "other": str}
    assert field_types(Untyped) == {"x": Any, "y": Any}


def test_an_annotation_that_names_no_existing_type_is_an_error() -> None:
    @dataclass
    class Wrong:
        x: "Missing"  # type: ignore[name-defined]  # noqa: F821

    assert [each.name for each in fields_of(Wrong)] == ["x"]
    with pytest.raises(NameError):
        field_types(Wrong)


def test_only_named_tuple_classes_are_recognized_as_named_tuples() -> None:
    assert is_named_tuple(Named)
    assert is_named_tuple(Untyped)
    assert not any(map(is_named_tuple, (tuple, tuple[int], Data, Named(1), None)))


def test_class_variables_are_not_stored() -> None:
    codec = codec_for(Data)
    assert codec.encode(Data(1)) == {"required": 1, "made": "m", "several": []}
    assert codec.decode(codec.encode(Data(1))) == Data(1)


def test_a_class_with_an_initvar_cannot_be_stored() -> None:
    @dataclass
    class Needing:
        x: int
        more: InitVar[int]

    with pytest.raises(UnsupportedTypeError, match="InitVar"):
        codec_for(Needing)
