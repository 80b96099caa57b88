"""The names of the columns of files."""

from collections.abc import Sequence
from typing import Any

from amadou import Param
from amadou.errors import SourceError


def column_names(names: str | Sequence[str] | Param | None) -> Any:
    """What a source was given for `columns`, as a tuple; a parameter stays one until it has its value.

    :raises SourceError: it is neither a list of different names nor a text with commas between them
    """
    if names is None or isinstance(names, Param):
        return names
    given = names.split(",") if isinstance(names, str) and names else names
    if isinstance(given, str) or not isinstance(given, Sequence) or not given:
        raise SourceError(f'columns must be names, such as ["channel", "views"], not {names!r}')
    check_twice("columns", given)
    return tuple(given)


def check_twice(told: str, names: Sequence[str]) -> None:
    """Check that no name is there twice: a `dict` would have but one of the cells.

    :param told: where the names are from
    :raises SourceError: one is
    """
    for number, name in enumerate(names):
        if name in names[:number]:
            raise SourceError(f"{told}: there are two columns {name!r}: give one of them another name")
