"""The partition of a file."""

import re
from typing import Any
from urllib.parse import unquote
from zlib import crc32

from amadou import Param
from amadou.errors import SourceError
from amadou_plugins.connectors.files.path import is_remote, local_path


def check_partition_by(given: Any) -> None:
    """Check the rule that divides files into partitions.

    :raises SourceError: the rule is not a regular expression or a number
    """
    if given is None or isinstance(given, Param):
        return
    if isinstance(given, str):
        try:
            re.compile(given)
        except re.error as error:
            raise SourceError(f"partition_by={given!r} is not a regular expression: {error}") from None
    elif type(given) is not int or given < 1:
        raise SourceError(f"partition_by must be a regular expression or a number of partitions, not {given!r}")


def partition_of_file(source: str, by: str | int, path: str) -> str:
    """Return the partition of a file.

    :param source: the source's class, for errors
    :param by: a regular expression whose first group, or whole match, names the partition; or the number of partitions
        that files are spread over by their paths
    :param path: the path, as this machine or Spark has it
    :raises SourceError: the regular expression does not match
    """
    path = plain_path(path)
    if isinstance(by, int):
        return str(crc32(path.encode("utf-8", "surrogateescape")) % by)
    found = re.search(by, path)
    if found is None:
        raise SourceError(
            f"{source}: partition_by={by!r} does not match {path}: correct it, or move the file out of the source"
        )
    return found[1] if found.re.groups else found[0]


def plain_path(path: str) -> str:
    """Return a file's path as this machine, or the file's own file system, has it."""
    return path if is_remote(path) or not path.startswith("file:") else unquote(local_path(path))
