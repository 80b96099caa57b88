"""Input of the benchmarks: views of channels as JSON lines, and the expected counts."""

import json
import os
import random
import zlib
from collections import Counter
from collections.abc import Iterator, Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

from attrs import asdict, frozen

MINUTE = 60_000_000
DISORDER_SECONDS = 2
"""Maximum disorder of events, and the watermark delay: with a shorter delay, `applyInPandasWithState` loses events."""


@frozen
class Tally:
    """Totals over rows of (channel, minute, sum), independent of the rows' order."""

    rows: int = 0
    sum: int = 0
    checksum: int = 0

    def __add__(self, other: "Tally") -> "Tally":
        return Tally(self.rows + other.rows, self.sum + other.sum, (self.checksum + other.checksum) % 2**64)


@frozen
class Dataset:
    """Input files, one for each batch, ordered by modification time.

    :param expected: tally of all minutes that the watermark has closed after the last file
    """

    directory: Path
    keys: int
    events: int
    batches: int
    expected: Tally


def views(keys: int, events: int, batch: int, random_: random.Random) -> Iterator[tuple[str, int]]:
    """Yield the events of one batch as (channel, microseconds since midnight).

    A batch covers one minute of event time. Its events are slightly out of order, and the last events of a
    minute are in the next batch. No event is ever late.
    """
    for position in range(events):
        timestamp = batch * MINUTE + position * MINUTE // events - random_.randrange(DISORDER_SECONDS * 1_000_000)
        yield f"channel-{random_.randrange(keys)}", max(timestamp, 0)


def view_line(channel: str, timestamp: int) -> str:
    """Return an event as a line of JSON."""
    return f'{{"channel_id":"{channel}","timestamp":"{time_of_day(timestamp)}"}}'


def time_of_day(timestamp: int) -> str:
    """Return the time that is `timestamp` microseconds after midnight, in ISO form."""
    seconds, micros = divmod(timestamp, 1_000_000)
    return f"2025-01-01T{seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}.{micros:06}Z"


def dataset(root: Path, keys: int, events: int, batches: int, seed: int) -> Dataset:
    """Return the files for one key count. The first call creates them."""
    directory = root / f"{keys}-keys-{events}-events-{batches}-batches-seed-{seed}"
    manifest = directory / "expected.json"
    if not manifest.exists():
        manifest.parent.mkdir(parents=True, exist_ok=True)
        manifest.write_text(json.dumps(asdict(_write(directory / "views", keys, events, batches, seed))))
    return Dataset(directory / "views", keys, events, batches, Tally(**json.loads(manifest.read_text())))


def tally_of(output: Path) -> Tally:
    """Return the tally of a peer's output: all lines in all JSON files of a directory, except hidden files."""
    total = Tally()
    for path in sorted(output.rglob("*.json*")):
        if any(part.startswith((".", "_")) for part in path.relative_to(output).parts):
            continue
        for line in path.read_bytes().splitlines():
            total += row_of(json.loads(line))
    return total


class ClosedMinutes:
    """Counts views by channel and minute.

    :ivar expected: tally of all minutes that the watermark has closed
    """

    def __init__(self) -> None:
        self.expected = Tally()
        self._open: dict[int, Counter[str]] = {}

    def add(self, channel: str, timestamp: int) -> None:
        """Count a view."""
        self._open.setdefault(timestamp // MINUTE, Counter())[channel] += 1

    def end_batch(self, batch: int) -> None:
        """Close the minutes before the minute of a batch: its newest event, and so the watermark, is at its end."""
        for minute in [minute for minute in self._open if minute < batch]:
            for channel, count in self._open.pop(minute).items():
                self.expected += _row(channel, minute, count)


def _write(directory: Path, keys: int, events: int, batches: int, seed: int) -> Tally:
    directory.mkdir(exist_ok=True)
    random_ = random.Random(seed)
    minutes = ClosedMinutes()
    for batch in range(batches):
        path = directory / f"views-{batch:05}.jsonl"
        with path.open("w") as file:
            for channel, timestamp in views(keys, events, batch, random_):
                file.write(view_line(channel, timestamp) + "\n")
                minutes.add(channel, timestamp)
        os.utime(path, (1_735_689_600 + batch,) * 2)  # Spark reads the files of a directory by modification time
        minutes.end_batch(batch)
    return minutes.expected


def row_of(sum_: Mapping[str, Any]) -> Tally:
    """Return the tally of a single row of an output."""
    minute = int(datetime.fromisoformat(sum_["timestamp"]).timestamp()) % 86_400 // 60
    return _row(sum_["channel_id"], minute, sum_["sum"])


def _row(channel: str, minute: int, count: int) -> Tally:
    return Tally(1, count, zlib.crc32(f"{channel}|{minute}|{count}".encode()))
