"""The command `amadou` as users call it: in a process of its own, which a test can kill."""

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from tests.waits import wait_for

AMADOU = [sys.executable, "-c", "from amadou_runtime.command.cli import app; app()"]
PATIENCE = 300
_ROOT = Path(__file__).parents[2]


def command(*arguments: str, directory: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run a command in a directory to its end."""
    return subprocess.run(
        [*AMADOU, *arguments],
        cwd=directory,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )


def kill_when(condition: Callable[[], object], *arguments: str, directory: Path) -> None:
    """Run a command in a directory, and kill it and all that it started as soon as a condition holds."""
    environment = {**os.environ, "PYTHONPATH": str(_ROOT)}
    with subprocess.Popen(
        [*AMADOU, *arguments], cwd=directory, env=environment, stderr=subprocess.PIPE, start_new_session=True
    ) as process:

        def has_ended() -> bool:
            return process.poll() is not None

        def errors() -> str:
            return process.communicate()[1].decode() if has_ended() else ""

        wait_for(condition, errors, has_ended=has_ended, patience=PATIENCE, pause=0.002)
        os.killpg(process.pid, signal.SIGKILL)
