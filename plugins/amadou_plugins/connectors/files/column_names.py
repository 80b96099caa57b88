"""Checks column names in settings and in files."""

from collections.abc import Sequence
from typing import Any, Final

from amadou import Param
from amadou.errors import AmadouError, SourceError
from amadou.text import shown_value

_SHOWN: Final = 200


def column_names(
    names: str | Sequence[str] | Param | None, setting: str = "columns", error: type[AmadouError] = SourceError
) -> Any:
    """Return the value of a setting such as `columns` as a tuple; return `None` and a `Param` unchanged.

    :param setting: name of the setting, for error messages
    :param error: class of the error to raise
    :raises AmadouError: the value is empty, is neither a list nor a comma-separated string, or contains a name twice
    """
    if names is None or isinstance(names, Param):
        return names
    given = names.split(",") if isinstance(names, str) and names else names
    if isinstance(given, str) or not isinstance(given, Sequence) or not given:
        raise error(f'{setting} must be a non-empty list of names, such as ["channel", "views"], not {names!r}')
    check_twice(setting, given, error)
    return tuple(given)


def check_twice(label: str, names: Sequence[str], error: type[AmadouError] = SourceError) -> None:
    """Check that no column name occurs twice: a row's `dict` would contain only one of the two cells.

    :param label: origin of the names, for the error message
    :param error: class of the error to raise
    :raises AmadouError: a name occurs twice
    """
    known = set[str]()
    for name in names:
        if name in known:
            raise error(f"{label}: two columns have the name {shown_value(name, _SHOWN)}: rename one of them")
        known.add(name)
