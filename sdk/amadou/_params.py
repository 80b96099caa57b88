import copy
import os
from collections.abc import Callable, Iterable, Mapping
from datetime import timedelta
from typing import Any, TypeVar, cast

import attrs

from amadou._secret import Secret
from amadou._spec import MISSING
from amadou.errors import ParamError

T = TypeVar("T")


@attrs.frozen
class Param:
    """A setting with a value from the deployment: `amadou run … -p NAME=VALUE`, else the environment variable `NAME`,
    else the default. It may be the value of a handler's attribute, or of a setting of a connector or a job. In a
    setting that is a mapping it may be one of the values.

    :param name: the name on the command line and in the environment
    :param default: the value if none is given; without a default the setting must be given
    :param type: turns the text into the value: `str`, `int`, `float`, `bool` (true, false, yes, no, 1, 0),
        `timedelta` (in seconds), or any function of a text
    :param secret: `True` makes the value a `Secret`, which logs, errors, `describe` and dead letters do not show
    """

    name: str
    default: Any = attrs.field(default=MISSING, repr=False)
    type: Callable[[str], Any] = str
    secret: bool = attrs.field(default=False, kw_only=True)

    def value(self, given: Mapping[str, str]) -> Any:
        """Return the setting's value.

        :raises ParamError: the setting is not given, or its text cannot be read
        """
        text = given.get(self.name, os.environ.get(self.name))
        if text is None:
            if self.default is MISSING:
                raise ParamError(
                    (f"the parameter {self.name} is not given: use -p {self.name}=VALUE or set it in the environment",)
                )
            return self._given(self.default)
        if self.secret:
            Secret(text)  # from now on no error shows it
        try:
            return self._given(_READERS.get(self.type, self.type)(text))
        except (ValueError, TypeError, ArithmeticError) as error:
            kind = getattr(self.type, "__name__", repr(self.type))
            if self.secret:
                raise ParamError((f"the parameter {self.name} cannot be read as {kind}",)) from None
            raise ParamError((f"the parameter {self.name} cannot be read from {text!r} as {kind}: {error}",)) from error

    def _given(self, value: Any) -> Any:
        return Secret(value) if self.secret and value is not None else value


def _read_bool(text: str) -> bool:
    known = {"true": True, "yes": True, "1": True, "false": False, "no": False, "0": False}
    if text.lower() not in known:
        raise ValueError("use true or false")
    return known[text.lower()]


_READERS: dict[Any, Callable[[str], Any]] = {bool: _read_bool, timedelta: lambda text: timedelta(seconds=float(text))}


def settings_of(holder: Any) -> dict[str, Any]:
    """Return the settings of a connector, handler or job by attribute: its own, and the parameters on its class."""
    if attrs.has(type(holder)):
        return {field.name: getattr(holder, field.name) for field in attrs.fields(type(holder))}
    declared = {name: value for owner in reversed(type(holder).__mro__) for name, value in vars(owner).items()}
    of_class = {name: value for name, value in declared.items() if isinstance(value, Param)}
    return {**of_class, **getattr(holder, "__dict__", {})}


def params_of(holders: Iterable[Any]) -> list[Param]:
    """Return the parameters among the settings of connectors, handlers or jobs."""
    return [param for holder in holders for setting in settings_of(holder).values() for param in _params_in(setting)]


def with_values(holder: T, given: Mapping[str, str], problems: list[str]) -> T:
    """Return a copy of the holder with the values of its parameters; the holder itself if it has none.

    :param problems: a list to which one sentence is added for each parameter without a usable value
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
