"""Only one run uses a checkpoint at a time, as far as the machines' clocks and file systems allow."""

import json
import logging
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import attrs
import pytest
from tests.waits import wait_for

from amadou.engine import clock_time
from amadou.errors import CheckpointError
from amadou_runtime.runs import lease
from amadou_runtime.runs.files import LocalFiles
from amadou_runtime.runs.lease import Holder, Lease, LeaseTiming, holder_of

PROGRAM = """
import sys
from pathlib import Path
from amadou_runtime.runs.files import LocalFiles
from amadou_runtime.runs.lease import Lease

path = Path(sys.argv[1])
Lease(LocalFiles(str(path), path))
print(flush=True)
sys.stdin.read()
"""


QUICK = LeaseTiming(timedelta(seconds=0), timedelta(seconds=1), timedelta(seconds=0.05))
RENEWED_BY_CHECKS = LeaseTiming(renewed_every=timedelta(hours=1))


@pytest.fixture
def files(tmp_path: Path) -> LocalFiles:
    return LocalFiles(str(tmp_path), tmp_path)


@contextmanager
def another_process(files: LocalFiles) -> Iterator[subprocess.Popen[bytes]]:
    """A process that holds the lease."""
    command = [sys.executable, "-c", PROGRAM, files.checkpoint]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        yield process


def stored(files: LocalFiles) -> dict[str, Any]:
    fields: dict[str, Any] = json.loads((files.directory / "run.json").read_text())
    return fields


def put(files: LocalFiles, **fields: Any) -> None:
    """Write the lease of a process in another container, whose name and process number may be those of this one."""
    holder = {**attrs.asdict(Holder.this_process("other", clock_time())), "processes": "another", **fields}
    files.write("run.json", json.dumps(holder))


def test_a_lease_ends_with_its_process(files: LocalFiles) -> None:
    with another_process(files) as process:
        holder = holder_of(files)
        assert holder is not None
        assert holder.pid == process.pid
        with pytest.raises(CheckpointError, match=rf"is used by a run \(the process {process.pid}, since"):
            Lease(files)
        process.send_signal(signal.SIGKILL)
        process.wait()
    assert stored(files)["pid"] == process.pid
    assert holder_of(files) is None
    with Lease(files) as held:
        assert holder_of(files) is not None
        held.end()
    assert holder_of(files) is None
    assert not (files.directory / "run.json").exists()


def test_a_process_of_another_container_holds_its_lease_as_long_as_it_renews_it(files: LocalFiles) -> None:
    put(files)
    holder = holder_of(files)
    assert holder is not None
    assert " on " in str(holder)
    put(files, renewed=clock_time() - 30 * 10**6)
    assert holder_of(files) is None


@pytest.mark.parametrize("skew", [timedelta(0), timedelta(hours=-1), timedelta(hours=1)])
def test_a_lease_that_another_container_renews_is_not_taken_even_if_clocks_differ(
    files: LocalFiles, skew: timedelta
) -> None:
    ended = threading.Event()

    def renew() -> None:
        while not ended.wait(0.2):
            put(files, renewed=clock_time() + skew // timedelta(microseconds=1))

    put(files, renewed=0)
    thread = threading.Thread(target=renew)
    thread.start()
    try:
        with pytest.raises(CheckpointError, match=r"is used by a run \(the process \d+ on .*stop that run first"):
            Lease(files, QUICK)
    finally:
        ended.set()
        thread.join()


@pytest.mark.parametrize("renewed", [0, 2**52])
def test_a_run_takes_a_lease_that_is_not_renewed(
    files: LocalFiles, renewed: int, caplog: pytest.LogCaptureFixture
) -> None:
    put(files, host="far", renewed=renewed)
    began = time.monotonic()
    with caplog.at_level(logging.WARNING):
        held = Lease(files, attrs.evolve(QUICK, expires_after=timedelta(seconds=0.6)))
    assert time.monotonic() - began >= 0.6
    assert "waiting 1 seconds, to see whether it is still used by the process" in caplog.text
    assert stored(files)["lease"] != "other"
    held.end()


def test_a_run_takes_a_lease_as_soon_as_its_holder_ends_it(files: LocalFiles) -> None:
    put(files)
    threading.Timer(0.3, lambda: files.remove("run.json")).start()
    with Lease(files, attrs.evolve(QUICK, expires_after=timedelta(seconds=100))) as held:
        assert stored(files)["lease"] != "other"
        held.end()


def test_a_run_that_stalled_ends_if_another_run_has_taken_its_lease(files: LocalFiles) -> None:
    lost: list[CheckpointError] = []
    held = Lease(files, QUICK)
    held.follow(lambda: True, lambda: None, lost.append)
    put(files, host="far")
    held._thread.join(10)
    assert len(lost) == 1
    assert "another run has taken it (the process" in str(lost[0])
    assert not held.is_active()
    assert stored(files)["lease"] == "other"


def test_a_batch_is_not_committed_after_another_run_took_the_lease(
    files: LocalFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    held = Lease(files, RENEWED_BY_CHECKS)
    before = stored(files)["renewed"]
    held.check()
    assert stored(files)["renewed"] == before
    monkeypatch.setattr(lease, "clock_time", lambda: clock_time() + 15 * 10**6)  # the process was stopped, and goes on
    held.check()
    assert stored(files)["renewed"] >= before + 15 * 10**6
    monkeypatch.setattr(lease, "clock_time", lambda: clock_time() + 30 * 10**6)
    put(files, host="far")
    with pytest.raises(CheckpointError, match=r"another run has taken it .* this run stalled for 15 seconds"):
        held.check()
    held.end()
    assert stored(files)["lease"] == "other"


def test_a_batch_is_not_committed_after_another_run_took_the_lease_and_ended(
    files: LocalFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    held = Lease(files, RENEWED_BY_CHECKS)
    put(files, host="far")
    files.remove("run.json")
    monkeypatch.setattr(lease, "clock_time", lambda: clock_time() + 60 * 10**6)
    with pytest.raises(CheckpointError, match=r"run\.json is missing, because this run stalled for 60 seconds and"):
        held.check()
    held.end()
    assert not (files.directory / "run.json").exists()


def test_ending_a_lease_while_it_is_renewed_leaves_no_file(files: LocalFiles, monkeypatch: pytest.MonkeyPatch) -> None:
    held, writing, write = Lease(files, QUICK), threading.Event(), files.write

    def write_at_the_end(name: str, text: str) -> None:
        writing.set()
        wait_for(lambda: not held.is_active())
        write(name, text)

    monkeypatch.setattr(files, "write", write_at_the_end)
    assert writing.wait(10)
    held.end()
    held._thread.join(10)
    assert not (files.directory / "run.json").exists()
