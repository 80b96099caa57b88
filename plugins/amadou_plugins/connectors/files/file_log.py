"""Counts a source's read and unread files, based on the log that Spark's file source writes."""

import json
import os
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final
from urllib.parse import quote

import attrs

from amadou.errors import SourceError
from amadou.plugins import PartitionOffset
from amadou_plugins.connectors.files.file_partitions import plain_path
from amadou_plugins.connectors.files.found_files import FoundFiles

_UNQUOTED: Final = "/:@!$&'()*+,;=-._~"
"""Characters, besides letters and digits, that Java does not quote in the path of a URI."""


@attrs.define
class _Log:
    """The cached entries of a log.

    :param batch: number of the last cached batch
    :param paths: paths of the files in the cached batches
    """

    batch: int = -1
    paths: set[str] = attrs.field(factory=set)


_logs: dict[str, _Log] = {}
"""Cached logs by directory: reading an entire log is slow, and a batch's entry never changes."""


def files_read(
    files: FoundFiles, partition_of: Callable[[str], str], directory: str, batch: int
) -> dict[str, PartitionOffset]:
    """Return each partition's offset at the end of a batch: the number of files read, and the total number of files.

    :param directory: directory of the log that Spark's file source writes
    :param batch: number of the batch; later log entries are ignored
    """
    log = _logs.setdefault(directory, _Log())
    if batch < log.batch:
        log = _logs[directory] = _Log()
    if batch > log.batch:
        log.paths |= _paths(directory, log.batch, batch)
        log.batch = batch
    read = Counter(map(partition_of, log.paths))
    left = Counter(partition_of(path) for path in _present(files) if path not in log.paths)
    return {name: PartitionOffset(read[name], read[name] + left[name]) for name in read.keys() | left.keys()}


def _paths(directory: str, after: int, last: int) -> set[str]:
    """Return the files in the log entries of the batches after `after`, up to and including `last`."""
    return _entries(_names(directory), lambda name: _text(f"{directory}/{name}"), after, last)


def files_in_log(texts: Mapping[str, str], last: int) -> set[str]:
    """Return the files in the log entries of the batches up to and including `last`.

    :param texts: the log's entries by name
    """
    return _entries([name for name in texts if _is_entry(name)], texts.__getitem__, -1, last)


def log_text(paths: Iterable[str]) -> str:
    """Return a log entry with local files."""
    entries = ({"path": _spark_uri(path), "timestamp": _modified(path), "batchId": 0} for path in paths)
    return "\n".join(["v1", *map(json.dumps, entries)])


def _spark_uri(path: str) -> str:
    return f"file://{quote(path, safe=_UNQUOTED)}"


def _modified(path: str) -> int:
    """Return the time at which a file was last changed, in milliseconds; 0 if the file no longer exists."""
    try:
        return int(os.stat(path).st_mtime * 1000)
    except OSError:
        return 0


def _entries(found: Iterable[str], read: Callable[[str], str], after: int, last: int) -> set[str]:
    """Return the files in the entries of the batches after `after`, up to and including `last`.

    :param read: returns the text of an entry
    """
    names = {name: int(name.removesuffix(".compact")) for name in found}
    compacted = max((at for name, at in names.items() if name.endswith(".compact") and at <= last), default=-1)
    # a compacted entry contains all earlier entries
    chosen = [name for name, at in names.items() if max(after + 1, compacted) <= at <= last]
    paths = set()
    for name in chosen:
        try:
            paths |= {plain_path(json.loads(line)["path"]) for line in read(name).splitlines()[1:]}
        except (ValueError, TypeError, LookupError, AttributeError) as error:
            raise SourceError(f"the entry {name} in the log of a source's files is damaged ({error!r})") from error
    return paths


def _names(directory: str) -> list[str]:
    path, system = _hadoop(directory)
    if not system.exists(path):
        return []
    found = (str(status.getPath().getName()) for status in system.listStatus(path))
    return list(filter(_is_entry, found))


def _is_entry(name: str) -> bool:
    return name.removesuffix(".compact").isdecimal()


def _text(file: str) -> str:
    path, system = _hadoop(file)
    stream = system.open(path)
    try:
        return str(_jvm().org.apache.commons.io.IOUtils.toString(stream, "UTF-8"))
    finally:
        stream.close()


def _present(files: FoundFiles) -> Iterable[str]:
    """Return the files that currently exist."""
    if not files.is_remote:
        return files.paths()
    path, system = _hadoop(str(files.path))
    found: list[Any] = []
    for status in system.globStatus(path) or ():
        found += system.listStatus(status.getPath()) if status.isDirectory() else [status]
    return [
        plain_path(str(status.getPath().toString()))
        for status in found
        if not status.isDirectory() and not str(status.getPath().getName()).startswith((".", "_"))
    ]


def _hadoop(path: str) -> tuple[Any, Any]:
    place = _jvm().org.apache.hadoop.fs.Path(path)
    return place, place.getFileSystem(_spark()._jsc.hadoopConfiguration())


def _jvm() -> Any:
    return _spark()._jvm


def _spark() -> Any:
    from pyspark.sql import SparkSession

    return SparkSession.active()
