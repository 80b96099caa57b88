"""Where workers keep what components have in memory, between two batches."""

import os
import tempfile
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from amadou._wire import pack, unpack
from amadou.errors import RunError


class Memory:
    """Files of an executor, so that a key range finds there what another worker of the executor left.

    They are never forced to disk, lie where Spark keeps its own temporary files (`spark.local.dir`), and go with them.
    There are those of two batches, since the later one may have to be played again.

    :param run: names the run; another one finds nothing
    """

    def __init__(self, run: str) -> None:
        # Spark tells workers which directories their executor has, and removes those with it.
        local = os.environ.get("SPARK_LOCAL_DIRS", "").partition(",")[0] or tempfile.gettempdir()
        self._run = run
        self._directory = Path(local) / f"amadou-{run}"

    def read(self, number: int, token: list[Any]) -> dict[int, bytes]:
        """What a key range has, by key group; nothing where it is lost.

        :param token: what `write` gave
        """
        run, *made = token
        try:
            return unpack(self._file(number, *made).read_bytes()) if run == self._run else {}
        except FileNotFoundError:
            return {}

    def write(self, number: int, batch: int, memory: Mapping[int, bytes], before: list[Any] | None) -> list[Any] | None:
        """Keep what a key range has after a batch. Returns what `read` needs to find it, `None` for nothing.

        :param before: what the last batch's `write` gave; its file stays, since this batch may be played again
        :raises RunError: it cannot be written
        """
        if not memory and before is None:  # as for all jobs without windows in memory
            return None
        attempt = uuid.uuid4().hex[:8]  # those at a batch may overlap, and only one counts
        file = self._file(number, batch, attempt)
        beside = self._directory / f".{file.name}"
        try:
            self._directory.mkdir(parents=True, exist_ok=True)
            if memory:
                beside.write_bytes(pack(dict(memory)))
                os.replace(beside, file)
            kept = None if before is None else self._file(number, *before[1:])
            newest = batch - 1 if before is None else before[1]  # of what neither this batch nor the last one needs
            for old in self._directory.glob(f"{number}-*"):
                if old != kept and int(old.name.split("-")[1]) <= newest:
                    old.unlink(missing_ok=True)
        except OSError as error:
            raise RunError(
                f"what windows have in memory cannot be kept in {self._directory}: {error}. Let spark.local.dir be on "
                "a larger file system, or give the windows storage='persistent'"
            ) from error
        return [self._run, batch, attempt] if memory else None

    def _file(self, number: int, batch: int, attempt: str) -> Path:
        return self._directory / f"{number}-{batch}-{attempt}"
