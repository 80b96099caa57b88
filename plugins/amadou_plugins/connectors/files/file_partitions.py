"""Assigns files to partitions."""

import re
from typing import Any
from urllib.parse import unquote
from zlib import crc32

from amadou import Param
from amadou.errors import SourceError
from amadou.paths import local_path


def check_partition_by(given: Any) -> None:
    """Check a source's `partition_by` setting, the rule that assigns files to partitions.

    :raises SourceError: the rule is neither a valid regular expression nor a positive integer
    """
    if given is None or isinstance(given, Param):
        return
    if isinstance(given, str):
        try:
            re.compile(given)
        except re.error as error:
            raise SourceError(f"partition_by must be a valid regular expression, not {given!r} ({error})") from None
    elif type(given) is not int or given < 1:
        raise SourceError(f"partition_by must be a regular expression or a positive integer, not {given!r}")


def partition_of_file(source: str, by: str | int, path: str) -> str:
    """Return the name of a file's partition.

    :param source: name of the source's class, for error messages
    :param by: a regular expression or the number of partitions; see `partition_by` in `LinesSource`
    :param path: path of the file, in the form that the operating system or Spark uses
    :raises SourceError: the regular expression does not match the path
    """
    path = plain_path(path)
    if isinstance(by, int):
        return str(crc32(path.encode("utf-8", "surrogateescape")) % by)
    found = re.search(by, path)
    if found is None or found[min(found.re.groups, 1)] is None:
        raise SourceError(f"{source}: partition_by={by!r} does not match {path}: correct the pattern, or move the file")
    return found[min(found.re.groups, 1)]


def plain_path(path: str) -> str:
    """Return a file's path without the ``file:`` prefix and the percent-encoding that Spark adds to local paths."""
    return unquote(local_path(path)) if path.startswith("file:") else path
