"""Calls to the key ranges where timers are due and no data may come. The clock plans them, the wake source
brings them."""

import json
import os
from pathlib import Path
from typing import Any, NamedTuple

CALL = b""
"""What stands in place of packed events."""


class PlannedCall(NamedTuple):
    """A call to each key range."""

    batch: int
    """The number of the batch after which it is due: there is one call for each."""
    at: int
    """When by the clock, in microseconds since 1970."""


def write_json(path: Path, value: Any) -> None:
    """Write down what another process is to read, whole."""
    beside = path.with_suffix(".new")
    beside.write_text(json.dumps(value))
    os.replace(beside, path)


def planned_call(path: Path) -> PlannedCall | None:
    """The call that was written down last."""
    try:
        return PlannedCall(*json.loads(path.read_text()))
    except FileNotFoundError:
        return None
