"""Paths as users write them: relative, with a scheme, or a parameter's."""

import os
import re
from pathlib import Path
from typing import Any

from amadou import Param

_SCHEME = re.compile(r"(?!file:)[A-Za-z][A-Za-z0-9+.-]+:/")


def path_text(path: "str | Path | Param") -> Any:
    """A path as text; a parameter stays one until it has its value."""
    return path if isinstance(path, Param) else os.fspath(path)


def is_remote(path: str) -> bool:
    """Whether a path lies in a file system that only Spark reaches, such as ``s3://`` or ``hdfs://``."""
    return _SCHEME.match(path) is not None


def local_path(path: str) -> str:
    """A path of this machine without ``file:`` before it."""
    return re.sub(r"^file:(//)?(?=/)", "", path)
