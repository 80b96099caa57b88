"""The files of a key range's view on the local disk.

::

    lock           locked by the process that changes the view
    current        name of the current generation, and the boot of the machine in which it was written
    g-…/           a generation: an LMDB file
    private-…/     a view of a single batch, made while another process changed the shared view
    use-…          locked by a process that uses a generation; left behind if the process dies
    pending-…      changes of a batch, to be applied when the batch is committed

A generation is never replaced: a new one is written beside it, and `current` is switched.
"""

import errno
import fcntl
import os
import shutil
import socket
import time
import zlib
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any
from uuid import uuid4

import lmdb

from amadou.errors import AmadouError, RunError
from amadou.paths import make_directory
from amadou_runtime.formats.compressed import pack_compressed, unpack_compressed
from amadou_runtime.formats.local_file import write_file

_BOOT = Path("/proc/sys/kernel/random/boot_id")
_DEATHS = 2
"""A generation is not used again after this many uses in a row have ended with the death of the process: a damaged page
kills the process that reads it.
"""
_PENDING = 2
"""Maximum number of pending files for one token: those of attempts that run at once, and of failed ones."""
_CRC = 4
_FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO}  # LMDB reports a short write as EIO


class ViewFiles:
    """Manages one directory."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory

    @contextmanager
    def locked(self, wait: float) -> Iterator[bool]:
        """Lock the view. Yield `False` if another process holds the lock for longer than the wait, in seconds."""
        make_directory(self.directory)
        with open(self.directory / "lock", "wb") as file:
            yield _try_lock(file, wait)  # closing the file releases the lock

    def current(self) -> Path | None:
        """Return the current generation; `None` if there is none that can be trusted."""
        try:
            name, boot = (self.directory / "current").read_text().split("\n")
        except (OSError, ValueError):
            return None
        path = self.directory / name
        if boot != _boot_id() or not (path / "data.mdb").is_file():
            return None  # pages that were not on disk when the machine stopped are lost
        return None if len(self._dead(name)) >= _DEATHS else path

    def new(self, prefix: str = "g") -> Path:
        """Return the path of a new generation."""
        return self.directory / f"{prefix}-{uuid4().hex}"

    def switch(self, generation: Path) -> None:
        """Make a generation the current one, and remove the others."""
        write_file(self.directory / "current", f"{generation.name}\n{_boot_id()}".encode())
        self._remove_generations(generation)

    def discard(self) -> None:
        """Remove the current generation and those that were not completed."""
        (self.directory / "current").unlink(missing_ok=True)
        self._remove_generations(None)

    def _remove_generations(self, kept: Path | None) -> None:
        for path in self.directory.glob("g-*"):
            if path != kept:
                shutil.rmtree(path, ignore_errors=True)  # processes that have a file open can still read it

    @contextmanager
    def used(self, generation: Path) -> Iterator[None]:
        """Record that a generation is in use."""
        marker = self.directory / f"use-{uuid4().hex}"
        with open(marker, "wb") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            file.write(generation.name.encode())
            file.flush()
            try:
                yield
            finally:
                # An error, unlike a death, also proves that the file can be read.
                for dead in self._dead(generation.name):
                    dead.unlink(missing_ok=True)
                marker.unlink(missing_ok=True)

    def _dead(self, generation: str) -> list[Path]:
        """Return the records of uses of a generation that ended with the death of the process."""
        return [path for path, name in self._abandoned() if name == generation]

    def _abandoned(self) -> Iterator[tuple[Path, str]]:
        for path in self.directory.glob("use-*"):
            with suppress(FileNotFoundError), open(path, "rb") as file:
                if _try_lock(file, 0):
                    yield path, file.read().decode()

    def clean(self, token: bytes) -> None:
        """Remove what dead processes left behind, and all pending files except those that continue from a token."""
        current = self.current()
        for path, name in self._abandoned():
            if current is None or name != current.name:
                path.unlink(missing_ok=True)
                if name.startswith("private-"):
                    shutil.rmtree(self.directory / name, ignore_errors=True)
        self._remove_generations(current)
        kept = sorted(self.directory.glob(f"pending-{token.hex()}-*"), key=_modified)[-_PENDING:]
        for path in self.directory.glob("pending-*"):
            if path not in kept:
                path.unlink(missing_ok=True)
        for path in self.directory.glob(".*"):
            if time.time() - _modified(path) > 60:  # another process may be writing it
                path.unlink(missing_ok=True)

    def write_pending(self, base: bytes, token: bytes, changes: Any) -> None:
        """Write the changes that lead from one token to the next."""
        data = pack_compressed(changes)
        make_directory(self.directory)  # the view may have been removed during the batch
        write_file(self._pending(base, token), zlib.crc32(data).to_bytes(_CRC, "big") + data)

    def read_pending(self, base: bytes, token: bytes) -> Any:
        """Return the changes that lead from one token to the next; `None` if they are missing or damaged."""
        try:
            stored = self._pending(base, token).read_bytes()
            if zlib.crc32(stored[_CRC:]).to_bytes(_CRC, "big") != stored[:_CRC]:
                return None
            return unpack_compressed(stored[_CRC:])
        except (OSError, ValueError, AmadouError):
            return None

    def _pending(self, base: bytes, token: bytes) -> Path:
        return self.directory / f"pending-{base.hex()}-{token.hex()}"

    def allocated(self) -> int:
        """Return the space that the directory occupies on disk."""
        total = 0
        for path, _, names in os.walk(self.directory):
            for name in names:
                with suppress(FileNotFoundError):  # removed by another process in the meantime
                    total += os.stat(os.path.join(path, name)).st_blocks * 512
        return total


@contextmanager
def local_disk(directory: Path, needed: int) -> Iterator[None]:
    """Explain errors of the local disk.

    :param needed: estimate of the bytes to be written
    :raises RunError: the disk is full, or cannot be written to
    """
    try:
        yield
    except (OSError, lmdb.Error) as error:
        if not is_disk_error(error):
            raise
        raise RunError(
            f"cannot write the local copy of state in {directory} on host {socket.gethostname()}: the disk is full or "
            f"failing ({_free(directory)} are free, about {_megabytes(needed)} are needed). No state is lost. Free "
            f"space, or set spark.local.dir to a directory on a larger disk, and run the job again: {error}"
        ) from error


def is_disk_error(error: Exception) -> bool:
    """Return `True` if a disk is full or failing."""
    code = error.errno if isinstance(error, OSError) else getattr(error, "code", None)
    return code in _FULL or isinstance(error, lmdb.DiskError)


def _free(directory: Path) -> str:
    try:
        return _megabytes(shutil.disk_usage(directory).free)
    except OSError:
        return "? MB"


def _megabytes(size: int) -> str:
    return f"{size / 1e6:,.1f} MB"


def _try_lock(file: Any, wait: float) -> bool:
    deadline = time.monotonic() + wait
    while True:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() >= deadline:
                return False
            time.sleep(0.01)
        else:
            return True


def _modified(path: Path) -> float:
    try:
        return path.stat().st_mtime
    except FileNotFoundError:
        return 0.0


def _boot_id() -> str:
    try:
        return _BOOT.read_text().strip()
    except OSError:
        return ""
