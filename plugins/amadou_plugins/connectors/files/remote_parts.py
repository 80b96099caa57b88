"""Writes the parts of a batch to a file system that only Spark can access, such as HDFS or S3.

Workers cannot access Spark's file systems from Python. So the parts travel to the driver with the batch's results, and
the driver writes the files when the batch is committed. Each file appears as a whole. Its name contains the batch's
number, so a batch that is processed again replaces its files. Before the first file, the driver writes a list of the
batch's files, from which the next attempt at the batch knows the files to remove: to look for them would take minutes
in a directory with many files or partitions.
"""

import io
import json
import os
import re
import tempfile
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import lru_cache
from typing import IO, Any, Final

import attrs

from amadou.errors import SinkError
from amadou.plugins import SinkBatch, SinkWriter
from amadou.remote_files import RemoteDirectory, running_context
from amadou_plugins.connectors._last_commits import LastCommits
from amadou_plugins.connectors.files.part_files import Content, stem

_UPLOADS: Final = 8
"""Number of files that are written at the same time."""
_commits: Final = LastCommits()


@attrs.frozen
class RemoteParts:
    """The files in a sink's directory; see `PartFiles`.

    :param sink: name of the sink's class, for error messages
    :param sent: the directory, as a URI
    """

    sink: str
    sent: str

    def check(self) -> None:
        """Create the directory, and check that it is writable.

        :raises SinkError: there is no Spark session, or Spark cannot write to the directory
        """
        _commits.forget(self.sent)
        with self._explained_errors():
            self._directory.make()

    def open(
        self, batch: SinkBatch, part: str, suffix: str, content: Callable[[IO[bytes]], Content], below: str = ""
    ) -> "_RemoteWriter":
        """Return a writer for the file ``<port>-<run>-<batch>-<part><suffix>``.

        :param content: function that creates the `Content` of an open file
        :param below: the file's subdirectory, relative to the sink's directory
        """
        return _RemoteWriter(os.path.join(below, f"{stem(batch)}-{part}{suffix}"), content)

    def commit(self, batch: SinkBatch, files: Sequence[Any], suffix: str, depth: int = 0) -> None:
        """Write a batch's files, and remove the files of an interrupted commit that the batch no longer has.

        :param files: results of the writers' `finish`
        :param suffix: suffix of the sink's file names; files with other suffixes may belong to another sink of the port
        :param depth: not needed here; see `PartFiles.commit`
        """
        may_be_left = _commits.begin(self.sent, batch, suffix)
        with self._explained_errors(), tempfile.TemporaryDirectory(prefix="amadou-parts-") as local:
            directory = self._directory

            def upload(number: int) -> None:
                content, final = files[number]
                path = os.path.join(local, str(number))
                with open(path, "wb") as file:
                    file.write(content)
                directory.upload(path, final)
                os.unlink(path)

            finals = {final for _, final in files}
            place = f".{stem(batch).rpartition('-')[0]}{suffix}.list"
            before = _listed(directory, place, batch.number) if may_be_left else set()
            if before | finals:
                directory.write(place, json.dumps([batch.number, sorted(before | finals)]).encode())
            with ThreadPoolExecutor(_UPLOADS) as pool:
                list(pool.map(upload, range(len(files))))
            for left in before - finals:
                directory.remove(left)
            for partial in _partial(directory, before, stem(batch), suffix):
                directory.remove(partial)
        _commits.end(self.sent, batch, suffix)

    def opened(self, content: bytes) -> IO[bytes]:
        """Open a finished file."""
        return io.BytesIO(content)

    def is_committed(self, batch: SinkBatch, files: Sequence[Any], suffix: str, depth: int = 0) -> bool:
        """Return `False`: the content of the files is at hand, so they can be committed again."""
        return False

    @property
    def _directory(self) -> RemoteDirectory:
        return _opened(self.sent, running_context())

    @contextmanager
    def _explained_errors(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise SinkError(f"{self.sink} cannot write to {self.sent}: {error}") from error


def _listed(directory: RemoteDirectory, place: str, batch: int) -> set[str]:
    """Return the files of earlier attempts at a batch."""
    number, names = json.loads(directory.read(place) or b"[-1, []]")
    return set(names) if number == batch else set()


def _partial(directory: RemoteDirectory, files: set[str], start: str, suffix: str) -> Iterator[str]:
    """Return the files that an earlier attempt had only begun to write; see `RemoteDirectory.write`.

    :param files: the files of the earlier attempts
    :param start: how the names of the batch's files begin
    """
    pattern = re.compile(rf"\.{re.escape(start)}-.*{re.escape(suffix)}\.\w+")
    for below in {os.path.dirname(name) for name in files} if directory.writes_partial_files else ():
        for name in directory.names(below):
            if pattern.fullmatch(name):
                yield os.path.join(below, name)


@lru_cache(64)
def _opened(path: str, context: Any) -> RemoteDirectory:
    """Return the access to a directory, which has connections: a run uses one for all its batches."""
    return RemoteDirectory(path, context)


class _RemoteWriter(SinkWriter):
    """Writes a file in memory; see `RemoteParts.open`."""

    def __init__(self, final: str, content: Callable[[IO[bytes]], Content]) -> None:
        self._final = final
        self._new_content = content
        self._file = io.BytesIO()
        self._content: Content | None = None

    def write(self, encoded_values: Sequence[Any]) -> None:
        if encoded_values:
            if self._content is None:
                self._content = self._new_content(self._file)
            self._content.write(encoded_values)

    def finish(self) -> list[Any] | None:
        if self._content is None:
            return None
        self._content.end()
        return [self._file.getvalue(), self._final]

    def abort(self) -> None:
        self._content = None
