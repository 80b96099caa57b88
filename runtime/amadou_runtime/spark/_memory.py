"""Where workers keep what components have in memory, between two batches."""

import os
import tempfile
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
        run, batch = token
        try:
            return unpack(self._file(number, batch).read_bytes()) if run == self._run else {}
        except FileNotFoundError:
            return {}

    def write(self, number: int, batch: int, memory: Mapping[int, bytes], before: list[Any] | None) -> list[Any]:
        """Keep what a key range has after a batch. Returns what `read` needs to find it.

        :param before: what the last batch's `write` gave
        :raises RunError: it cannot be written
        """
        file = self._file(number, batch)
        beside = file.with_suffix(f".{os.getpid()}")
        try:
            self._directory.mkdir(parents=True, exist_ok=True)
            beside.write_bytes(pack(dict(memory)))
            os.replace(beside, file)
            for old in self._directory.glob(f"{number}-*"):
                if old != file and (before is None or old != self._file(number, before[1])):
                    old.unlink(missing_ok=True)
        except OSError as error:
            raise RunError(
                f"what windows have in memory cannot be kept in {self._directory}: {error}. Let spark.local.dir be on "
                "a larger file system, or give the windows storage='persistent'"
            ) from error
        return [self._run, batch]

    def _file(self, number: int, batch: int) -> Path:
        return self._directory / f"{number}-{batch}"
