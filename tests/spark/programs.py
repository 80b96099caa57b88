"""A job file as users run it: a program in a process group of its own."""

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from tests.waits import wait_for

PATIENCE = 600


class Program:
    """A job file that runs.

    :param log: what all its runs wrote
    """

    def __init__(self, process: subprocess.Popen[bytes], log: Path) -> None:
        self._process = process
        self._log = log

    @property
    def pid(self) -> int:
        """The number of the process that runs the job file, and of its process group."""
        return self._process.pid

    @property
    def has_ended(self) -> bool:
        return self._process.poll() is not None

    def wait_for(self, done: Callable[[], bool]) -> None:
        """Wait until something is so, while the program runs."""
        wait_for(done, lambda: self.log, has_ended=lambda: self.has_ended, patience=PATIENCE)

    def wait(self) -> int:
        """Wait until the program has ended. Return its exit status."""
        return self._process.wait(PATIENCE)

    def finish(self) -> None:
        """Wait until the program has ended well."""
        assert self.wait() == 0, self.log

    def stop(self, number: signal.Signals) -> None:
        """Send a signal, SIGKILL to all that the program started as well, and wait until it has ended as it should."""
        if number == signal.SIGKILL:
            os.killpg(self._process.pid, number)
            assert self.wait() == -number, self.log
        else:
            self._process.send_signal(number)
            self.finish()

    @property
    def log(self) -> str:
        """The end of what was written."""
        return self._log.read_text()[-4000:]


@contextmanager
def program(
    job: Path, directory: Path, *options: str, launcher: Sequence[str] = (), checkpoint: str = "", **environment: str
) -> Iterator[Program]:
    """A job file on Spark, which does not outlive this block.

    :param directory: where the checkpoint and the log are, run after run
    :param launcher: the words before the job file and its options; by default, those of a local master
    :param checkpoint: another checkpoint than the one in the directory
    """
    command = [*(launcher or [sys.executable]), str(job)]
    command += [] if launcher else ["--master", "local[2]", "--conf", "spark.ui.enabled=false"]
    command += ["--checkpoint", checkpoint or str(directory / "checkpoint"), *options]
    log = directory / "log"
    with log.open("ab") as output:
        process = subprocess.Popen(
            command,
            env={**os.environ, "PYSPARK_PYTHON": sys.executable, **environment},
            cwd=directory,
            stdout=output,
            stderr=output,
            start_new_session=True,
        )
        try:
            yield Program(process, log)
        finally:
            if process.poll() is None or process.returncode < 0:  # killed alone, the process has left Java behind
                with suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
                process.wait()
