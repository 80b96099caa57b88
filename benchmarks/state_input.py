"""Input of the state benchmark: files of JSON lines, and the results that they imply."""

import os
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import numpy as np
from state_jobs import Case

KEYS_PER_FILE = 250_000
DUE_PER_BATCH = 1000
_START = datetime(2025, 1, 1, tzinfo=timezone.utc)
_FIRST_BATCH = _START + timedelta(hours=1)
_BETWEEN_BATCHES = timedelta(seconds=10)
_AFTER_ALL_WINDOWS = _START + timedelta(days=3)
_FAR = datetime(2099, 1, 1, tzinfo=timezone.utc)
_LINE = '{"key":"key-'


class Input:
    """A directory of files, one per batch: first one event for each key, in random order, and then batches of events on
    random keys.

    :param events: number of events in a batch
    :param most_batches: maximum number of batches that will be added; timers become due in each of these batches
    """

    def __init__(self, directory: Path, case: Case, keys: int, events: int, most_batches: int, seed: int) -> None:
        self.directory = directory
        self.keys = keys
        self.events = events
        self.changed: list[int] = []
        """Bytes that each added batch changes: the keys that it touches, and the new values of their state."""
        self._case = case
        self._due = max(1, min(DUE_PER_BATCH, keys // most_batches))
        self._most_batches = most_batches
        self._random = np.random.default_rng(seed)
        self._counts = np.zeros(keys, dtype=np.int64)
        self._files = self._batches = 0
        self._sum = {"amadou": 0, "spark-sql": 0}

    def write_keys(self) -> int:
        """Write one event for each key. Return the number of files."""
        self.directory.mkdir(parents=True)
        order = self._random.permutation(self.keys)
        for first in range(0, self.keys, KEYS_PER_FILE):
            chosen = order[first : first + KEYS_PER_FILE]
            self._write(chosen, _START + timedelta(seconds=self._files), self._timers_of(first, len(chosen)))
        return self._files

    def add_batches(self, batches: int) -> None:
        """Write files with events on random keys."""
        for _ in range(batches):
            timestamp = _FIRST_BATCH + self._batches * _BETWEEN_BATCHES
            touched = self._write(self._random.integers(0, self.keys, self.events), timestamp)
            self.changed.append(self._bytes_of(touched))
            self._batches += 1

    def close_windows(self) -> None:
        """Write an event of a new key that closes the windows of all other keys."""
        self._write_lines([_LINE + "close" + _rest(_AFTER_ALL_WINDOWS)])

    def expected(self, peer: str) -> dict[str, int]:
        """Return the totals that a peer must have found in all files."""
        if self._case.has_windows:
            totals = {"sum": self._counts.sum(), "squares": (self._counts**2).sum()}
            return {"windows": self.keys} | {name: int(total) for name, total in totals.items()}
        expected = {"keys": self.keys, "events": self.keys + self._batches * self.events, "sum": self._sum[peer]}
        if self._case.has_timers:
            expected |= {"timers fired": min(self._due * self._batches, self.keys), "timers pending": self.keys}
        if self._case.payload_bytes:
            expected["bytes"] = expected["events"] * self._case.payload_bytes
        return expected

    def _write(self, keys: Any, timestamp: datetime, timers: list[datetime] | None = None) -> Any:
        """Write a file, and add its events to the expected totals. Return the distinct keys."""
        touched, added = np.unique(keys, return_counts=True)
        before = self._counts[touched]
        self._counts[touched] += added
        # amadou's handler adds the count after each event, Spark SQL adds the counts after each batch
        self._sum["amadou"] += int((before * added + added * (added + 1) // 2).sum())
        self._sum["spark-sql"] += int((before + added).sum())
        if timers is None:
            rest = _rest(timestamp)
            self._write_lines([f"{_LINE}{key}{rest}" for key in keys.tolist()])
        else:
            rests = {due: _rest(timestamp, due) for due in set(timers)}
            self._write_lines([f"{_LINE}{key}{rests[due]}" for key, due in zip(keys.tolist(), timers, strict=True)])
        return touched

    def _timers_of(self, first: int, number: int) -> list[datetime] | None:
        """Return the times of the timers of the next keys. The first keys have timers that are due in the batches; each
        of these timers is due a few seconds before the events of its batch.
        """
        if not self._case.has_timers:
            return None
        due = [_FIRST_BATCH + (batch - 0.5) * _BETWEEN_BATCHES for batch in range(self._most_batches)]
        batches = (position // self._due for position in range(first, first + number))
        return [due[batch] if batch < len(due) else _FAR for batch in batches]

    def _bytes_of(self, keys: Any) -> int:
        """Return the bytes of keys and their values: the count as msgpack, and the payload."""
        counts = self._counts[keys]
        names = sum(len(f"key-{key}") for key in keys.tolist())
        numbers = int(np.where(counts < 128, 1, np.where(counts < 256, 2, 3)).sum())
        return names + numbers + self._case.payload_bytes * len(keys)

    def _write_lines(self, lines: list[str]) -> None:
        path = self.directory / f"events-{self._files:05}.jsonl"
        path.write_text("".join(lines))
        os.utime(path, (1_735_689_600 + self._files,) * 2)  # Spark reads the files of a directory by modification time
        self._files += 1


def _rest(timestamp: datetime, due: datetime | None = None) -> str:
    """Return what follows the number of the key in a line."""
    timer = f',"due":"{due.isoformat()}"' if due else ""
    return f'","timestamp":"{timestamp.isoformat()}"{timer}}}\n'
