"""Writes values as Python source code."""

import ast
import keyword
import re
import sys
from collections.abc import Callable, Mapping
from datetime import date, datetime, timedelta, timezone
from decimal import Decimal
from enum import Enum, Flag
from math import isfinite
from typing import Any, Final
from uuid import UUID

from amadou.engine import pack
from amadou.fields import fields_of, has_fields, is_named_tuple

_LONGEST: Final = 60
_DEEPEST: Final = 40
"""Levels of containers that an expression can have. Python refuses deeply nested parentheses."""
_LARGEST: Final = 10**4000
"""Python refuses longer numbers with decimal digits."""
_HAVING = '''def having(value, **fields):
    """Set fields that the value's constructor does not accept, and return the value."""
    for name, field in fields.items():
        object.__setattr__(value, name, field)
    return value'''


def comments(text: str) -> list[str]:
    """Return text from data as lines of comments. What cannot be printed is escaped, so that nothing ends a comment."""
    shown = ("".join(c if c.isprintable() else ascii(c)[1:-1] for c in line) for line in text.splitlines())
    return [f"# {line}".rstrip() for line in shown]


def identifier(text: str) -> str:
    """Return the lower-case ASCII letters and digits of text from data, for a name."""
    return re.sub("[^a-z0-9]+", "_", text.lower()).strip("_")[:_LONGEST].strip("_")


def is_name(text: str) -> bool:
    """Return `True` if Python code can use text as a name."""
    return text.isidentifier() and not keyword.iskeyword(text)


def _is_expression(text: str) -> bool:
    try:
        ast.literal_eval(text)
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return False
    return True


