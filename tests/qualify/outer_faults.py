"""Faults around a run (`FaultedRun`): of its disk, its clock and its services, and of a command that rescales it."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from tests.qualify.faulted_run import FaultedRun
from tests.qualify.faults import Fault, end_of
from tests.services import OwnService
from tests.spark.programs import PATIENCE
from tests.waits import wait_for

LOST_STAGED = "amadou.staging has "
"""The beginning of the error of a run whose staged rows PostgreSQL has lost."""
AMADOU = [sys.executable, "-c", "from amadou_runtime.command.cli import app; app()"]


def _fill_disk(run: FaultedRun) -> str:
    """Fill the disk until the run has failed."""
    disk, ballast = run.systems.disk, b"\0" * 65536
    assert disk is not None
    filler = disk / "filler"
    with suppress(OSError), filler.open("wb", buffering=0) as file:
        while file.write(ballast):
            pass
    assert end_of(run) == 1, run.running and run.running.log
    filler.unlink()
    assert run.running is not None
    assert "No space left" in run.running.log or "disk is full" in run.running.log, run.running.log
    return "until the run had failed"


def _forbid_writing(run: FaultedRun) -> str:
    """Make the disk read-only until the run has failed."""
    assert run.running is not None
    remount = ["mount", "-o", "remount,ro", str(run.systems.disk)]
    # impossible while a file is open for writing
    run.running.wait_for(lambda: subprocess.run(remount, capture_output=True, check=False).returncode == 0)
    assert end_of(run) == 1, run.running and run.running.log
    subprocess.run(["mount", "-o", "remount,rw", str(run.systems.disk)], check=True)
    assert "Read-only file system" in run.running.log, run.running.log
    return "until the run had failed"


@contextmanager
def small_disk(mounted: Path) -> Iterator[Path]:
    """A file system of 256 megabytes."""
    mounted.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=256m", "tmpfs", str(mounted)], check=True)
    try:
        yield mounted
    finally:
        subprocess.run(["umount", "-l", str(mounted)], check=True)


def faketime() -> Path | None:
    """The library of the package faketime; `None` if it is missing."""
    return next(Path("/usr/lib").glob("*/faketime/libfaketimeMT.so.1"), None)


def clock_of(directory: Path) -> dict[str, str]:
    """The environment of processes whose clock follows the file `clock`. Only the clock jumps, and no sleep or timeout:
    the monotonic clock stays.
    """
    (directory / "clock").write_text("+0\n")
    real_sleep = directory / "real_sleep.so"
    source = Path(__file__).with_name("real_sleep.c")
    subprocess.run(["cc", "-shared", "-fPIC", "-O1", "-o", str(real_sleep), str(source)], check=True)
    return {
        "LD_PRELOAD": f"{real_sleep} {faketime()}",
        "FAKETIME_TIMESTAMP_FILE": str(directory / "clock"),
        "FAKETIME_CACHE_DURATION": "1",  # seconds after which a process sees the jump
        "FAKETIME_FORCE_MONOTONIC_FIX": "0",  # otherwise, Java's waits with a timeout return at once
        "FAKETIME_DONT_FAKE_MONOTONIC": "1",
        "DONT_FAKE_MONOTONIC": "1",
    }


def jump(hours: int) -> Fault:
    """Let the clock of all processes jump by some hours."""

    def move(run: FaultedRun) -> str:
        clock = run.directory / "clock"
        after = int(clock.read_text()) + hours * 3600
        clock.with_suffix(".part").write_text(f"{after:+}\n")
        clock.with_suffix(".part").rename(clock)
        return f"now {after / 3600:+.0f} hours"

    return Fault("an hour forward" if hours > 0 else "an hour back", move)


def _rescale(run: FaultedRun) -> str:
    """Stop the run, and rescale its checkpoint or move it to the other store. Kill this command once or twice."""
    assert run.running is not None
    run.running.stop(signal.SIGTERM)
    checkpoint, done = Path(run.checkpoint), []
    if run.setup.stages == 1 and run.drawn.random() < 0.4:
        run.store = "log" if run.store == "groups" else "groups"
        words = ["convert", str(checkpoint), "--to", run.store]
    else:
        words = ["rescale", str(checkpoint), "--partitions", str(run.drawn.randint(1, 4))]
    for _ in range(run.drawn.randint(1, 2)):
        pattern = run.drawn.choice(["savepoints/*.partial-*", "rescale.json", "before-rescale/*", "state/0/*/*"])
        started = time.time()

        def is_seen(pattern: str = pattern, started: float = started) -> bool:
            with suppress(FileNotFoundError):
                return any(path.stat().st_mtime >= started for path in checkpoint.glob(pattern))
            return False

        with _command(words, run) as command:
            wait_for(lambda: is_seen() or command.poll() is not None)
            time.sleep(run.drawn.uniform(0, 1))
            if command.poll() is None:
                os.killpg(command.pid, signal.SIGKILL)
                done.append(f"killed at {pattern}")
                command.wait()
            else:
                done.append("not killed")
                break
    with _command(words, run) as command:
        assert command.wait() == 0, (run.directory / "log").read_text()[-4000:]
    return f"{' '.join(words[:1] + words[2:])}: {', '.join(done)}"


@contextmanager
def _command(words: list[str], run: FaultedRun) -> Iterator["subprocess.Popen[bytes]"]:
    with (run.directory / "log").open("ab") as log:
        process = subprocess.Popen([*AMADOU, *words], cwd=run.directory, stdout=log, stderr=log, start_new_session=True)
        try:
            yield process
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()


FULL_DISK = Fault("full disk", _fill_disk, ends_run=True)
READ_ONLY_DISK = Fault("read-only disk", _forbid_writing, ends_run=True)
RESCALE = Fault("rescaling", _rescale, ends_run=True)


def outage(service: OwnService, name: str) -> Fault:
    """Stop a service, and start it again some seconds later."""
    return Fault(name, lambda run: _away(service.stop, service, run))


def crash(service: OwnService, name: str) -> Fault:
    """Kill a service, and start it again some seconds later."""
    return Fault(f"killed {name}", lambda run: _away(service.kill, service, run))


def crash_of_database(service: OwnService) -> Fault:
    """Kill PostgreSQL, which may lose what is staged. If the run has not failed, stop it after its next batch."""

    def kill(run: FaultedRun) -> str:
        done = _away(service.kill, service, run)
        completed, program = run.completed, run.running
        assert program is not None
        wait_for(lambda: program.has_ended or run.completed > completed, lambda: program.log, patience=PATIENCE)
        if not program.has_ended:
            os.kill(program.pid, signal.SIGTERM)
        if program.wait() == 0:
            return done
        assert LOST_STAGED in program.log, program.log  # also if the batch after the one that was waited for has failed
        return f"{done}, which lost what was staged"

    return Fault("killed database", kill, ends_run=True)


def _away(end: Callable[[], None], service: OwnService, run: FaultedRun) -> str:
    seconds = run.drawn.uniform(1, 8)
    end()
    time.sleep(seconds)
    service.start()
    return f"for {seconds:.1f} s"
