import os
import re
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any
from urllib.parse import quote

import attrs

from amadou import Codec, Param, Sink, SinkBatch, SinkWriter
from amadou.errors import SinkError
from amadou_plugins.connectors._json import JsonCodec, json_lines
from amadou_plugins.connectors._path import is_remote, local_path, path_text


@attrs.frozen
class JsonLinesSink(Sink):
    """A directory of files with a JSON value on each line. Exactly-once.

    Each part of a batch becomes a file ``<port>-<run>-<batch>-<part>.jsonl``. It is written under a hidden name and
    renamed when the batch is committed, so that a reader sees whole files only. A batch that is played again, wherever
    it was cut short, replaces its own files. Several ports, jobs and runs may share a directory.

    :param path: the directory, relative to where the program was started; made where it is missing. On a cluster it
        must be one that all machines share
    """

    guarantee = "exactly-once"

    path: str | Path | Param = attrs.field(converter=path_text)

    def __reduce__(self) -> Any:
        # The workers of a cluster have another working directory.
        return type(self), (self.path if isinstance(self.path, Param) else self._directory,)

    def codec(self, type_: Any) -> Codec[Any]:
        return JsonCodec(type_)

    def check(self, port: str, type_: Any) -> None:
        if is_remote(str(self.path)):
            raise SinkError(f"JsonLinesSink({str(self.path)!r}) writes to mounted file systems: give a local directory")
        directory = self._directory
        with _told(directory):
            os.makedirs(directory, exist_ok=True)
            probe = os.path.join(directory, f".probe-{uuid.uuid4().hex}")
            with open(probe, "xb"):
                os.unlink(probe)

    def open(self, batch: SinkBatch, part: str) -> SinkWriter:
        final = f"{_stem(batch)}-{part}.jsonl"
        # Attempts at one part may overlap: no two of them share a file.
        return _JsonLinesWriter(batch, self._directory, f".{final}.{uuid.uuid4().hex}", final)

    def commit(self, batch: SinkBatch, parts: Sequence[Any]) -> None:
        directory, stem = self._directory, _stem(batch)
        with _told(directory):
            os.makedirs(directory, exist_ok=True)
            for temporary, final in parts:
                _rename(directory, temporary, final)
            kept = {final for _, final in parts}
            left = [name for name in os.listdir(directory) if name.startswith((f"{stem}-", f".{stem}-"))]
            for name in left:
                if name not in kept:
                    with suppress(FileNotFoundError):
                        os.unlink(os.path.join(directory, name))
            if parts or left:
                _sync_directory(directory)

    @property
    def _directory(self) -> str:
        return os.path.abspath(local_path(str(self.path)))


class _JsonLinesWriter(SinkWriter):
    def __init__(self, batch: SinkBatch, directory: str, temporary: str, final: str) -> None:
        self._batch = batch
        self._directory = directory
        self._temporary = temporary
        self._final = final
        self._file: IO[bytes] | None = None

    def write(self, wires: Sequence[Any]) -> None:
        if not wires:
            return
        with _told(self._directory):
            if self._file is None:
                os.makedirs(self._directory, exist_ok=True)
                self._file = open(os.path.join(self._directory, self._temporary), "xb")  # noqa: SIM115 - until finish
            self._file.write(b"\n".join([*json_lines(self._batch, wires), b""]))

    def finish(self) -> list[str] | None:
        if self._file is None:
            return None
        with _told(self._directory), self._file as file:
            file.flush()
            os.fsync(file.fileno())
        return [self._temporary, self._final]

    def abort(self) -> None:
        if self._file is not None:
            with suppress(OSError):  # a full disk: what is in the buffer is not wanted
                self._file.close()
            with suppress(FileNotFoundError):
                os.unlink(os.path.join(self._directory, self._temporary))


def _stem(batch: SinkBatch) -> str:
    port = re.sub(r"^[._]", lambda match: f"%{ord(match[0]):02X}", quote(batch.port, safe=""))
    return f"{port}-{quote(batch.run, safe='')}-{batch.number:09}"


def _rename(directory: str, temporary: str, final: str) -> None:
    target = os.path.join(directory, final)
    try:
        os.replace(os.path.join(directory, temporary), target)
    except FileNotFoundError:
        if not os.path.exists(target):  # else this very commit was cut short, and is called again
            raise SinkError(
                f"the directory {directory} lacks the file {temporary} that a worker wrote: on a cluster "
                "JsonLinesSink needs a directory that all machines share"
            ) from None


def _sync_directory(directory: str) -> None:
    """Make renames outlive a power cut: the batch counts as done afterwards."""
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextmanager
def _told(directory: str) -> Iterator[None]:
    try:
        yield
    except (FileExistsError, NotADirectoryError) as error:
        raise SinkError(f"{directory} is not a directory: give JsonLinesSink another path") from error
    except PermissionError as error:
        raise SinkError(f"the directory {directory} may not be written by this user: change its permissions") from error
    except OSError as error:
        raise SinkError(f"the directory {directory} cannot be written: {error}") from error
