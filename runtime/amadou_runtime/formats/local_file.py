"""Writes files on the local disk."""

import json
import os
from pathlib import Path
from typing import Any
from uuid import uuid4


def write_file(path: Path, data: bytes) -> None:
    """Write a file atomically: readers never see a partly written file."""
    beside = path.with_name(f".{path.name}.{uuid4().hex}")
    try:
        beside.write_bytes(data)
        os.replace(beside, path)
    except BaseException:
        beside.unlink(missing_ok=True)
        raise


def write_json(path: Path, value: Any) -> None:
    """Write a JSON file atomically."""
    write_file(path, json.dumps(value).encode())
