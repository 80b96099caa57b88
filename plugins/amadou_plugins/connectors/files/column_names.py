"""The names of the columns of files."""

from collections.abc import Sequence
from typing import Any

from amadou import Param
from amadou.errors import AmadouError, SourceError


def column_names(
    names: str | Sequence[str] | Param | None, setting: str = "columns", error: type[AmadouError] = SourceError
) -> Any:
    """Return the value of a setting such as `columns` as a tuple; a parameter stays one until it has its value.

    :raises AmadouError: the value is neither a list of different names nor a text with commas between them; raises the
        given error class
    """
    if names is None or isinstance(names, Param):
        return names
    given = names.split(",") if isinstance(names, str) and names else names
    if isinstance(given, str) or not isinstance(given, Sequence) or not given:
        raise error(f'{setting} must be names, such as ["channel", "views"], not {names!r}')
    check_twice(setting, given, error)
    return tuple(given)


def check_twice(told: str, names: Sequence[str], error: type[AmadouError] = SourceError) -> None:
    """Check that no name occurs twice: a `dict` would have only one of the cells.

    :param told: origin of the names, for the error
    :raises AmadouError: a name occurs twice; raises the given error class
    """
    for number, name in enumerate(names):
        if name in names[:number]:
            raise error(f"{told}: there are two columns {name!r}: give one of them another name")
