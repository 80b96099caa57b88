"""Paths of files: whether Spark is needed to access them, how Python writes them, and who can read directories."""

import os
import re
from pathlib import Path
from typing import Final

from amadou.errors import PlatformError

__all__ = ["DIRECTORY_MODE", "is_remote", "local_path", "make_directory"]

DIRECTORY_MODE: Final = "AMADOU_DIRECTORY_MODE"
"""Environment variable with the permissions of new directories for state and records, such as `750`. By default, only
the user of the process can read them."""

_SCHEME: Final = re.compile(r"(?!file:)[A-Za-z][A-Za-z0-9+.-]+:/")


def is_remote(path: str) -> bool:
    """Return `True` if a path is in a file system that only Spark can access, such as ``s3a://`` or ``hdfs://``."""
    return _SCHEME.match(path) is not None


def local_path(path: str) -> str:
    """Return a local path without a leading ``file:`` or ``file://``."""
    return re.sub(r"^file:(//)?(?=/)", "", path)


def make_directory(path: Path) -> None:
    """Create a directory for state and records, with its parents, unless it exists. The permissions of all new
    directories are those of `DIRECTORY_MODE`.

    :raises OSError: it cannot be created
    :raises PlatformError: the environment variable is not a mode
    """
    given = os.environ.get(DIRECTORY_MODE) or "700"
    if not re.fullmatch("0?[0-7]{3}", given):
        raise PlatformError(f"{DIRECTORY_MODE} must be the permissions of a directory, such as 750, not {given!r}")
    if not path.parent.exists():
        make_directory(path.parent)
    try:
        path.mkdir(0o700)
    except FileExistsError:
        if not path.is_dir():
            raise
    else:
        if given not in ("700", "0700"):
            path.chmod(int(given, 8))  # the mode of mkdir is restricted by the umask
