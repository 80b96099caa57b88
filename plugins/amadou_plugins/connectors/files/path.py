"""Paths as users write them: relative, with a scheme, or a parameter's."""

import os
import re
from pathlib import Path
from typing import Any

from amadou import Param
from amadou.errors import AmadouError

_SCHEME = re.compile(r"(?!file:)[A-Za-z][A-Za-z0-9+.-]+:/")


def path_text(path: str | Path | Param) -> Any:
    """A path as text; a parameter stays one until it has its value, and what is no path is left to `check_path`."""
    return os.fspath(path) if isinstance(path, os.PathLike) else path


def check_path(error: type[AmadouError], connector: str, path: Any) -> None:
    """Raise unless there is a path: an empty one would be the working directory.

    :param connector: the connector's class
    """
    if not isinstance(path, Param) and (not isinstance(path, str) or not path):
        raise error(f"{connector} needs a path, such as views/, not {path!r}")


def is_remote(path: str) -> bool:
    """Whether a path lies in a file system that only Spark reaches, such as ``s3://`` or ``hdfs://``."""
    return _SCHEME.match(path) is not None


def local_path(path: str) -> str:
    """A path of this machine without ``file:`` before it."""
    return re.sub(r"^file:(//)?(?=/)", "", path)
