"""Expressions for values in the tests that `amadou reproduce` writes."""

import enum
import functools
import math
import sys
import types
from dataclasses import dataclass, field
from datetime import date, datetime, timedelta, timezone
from decimal import Decimal
from typing import Any, NamedTuple

import attrs
import pytest

from amadou import KeyedEvent
from amadou_plugins.connectors import KafkaRecord
from amadou_runtime.runs.source_code import SourceCode


class Right(enum.Flag):
    READ = 1
    WRITE = 2


class Odd(enum.Enum):
    PLAIN = 1


Spoken = enum.Enum("Spoken", {"two words": 2, "in": 3})
Deep = functools.reduce(lambda inside, _: [inside], range(300), ["deep"])


@dataclass
class Account:
    owner: str
    balance: int = field(default=0, init=False)


@attrs.frozen
class Entry:
    owner: str
    _secret: int = 0
    balance: int = attrs.field(default=0, init=False)


class Point(NamedTuple):
    x: float
    y: float


def written(value: Any) -> tuple[str, Any]:
    """Return the expression for a value, and the value of this expression."""
    source = SourceCode()
    expression = source.of(value)
    scope: dict[str, Any] = {}
    lines = [line for line in source.imports() if line.split()[1] != __name__]
    exec("\n".join([*lines, *source.helpers()]), scope)
    return expression, eval(expression, globals() | scope)


@pytest.mark.parametrize(
    "value",
    [
        math.inf,
        [-math.inf, 1.5],
        {"a": (math.inf,)},
        Right.READ,
        Right.READ | Right.WRITE,
        Right(0),
        Odd.PLAIN,
        Spoken(2),
        Spoken(3),
        10**5000,
        -(10**4000),
        Entry("ann", 5),
        Account("ann"),
        Point(math.inf, 0.0),
        [date(2025, 1, 1), timedelta(1), Decimal("1.0"), None, b"\xff", "a'\n"],
    ],
    ids=lambda value: "a large number" if type(value) is int else repr(value),
)
def test_the_expression_for_a_value_evaluates_to_an_equal_value(value: Any) -> None:
    _, again = written(value)
    assert again == value
    assert type(again) is type(value)


def test_deeply_nested_values_are_read_from_bytes() -> None:
    expression, again = written({"a": Deep, "b": 1})
    assert again == {"a": Deep, "b": 1}
    assert expression.endswith("'b': 1}")


@pytest.mark.parametrize("module", ["my-job", "my job", "class", "jobs.in"])
def test_classes_of_modules_whose_names_are_no_names_in_python_are_imported(
    module: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, module, types.ModuleType(module))
    vars(sys.modules[module])["job"] = Odd
    source = SourceCode()
    source.need(module, "job", "it")
    scope: dict[str, Any] = {}
    exec("\n".join(source.imports()), scope)
    assert scope["it"] is Odd


def test_the_expression_for_nan_evaluates_to_nan() -> None:
    expression, again = written([math.nan])
    assert expression == '[float("nan")]'
    assert math.isnan(again[0])


@pytest.mark.parametrize("value", [Account("ann"), Entry("ann", 5)], ids=["dataclass", "attrs"])
def test_expressions_for_values_set_fields_that_are_not_arguments_of_the_class(value: Any) -> None:
    assert "having" not in written(value)[0]
    object.__setattr__(value, "balance", 7)
    expression, again = written(value)
    assert expression.startswith("having(")
    assert again == value


@pytest.mark.parametrize(
    ("value", "line"),
    [
        (KafkaRecord(b"v"), "from amadou_plugins.connectors import KafkaRecord"),
        (KeyedEvent("a", datetime(2026, 1, 1, tzinfo=timezone.utc)), "from amadou import KeyedEvent"),
        (Point(1.0, 2.0), f"from {__name__} import Point"),
    ],
)
def test_classes_are_imported_from_the_package_that_exports_them(value: Any, line: str) -> None:
    source = SourceCode()
    source.of(value)
    assert line in source.imports()
