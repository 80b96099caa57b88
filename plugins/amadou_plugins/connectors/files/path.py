"""Handles paths as users write them: relative, with a scheme, or as a `Param`."""

import os
from pathlib import Path
from typing import Any

from amadou import Param
from amadou.errors import AmadouError


def path_text(path: str | Path | Param) -> Any:
    """Return a `Path` as a string, and any other value unchanged. `check_path` rejects invalid values."""
    return os.fspath(path) if isinstance(path, os.PathLike) else path


def check_path(error: type[AmadouError], connector: str, path: Any) -> None:
    """Raise an error unless a path is a non-empty string or a `Param`. An empty path would mean the working directory.

    :param connector: name of the connector's class, for the error message
    """
    if not isinstance(path, Param) and (not isinstance(path, str) or not path):
        raise error(f"{connector} needs a path, such as views/, not {path!r}")
