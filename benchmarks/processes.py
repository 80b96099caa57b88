"""Reads the CPU time of processes from `/proc`."""

import os
import threading
import time
from contextlib import suppress
from pathlib import Path

import numpy as np
from attrs import frozen

_SECONDS = 0.25
_TICKS = os.sysconf("SC_CLK_TCK")


@frozen
class Process:
    """A process.

    :param cpu: seconds of CPU time that the process has used, including those of its children that have ended
    """

    parent: int
    cpu: float


def family(ancestor: int) -> dict[int, Process]:
    """Return a process and its descendants by process id; nothing where the system has no `/proc`."""
    processes: dict[int, Process] = {}
    children: dict[int, list[int]] = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            # the name, which may contain spaces, precedes the state and the parent
            fields = path.read_text().rpartition(")")[2].split()
            process = Process(int(fields[1]), sum(map(int, fields[11:15])) / _TICKS)
            processes[int(path.parent.name)] = process
            children.setdefault(process.parent, []).append(int(path.parent.name))
    members = [ancestor] if ancestor in processes else []
    for member in members:
        members += children.get(member, [])
    return {member: processes[member] for member in members}


class CpuWatch:
    """Records the CPU time of a process and all of its descendants, four times a second.

    The watch runs in another process than those that it measures, so its own CPU time does not count.
    """

    def __init__(self, ancestor: int) -> None:
        self._ancestor = ancestor
        self._samples: list[tuple[float, float]] = []
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()

    def seconds(self, start: float, end: float) -> float:
        """Return the seconds of CPU time between two times, which are Unix times; zero without `/proc`."""
        before, after = np.interp((start, end), *zip(*sorted(self._samples), strict=True))
        return float(after - before)

    def stop(self) -> None:
        """Stop recording."""
        self._end.set()
        self._thread.join()

    def look(self) -> None:
        """Record the CPU time up to now."""
        self._samples.append((time.time(), sum(process.cpu for process in family(self._ancestor).values())))

    def _watch(self) -> None:
        self.look()
        while not self._end.wait(_SECONDS):
            self.look()
