"""A run's lease on its checkpoint: no two runs may use a checkpoint at the same time.

The lease is a file in the checkpoint, which names the process of the run. The process renews the file regularly. On the
same machine, the lease ends with the process; elsewhere, it ends if it is not renewed. If another run has taken the
lease because the process stalled, the run ends before it commits a batch.
"""

import json
import logging
import os
import socket
import threading
import time
import uuid
from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from typing import Final

import attrs

from amadou.engine import clock_time
from amadou.errors import AmadouError, CheckpointError
from amadou.event_time import MICROSECOND, from_micros
from amadou_runtime.formats.documents import UNREADABLE, structured
from amadou_runtime.runs.files import Files

_logger = logging.getLogger("amadou")

_FILE: Final = "run.json"
_EXPIRES_AFTER: Final = timedelta(seconds=20)

_held: dict[str, "Lease"] = {}
"""The leases that this process holds, by id."""


@attrs.frozen
class LeaseTiming:
    """Times of a lease.

    :param renewed_every: age at which the process renews the lease
    :param expires_after: age at which a process on another machine can take the lease
    :param look_every: interval at which a process that waits for the lease reads the file
    """

    renewed_every: timedelta = timedelta(seconds=5)
    expires_after: timedelta = _EXPIRES_AFTER
    look_every: timedelta = timedelta(seconds=0.5)


DEFAULT_TIMING = LeaseTiming()


@attrs.frozen
class Holder:
    """The process that holds a lease.

    :param lease: identifies the lease
    :param host: name of the machine
    :param processes: identifies the machine, since it was started, and the container: where it is the same, so are the
        numbers of processes. Containers of one pod after another have the same name
    :param pid: number of the process
    :param started: identifies the process among those with this number
    :param since: the time at which the lease began, in microseconds since 1970
    :param renewed: the time at which the lease was renewed, in microseconds since 1970
    """

    lease: str
    host: str
    processes: str
    pid: int
    started: str
    since: int
    renewed: int

    @classmethod
    def this_process(cls, lease: str, since: int) -> "Holder":
        pid = os.getpid()
        return cls(lease, socket.gethostname(), _processes(), pid, _start_of(pid), since, clock_time())

    @property
    def is_here(self) -> bool:
        """`True` if the process is on this machine, in the same container."""
        return self.processes == _processes()

    @property
    def is_own(self) -> bool:
        """`True` if the process is the one that asks."""
        return self.is_here and self.pid == os.getpid() and self.started == _start_of(self.pid)

    def is_alive(self) -> bool:
        """Return `True` if the process still uses the checkpoint, as far as this process can tell."""
        if not self.is_here:
            return (clock_time() - self.renewed) * MICROSECOND < _EXPIRES_AFTER
        if self.is_own:
            lease = _held.get(self.lease)
            return lease is not None and lease.is_active()
        return self.started == _start_of(self.pid)

    def __str__(self) -> str:
        where = "" if self.is_here else f" on {self.host}"
        return f"the process {self.pid}{where}, since {from_micros(self.since).isoformat(timespec='seconds')}"


def holder_of(files: Files) -> Holder | None:
    """Return the process of the run that uses a checkpoint; `None` if no run uses it.

    :raises CheckpointError: the checkpoint cannot be read
    """
    holder = _stored(files)
    return holder if holder is not None and holder.is_alive() else None


