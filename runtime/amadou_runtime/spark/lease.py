"""A run's lease on its checkpoint: no two runs may use a checkpoint at the same time.

The lease is a file in the checkpoint, which names the process of the run. The process renews the file regularly. On the
same machine, the lease ends with the process; elsewhere, it ends if it is not renewed.
"""

import json
import os
import socket
import threading
from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from typing import Final

import attrs

from amadou.engine import clock_time
from amadou.errors import AmadouError, CheckpointError
from amadou.event_time import MICROSECOND, from_micros
from amadou_runtime.spark.files import Files

_FILE: Final = "run.json"
_RENEWED_EVERY: Final = timedelta(seconds=5)
_EXPIRES_AFTER: Final = timedelta(seconds=20)

_held: dict[str, "Lease"] = {}
"""The leases that this process holds, by checkpoint."""


@attrs.frozen
class Holder:
    """The process that holds a lease.

    :param host: name of the machine
    :param pid: number of the process
    :param started: identifies the process among those with this number
    :param since: the time at which the lease began, in microseconds since 1970
    :param renewed: the time at which the lease was renewed, in microseconds since 1970
    """

    host: str
    pid: int
    started: str
    since: int
    renewed: int

    @classmethod
    def this_process(cls, since: int) -> "Holder":
        pid = os.getpid()
        return cls(socket.gethostname(), pid, _start_of(pid), since, clock_time())

    @property
    def is_here(self) -> bool:
        """`True` if the process is on this machine."""
        return self.host == socket.gethostname()

    @property
    def is_own(self) -> bool:
        """`True` if the process is the one that asks."""
        return self.is_here and self.pid == os.getpid() and self.started == _start_of(self.pid)

    def is_alive(self, checkpoint: str) -> bool:
        """Return `True` if the process still uses the checkpoint, as far as this process can tell."""
        if not self.is_here:
            return (clock_time() - self.renewed) * MICROSECOND < _EXPIRES_AFTER
        if self.is_own:
            lease = _held.get(checkpoint)
            return lease is not None and lease.is_active()
        return self.started == _start_of(self.pid)

    def __str__(self) -> str:
        where = "" if self.is_here else f" on {self.host}"
        return f"the process {self.pid}{where}, since {from_micros(self.since).isoformat(timespec='seconds')}"


def holder_of(files: Files) -> Holder | None:
    """Return the process of the run that uses a checkpoint; `None` if no run uses it.

    :raises CheckpointError: the checkpoint cannot be read
    """
    text = files.read(_FILE)
    if text is None:
        return None
    try:
        holder = Holder(**json.loads(text))
    except (ValueError, TypeError):  # written at this moment, in a file system that does not replace files atomically
        return None
    return holder if holder.is_alive(files.checkpoint) else None


def check_free(files: Files, advice: str) -> None:
    """Check that no run uses a checkpoint.

    :raises CheckpointError: a run uses the checkpoint
    """
    holder = holder_of(files)
    if holder is not None:
        raise CheckpointError(files.checkpoint, f"it is used by a run ({holder}): {advice}")


class Lease:
    """A lease on a checkpoint, which a thread renews. Used as a context manager, the lease ends if the block fails.

    :param files: the checkpoint's files
    :raises CheckpointError: another run uses the checkpoint
    """

    def __init__(self, files: Files) -> None:
        check_free(files, "stop that run first")
        self._files = files
        self._is_active: Callable[[], bool] = lambda: True
        self._often: Callable[[], None] = lambda: None
        self._since = clock_time()
        self._ended = threading.Event()
        self._write()
        _held[files.checkpoint] = self
        self._thread = threading.Thread(target=self._renew, name="amadou-lease", daemon=True)
        self._thread.start()

    def __enter__(self) -> "Lease":
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is not None:
            self.end()

    def follow(self, is_active: Callable[[], bool], often: Callable[[], None]) -> None:
        """Let the lease end when the run ends.

        :param is_active: returns `False` when the run has ended
        :param often: function to call about twice a second until then
        """
        self._is_active, self._often = is_active, often

    def is_active(self) -> bool:
        """Return `True` if the run has not ended."""
        return not self._ended.is_set() and self._is_active()

    def _write(self) -> None:
        self._files.write(_FILE, json.dumps(attrs.asdict(Holder.this_process(self._since))))

    def _renew(self) -> None:
        renewed = clock_time()
        while not self._ended.wait(0.5):
            if not self.is_active():
                self.end()
                return
            with suppress(AmadouError):  # a file system that does not answer concerns the run itself, too
                if (clock_time() - renewed) * MICROSECOND >= _RENEWED_EVERY:
                    self._write()
                    renewed = clock_time()
            self._often()

    def end(self) -> None:
        """End the lease. Call this method when the run has ended."""
        if self._ended.is_set():
            return
        self._ended.set()
        self._is_active, self._often = lambda: False, lambda: None  # which hold the run
        if _held.get(self._files.checkpoint) is self:
            del _held[self._files.checkpoint]
            with suppress(AmadouError):
                self._files.remove(_FILE)


def _start_of(pid: int) -> str:
    """Return a text that identifies a process among those with the same number; an empty text if there is none."""
    stat = Path(f"/proc/{pid}/stat")
    if stat.parent.parent.joinpath("self").exists():
        try:
            return stat.read_text().rpartition(")")[2].split()[19]
        except (OSError, IndexError):
            return ""
    try:  # without /proc, as on macOS
        os.kill(pid, 0)
    except ProcessLookupError:
        return ""
    except OSError:
        pass  # the process belongs to another user
    return "running"
