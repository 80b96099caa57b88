"""The names of the columns of files."""

from collections.abc import Sequence
from typing import Any

from amadou import Param
from amadou.errors import AmadouError, SourceError


def column_names(
    names: str | Sequence[str] | Param | None, setting: str = "columns", error: type[AmadouError] = SourceError
) -> Any:
    """What a connector was given for a setting such as `columns`, as a tuple; a parameter stays one until it has its
    value.

    :raises AmadouError: the error that was given: it is neither a list of different names nor a text with commas
        between them
    """
    if names is None or isinstance(names, Param):
        return names
    given = names.split(",") if isinstance(names, str) and names else names
    if isinstance(given, str) or not isinstance(given, Sequence) or not given:
        raise error(f'{setting} must be names, such as ["channel", "views"], not {names!r}')
    check_twice(setting, given, error)
    return tuple(given)


def check_twice(told: str, names: Sequence[str], error: type[AmadouError] = SourceError) -> None:
    """Check that no name is there twice: a `dict` would have but one of the cells.

    :param told: where the names are from
    :raises AmadouError: the error that was given: one is
    """
    for number, name in enumerate(names):
        if name in names[:number]:
            raise error(f"{told}: there are two columns {name!r}: give one of them another name")