class SourceCode:
    """Writes values as Python expressions, and collects the imports that the expressions need.

    :param shown: function that returns text from data with secrets hidden. Hiding them in the source code instead could
        change what is a literal, and names in the code
    """

    def __init__(self, shown: Callable[[str], str] = str) -> None:
        self._shown = shown
        self._needed: dict[str, dict[str, str]] = {}
        self._helpers: dict[str, None] = {}
        self._depth = 0

    def need(self, module: str, name: str, under: str = "") -> str:
        """Add an import, and return the imported name.

        :param under: another name for it
        """
        self._needed.setdefault(module, {})[name] = under or name
        return under or name

    def imports(self) -> list[str]:
        """Return the import lines."""
        others = [module for module in self._needed if not all(map(is_name, module.split(".")))]
        if others:
            self.need("importlib", "import_module")
        lines = []
        for module, names in sorted(self._needed.items()):
            if module not in others:
                shown = (name if name == under else f"{name} as {under}" for name, under in sorted(names.items()))
                lines.append(f"from {module} import {', '.join(shown)}")
        for module in sorted(others):
            needed = self._needed[module].items()
            lines += ["", *(f"{under} = import_module({module!r}).{name}" for name, under in needed)]
        return lines

    def helpers(self) -> list[str]:
        """Return the source code of the functions that the expressions call."""
        return list(self._helpers)

    def of(self, value: Any) -> str:
        """Return an expression that creates a value. What has no expression is written as text."""
        self._depth += 1
        try:
            return self._of(value) if self._depth <= _DEEPEST else self._packed(value)
        finally:
            self._depth -= 1

    def _packed(self, value: Any) -> str:
        """Return an expression that reads a value from bytes."""
        self.need("amadou.engine", "unpack")
        return f"unpack({self._bytes(pack(value))})"

    def _bytes(self, value: bytes) -> str:
        text = value.decode(errors="surrogateescape")
        shown = self._shown(text)
        return repr(value if shown == text else shown.encode(errors="surrogateescape"))

    def _number(self, value: Any, expression: str) -> str:
        """Return the expression for a number or an id, or a text in its place if it is a secret."""
        shown = self._shown(str(value))
        return expression if shown == str(value) else repr(shown)

    def _of(self, value: Any) -> str:
        kind = type(value)
        if kind in self._BUILT_IN:
            return self._BUILT_IN[kind](self, value)
        if isinstance(value, Enum):
            return self._enum(value)
        if is_named_tuple(kind):  # its items: a property may hide a field
            return self._call(kind, dict(zip(kind._fields, value, strict=True)))
        if has_fields(kind):
            fields = {field.alias: getattr(value, field.name) for field in fields_of(kind) if field.alias is not None}
            return self._made(value, fields, [field.name for field in fields_of(kind) if field.alias is None])
        shown = repr(value)
        return shown if _is_expression(shown) else repr(self._shown(shown))

    def _text(self, value: str) -> str:
        return repr(self._shown(value))

    def _int(self, value: int) -> str:
        return hex(value) if abs(value) >= _LARGEST else self._number(value, repr(value))

    def _float(self, value: float) -> str:
        return self._number(value, repr(value)) if isfinite(value) else f'float("{value}")'

    def _imported(self, value: Any) -> str:
        """Return the expression for an object of a class of the standard library."""
        kind = type(value)
        self.need(kind.__module__, kind.__name__)
        made = repr(value).removeprefix(f"{kind.__module__}.")
        return self._number(value, made) if kind in (Decimal, UUID) else made

    def _enum(self, value: Enum) -> str:
        name = self._class(type(value))
        if isinstance(value, Flag):
            return f"{name}({value.value!r})"
        return f"{name}.{value.name}" if is_name(value.name) else f"{name}[{value.name!r}]"

    def _made(self, value: Any, fields: dict[str, Any], others: list[str]) -> str:
        """Return an expression for an object.

        :param fields: arguments for the constructor
        :param others: names of the fields that the constructor does not accept; these fields may have changed since the
            object was created
        """
        call = self._call(type(value), fields)
        try:
            made = type(value)(**fields)
            changed = [name for name in others if getattr(made, name) != getattr(value, name)]
        except Exception:  # a user's class: the constructor may fail, or may not set the field
            changed = [name for name in others if hasattr(value, name)]
        if not changed:
            return call
        self._helpers[_HAVING] = None
        return f"having({call}, {', '.join(f'{name}={self.of(getattr(value, name))}' for name in changed)})"

    def _container(self, value: Any) -> str:
        if type(value) is dict:
            return f"{{{', '.join(f'{self.of(key)}: {self.of(part)}' for key, part in value.items())}}}"
        parts = ", ".join(map(self.of, value))
        forms: dict[type, str] = {
            list: f"[{parts}]",
            tuple: f"({parts}{',' if len(value) == 1 else ''})",
            frozenset: f"frozenset({{{parts}}})" if value else "frozenset()",
            set: f"{{{parts}}}" if value else "set()",
        }
        return forms[type(value)]

    def _datetime(self, value: datetime) -> str:
        self.need("datetime", "datetime")
        self.need("datetime", "timezone")
        value = value.astimezone(timezone.utc)
        parts = [value.year, value.month, value.day, value.hour, value.minute, value.second, value.microsecond]
        while len(parts) > 3 and parts[-1] == 0:
            parts.pop()
        return f"datetime({', '.join(map(str, parts))}, tzinfo=timezone.utc)"

    def _call(self, class_: type, fields: dict[str, Any]) -> str:
        return f"{self._class(class_)}({', '.join(f'{name}={self.of(value)}' for name, value in fields.items())})"

    def _class(self, class_: type) -> str:
        outer = class_.__qualname__.partition(".")[0]
        self.need(_exporting(class_.__module__, outer), outer)
        return class_.__qualname__

    _BUILT_IN: Final[Mapping[type, Callable[["SourceCode", Any], str]]] = {
        str: _text,
        bytes: _bytes,
        int: _int,
        float: _float,
        datetime: _datetime,
        **dict.fromkeys((date, timedelta, Decimal, UUID), _imported),
        **dict.fromkeys((list, tuple, set, frozenset, dict), _container),
    }


def _exporting(module: str, name: str) -> str:
    """Return the outermost package that exports what a module defines; the module if no package does."""
    parts = module.split(".")
    defined = getattr(sys.modules.get(module), name, None)
    for number in range(1, len(parts) if defined is not None else 0):
        package = ".".join(parts[:number])
        if getattr(sys.modules.get(package), name, None) is defined:
            return package
    return module
