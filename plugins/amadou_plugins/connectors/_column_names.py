"""The names of the columns of files."""

from collections.abc import Sequence

from amadou.errors import SourceError


def column_names(names: Sequence[str] | None) -> tuple[str, ...] | None:
    """What a source was given for `columns`.

    :raises SourceError: it is no list of different names
    """
    if names is None:
        return None
    if isinstance(names, str) or not isinstance(names, Sequence) or not names:
        raise SourceError(f'columns must be names, such as ["channel", "views"], not {names!r}')
    check_twice("columns", names)
    return tuple(names)


def check_twice(told: str, names: Sequence[str]) -> None:
    """Check that no name is there twice: a `dict` would have but one of the cells.

    :param told: where the names are from
    :raises SourceError: one is
    """
    for number, name in enumerate(names):
        if name in names[:number]:
            raise SourceError(f"{told}: there are two columns {name!r}: give one of them another name")