class Lease:
    """A lease on a checkpoint, which a thread renews. Used as a context manager, the lease ends if the block fails.

    If a process on another machine holds the lease, waits until it renews the lease, or until the lease has expired.

    :param files: the checkpoint's files
    :param timing: by default, `DEFAULT_TIMING`
    :raises CheckpointError: another run uses the checkpoint
    """

    def __init__(self, files: Files, timing: LeaseTiming | None = None) -> None:
        self._files, self._timing = files, timing or DEFAULT_TIMING
        _await_free(files, self._timing)
        self._id = uuid.uuid4().hex
        self._is_active: Callable[[], bool] = lambda: True
        self._often: Callable[[], None] = lambda: None
        self._lost: Callable[[CheckpointError], None] = lambda error: None
        self._taken: CheckpointError | None = None
        self._since = clock_time()
        self._ended = threading.Event()
        self._using_file = threading.Lock()
        """Held while a thread reads and then writes or removes the file: renewing could otherwise write it anew after
        `end` has removed it.
        """
        self._write()
        _held[self._id] = self
        self._thread = threading.Thread(target=self._keep, name="amadou-lease", daemon=True)
        self._thread.start()

    def __enter__(self) -> "Lease":
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is not None:
            self.end()

    def follow(
        self, is_active: Callable[[], bool], often: Callable[[], None], lost: Callable[[CheckpointError], None]
    ) -> None:
        """Let the lease end when the run ends.

        :param is_active: returns `False` when the run has ended
        :param often: function to call about twice a second until then
        :param lost: function to call with an error if another run has taken the lease
        """
        self._is_active, self._often, self._lost = is_active, often, lost

    def is_active(self) -> bool:
        """Return `True` if the run has not ended."""
        return not self._ended.is_set() and self._is_active()

    def check(self) -> None:
        """Check that no other run has taken the lease. This reads the file only if the lease was not renewed in time.

        :raises CheckpointError: another run has taken the lease, or the checkpoint cannot be read or written
        """
        if self._taken is None and self._age() >= self._timing.expires_after / 2:
            self._renew()
        if self._taken is not None:
            raise self._taken

    def _age(self) -> timedelta:
        return (clock_time() - self._renewed) * MICROSECOND

    def _write(self) -> None:
        renewed = Holder.this_process(self._id, self._since)
        self._files.write(_FILE, json.dumps(attrs.asdict(renewed)))
        self._renewed = renewed.renewed

    def _renew(self) -> None:
        """Renew the lease, unless another run has taken it: `_taken` is then the error. If the other run has ended
        since, the file is missing.
        """
        with self._using_file:
            holder = _stored(self._files)
            if self._is_mine(holder):
                self._write()
                return
        stalled = f"this run stalled for {self._age().total_seconds():.0f} seconds"
        why = (
            f"{_FILE} is missing, because {stalled} and another run has used the checkpoint meanwhile, or because the "
            "file was removed: make sure that only one run is started, and start it again"
            if holder is None
            else f"another run has taken it ({holder}), because {stalled}: stop one of the runs, and make sure that "
            "only one is started"
        )
        self._taken = CheckpointError(self._files.checkpoint, why)

    def _is_mine(self, holder: Holder | None) -> bool:
        return holder is not None and holder.lease == self._id

    def _keep(self) -> None:
        while not self._ended.wait(0.5):
            if not self.is_active():
                self.end()
                return
            try:
                if self._age() >= self._timing.renewed_every:
                    self._renew()
            except AmadouError:
                pass  # a file system that does not answer concerns the run itself, too
            if self._taken is not None:
                self._lost(self._taken)
                self.end()
                return
            self._often()

    def end(self) -> None:
        """End the lease. Call this method when the run has ended."""
        if self._ended.is_set():
            return
        self._ended.set()
        # these hold the run
        self._is_active, self._often, self._lost = lambda: False, lambda: None, lambda error: None
        del _held[self._id]
        with self._using_file, suppress(AmadouError):
            if self._is_mine(_stored(self._files)):
                self._files.remove(_FILE)


def _stored(files: Files) -> Holder | None:
    """Return the process that the file names; `None` if there is no file."""
    text = files.read(_FILE)
    try:
        holder = None if text is None else structured(Holder, json.loads(text))
        if holder is not None:
            from_micros(holder.renewed), from_micros(holder.since)
        return holder
    except UNREADABLE:  # written at this moment, in a file system that does not replace files atomically
        return None


def _await_free(files: Files, timing: LeaseTiming) -> None:
    """Wait until no run uses a checkpoint. A process on another machine is watched, because clocks may differ.

    :raises CheckpointError: a run uses the checkpoint
    """
    holder = _stored(files)
    if holder is not None and not holder.is_here:
        _logger.warning(
            "checkpoint %s: waiting %.0f seconds, to see whether it is still used by %s",
            *(files.checkpoint, timing.expires_after.total_seconds(), holder),
        )
        seen, expires = holder, time.monotonic() + timing.expires_after.total_seconds()
        while holder == seen:
            if time.monotonic() >= expires:
                return
            time.sleep(timing.look_every.total_seconds())
            holder = _stored(files)
    if holder is not None and (not holder.is_here or holder.is_alive()):
        raise CheckpointError(files.checkpoint, f"it is used by a run ({holder}): stop that run first")


def _processes() -> str:
    """Return a text that is the same where a number names the same process."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        return f"{boot} {os.stat('/proc/self/ns/pid').st_ino}"
    except OSError:  # without /proc, as on macOS
        return socket.gethostname()


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
