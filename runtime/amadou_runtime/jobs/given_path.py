"""Refuses empty paths, which would otherwise be the working directory."""

from amadou.errors import CheckpointError, SavepointError


def check_given(path: str, error: type[CheckpointError] | type[SavepointError]) -> None:
    """Raise an error if a path is empty.

    :param error: the class of the error
    """
    if not path:
        raise error("''", "the path is empty: name a directory. If a variable contains the path, check that it is set")
