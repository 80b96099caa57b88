"""Paths of files: whether Spark is needed to access them, and how Python writes them."""

import re
from typing import Final

__all__ = ["is_remote", "local_path"]

_SCHEME: Final = re.compile(r"(?!file:)[A-Za-z][A-Za-z0-9+.-]+:/")


def is_remote(path: str) -> bool:
    """Return `True` if a path is in a file system that only Spark can access, such as ``s3a://`` or ``hdfs://``."""
    return _SCHEME.match(path) is not None


def local_path(path: str) -> str:
    """Return a local path without a leading ``file:`` or ``file://``."""
    return re.sub(r"^file:(//)?(?=/)", "", path)
