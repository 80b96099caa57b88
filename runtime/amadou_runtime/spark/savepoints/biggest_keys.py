"""Finds the keys with the most state in a run's checkpoint, in another process. In the run's own process, reading all
state would delay the batches, as Python runs one thread at a time.
"""

import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping
from typing import Any, Final, NoReturn

from amadou.errors import AmadouError, CheckpointError
from amadou.text import shortened, shown_value
from amadou_runtime.savepoint.stored_keys import KeySize, biggest_keys, key_sizes
from amadou_runtime.savepoint.tagged import time_text
from amadou_runtime.spark.savepoints.checkpoint_state import CheckpointState

_KEY_LENGTH: Final = 1_000
_LOWEST_PRIORITY: Final = 19
_ONLY_GIVEN_PATHS: Final = "import sys; sys.path[:] = filter(None, sys.path)"
"""Python would also look for modules in the working directory. Its option -P is new in Python 3.11."""


def find_biggest_keys(checkpoint: str, limit: int, stage: str = "", time_limit: float = 600.0) -> dict[str, Any]:
    """Return the keys with the most state; see `StateReader.biggest`.

    :param checkpoint: the checkpoint, as an absolute path or a URI
    :param stage: the stage's name; empty for the only stage
    :param time_limit: number of seconds that the process may take
    :raises CheckpointError: the process took longer
    """
    code = f"{_ONLY_GIVEN_PATHS}; from {__name__} import main; main()"
    command = [sys.executable, "-c", code, checkpoint, str(limit), stage]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    closes_at_end, held = os.pipe()
    try:
        done = subprocess.run(
            command,
            stdin=closes_at_end,
            capture_output=True,
            encoding="utf-8",
            errors="replace",
            check=False,
            env=environment,
            timeout=time_limit,
        )
    except subprocess.TimeoutExpired as error:
        raise CheckpointError(checkpoint, f"its state cannot be read in {time_limit:,.0f} seconds") from error
    finally:
        os.close(closes_at_end)
        os.close(held)
    if done.returncode:
        lines = done.stderr.strip().splitlines() or [f"the process ended with status {done.returncode}"]
        raise AmadouError(f"the biggest keys cannot be found: {lines[-1]}")
    found: dict[str, Any] = json.loads(done.stdout)
    keys = [{**each, "key": shortened(each["key"], _KEY_LENGTH)} for each in found["keys"]]
    return {**found, "keys": keys}


def main() -> None:
    """Print the biggest keys as JSON; the process that `find_biggest_keys` starts."""
    checkpoint, limit, stage = sys.argv[1:]
    if hasattr(os, "nice"):
        os.nice(_LOWEST_PRIORITY)
    threading.Thread(target=_end_with_parent, daemon=True).start()
    try:
        state = CheckpointState(checkpoint, _without_spark(checkpoint), stage)
        found = biggest_keys(key_sizes(state.blocks()), int(limit))
    except AmadouError as error:
        sys.exit(str(error))
    print(json.dumps({"batch": state.batch, "keys": list(map(_document, found))}))


def _end_with_parent() -> None:
    """End this process when the other end of its standard input is closed, which the end of the run's process does."""
    sys.stdin.read()
    os._exit(1)


def _without_spark(checkpoint: str) -> Callable[[], NoReturn]:
    """Return a function that raises an error: a second Spark would take much memory, and the cores of the run."""

    def fail() -> NoReturn:
        command = f"amadou state keys {checkpoint} --biggest 10"
        raise CheckpointError(checkpoint, f"it is not local, or only Spark can read its files. Run: {command}")

    return fail


def _document(each: KeySize) -> Mapping[str, Any]:
    next_ = None if each.next is None else time_text(each.next)
    return {"key": shown_value(each.key), "bytes": each.bytes, "timers": each.timers, "next": next_}
