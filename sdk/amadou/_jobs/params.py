import copy
import os
from collections.abc import Callable, Iterable, Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any, TypeVar, cast

import attrs

from amadou._connectors.secret import Secret
from amadou._state.spec import MISSING
from amadou.errors import ParamError

T = TypeVar("T")


@attrs.frozen
class Param:
    """A job parameter, set at deployment. The value comes from `amadou run … -p NAME=VALUE`, the environment variable
    `NAME` or the default, in this order of precedence. A secret can also be in a file: pass `-p NAME_FILE=PATH`, or set
    the environment variable `NAME_FILE`, instead of `NAME`. A `Param` can be a handler's attribute, a setting of a
    connector or a job, or a value in a setting that is a mapping.

    :param name: the name on the command line and in the environment
    :param default: the value if the parameter is not set; a parameter without a default must be set
    :param type: function that converts the string into the value: `str`, `int`, `float`, `bool` (true, false, yes, no,
        1, 0), `timedelta` (in seconds), or your own function
    :param secret: `True` to make the value a `Secret`, which is hidden in logs, errors, `describe` and dead letters
    """

    name: str
    default: Any = attrs.field(default=MISSING, repr=False)
    type: Callable[[str], Any] = str
    secret: bool = attrs.field(default=False, kw_only=True)

    def value(self, given: Mapping[str, str]) -> Any:
        """Return the parameter's value.

        :param given: values as strings, by name, as on the command line
        :raises ParamError: the parameter has neither a value nor a default, or its value cannot be parsed
        """
        place = self.place(given)
        if place is None:
            if self.default is MISSING:
                file = f", or {self.file_name} for a file with the value" if self.secret else ""
                use = f"use -p {self.name}=VALUE or environment variable {self.name}{file}"
                raise ParamError((f"parameter {self.name} is not set: {use}",))
            return self._given(self.default)
        text = place.text if place.name == self.name else self._read(place)
        if self.secret:
            Secret(text)  # errors hide the text once this Secret exists
        try:
            return self._given(_READERS.get(self.type, self.type)(text))
        except (ValueError, TypeError, ArithmeticError) as error:
            kind = getattr(self.type, "__name__", repr(self.type))
            if self.secret:
                raise ParamError((f"the value of parameter {self.name} is not a valid {kind}",)) from None
            raise ParamError((f"{text!r} is not a valid {kind} for parameter {self.name}: {error}",)) from error

    @property
    def file_name(self) -> str:
        """Name on the command line and in the environment for the path of a file with the secret."""
        return f"{self.name}_FILE"

    def place(self, given: Mapping[str, str]) -> "Place | None":
        """Return where the parameter is set; `None` if it is not set.

        :param given: see `value`
        """
        for origin, values in (("-p", given), ("environment", os.environ)):
            for name in (self.name, self.file_name) if self.secret else (self.name,):
                if name in values:
                    return Place(origin, name, values[name])
        return None

    def _read(self, place: "Place") -> str:
        """Return the content of a file, without one newline at its end."""
        try:
            text = Path(place.text).read_bytes().decode()
        except (OSError, UnicodeError) as error:
            why = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
            problem = f"parameter {self.name}: {place.name} is {place.text!r}, which cannot be read: {why}"
            raise ParamError((problem,)) from None
        return text.removesuffix("\r\n" if text.endswith("\r\n") else "\n")

    def _given(self, value: Any) -> Any:
        return Secret(value) if self.secret and value is not None else value


@attrs.frozen
class Place:
    """Where a parameter is set.

    :param origin: `-p` or `environment`
    :param name: the parameter's name, or its `file_name`
    :param text: the value, or the path of the file
    """

    origin: str
    name: str
    text: str = attrs.field(repr=False)


def _read_bool(text: str) -> bool:
    known = {"true": True, "yes": True, "1": True, "false": False, "no": False, "0": False}
    if text.lower() not in known:
        raise ValueError("use true or false")
    return known[text.lower()]


_READERS: dict[Any, Callable[[str], Any]] = {bool: _read_bool, timedelta: lambda text: timedelta(seconds=float(text))}


def settings_of(holder: Any) -> dict[str, Any]:
    """Return the settings of a connector, handler or job, by attribute name: the object's attributes, and the
    parameters that its class declares.
    """
    if attrs.has(type(holder)):
        return {field.name: getattr(holder, field.name) for field in attrs.fields(type(holder))}
    declared = {name: value for owner in reversed(type(holder).__mro__) for name, value in vars(owner).items()}
    of_class = {name: value for name, value in declared.items() if isinstance(value, Param)}
    return {**of_class, **getattr(holder, "__dict__", {})}


def params_of(holders: Iterable[Any]) -> list[Param]:
    """Return the parameters among the settings of connectors, handlers or jobs."""
    return [param for holder in holders for setting in settings_of(holder).values() for param in _params_in(setting)]


def with_values(holder: T, given: Mapping[str, str], problems: list[str]) -> T:
    """Return a copy of a connector, handler or job with each parameter replaced by its value. If there are no
    parameters, return the object itself.

    :param problems: list to which this function adds a sentence for each parameter whose value is missing or invalid
    """
    values = {}
    for attribute, setting in settings_of(holder).items():
        if _params_in(setting):
            values[attribute] = (
                {name: _filled(value, given, problems) for name, value in setting.items()}
                if isinstance(setting, Mapping)
                else _filled(setting, given, problems)
            )
    if not values:
        return holder
    if attrs.has(type(holder)):
        aliases = {field.name: field.alias for field in attrs.fields(cast("Any", type(holder)))}
        return attrs.evolve(holder, **{aliases[name]: value for name, value in values.items()})  # type: ignore[misc]
    filled = copy.copy(holder)
    vars(filled).update(values)
    return filled


def _params_in(setting: Any) -> list[Param]:
    found = setting.values() if isinstance(setting, Mapping) else (setting,)
    return [value for value in found if isinstance(value, Param)]


def _filled(setting: Any, given: Mapping[str, str], problems: list[str]) -> Any:
    if not isinstance(setting, Param):
        return setting
    try:
        return setting.value(given)
    except ParamError as error:
        problems.extend(error.problems)
        return setting
