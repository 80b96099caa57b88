"""Input of the benchmarks: views of channels as JSON lines, and what counting them must give."""

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
"""How far events are out of order, and so the watermark's delay: with less, `applyInPandasWithState` loses events."""


@frozen
class Tally:
    """What some rows of (channel, minute, sum) come to, in whatever order they are."""

    rows: int = 0
    sum: int = 0
    checksum: int = 0

    def __add__(self, other: "Tally") -> "Tally":
        return Tally(self.rows + other.rows, self.sum + other.sum, (self.checksum + other.checksum) % 2**64)


@frozen
class Dataset:
    """Files of one batch each, in the order of their modification times.

    :param expected: the rows of all minutes that the watermark has closed when the files end
    """

    directory: Path
    keys: int
    events: int
    batches: int
    expected: Tally


def views(keys: int, events: int, batch: int, random_: random.Random) -> Iterator[tuple[str, int]]:
    """The events of one batch as (channel, microseconds of the day): one minute of event time, slightly out of order.

    A minute gets its last events from the batch after it. None is ever late.
    """
    for position in range(events):
        timestamp = batch * MINUTE + position * MINUTE // events - random_.randrange(DISORDER_SECONDS * 1_000_000)
        yield f"channel-{random_.randrange(keys)}", max(timestamp, 0)


def view_line(channel: str, timestamp: int) -> str:
    """An event as a line of JSON."""
    return f'{{"channel_id":"{channel}","timestamp":"{time_of_day(timestamp)}"}}'


def time_of_day(timestamp: int) -> str:
    """So many microseconds after midnight, in ISO form."""
    seconds, micros = divmod(timestamp, 1_000_000)
    return f"2025-01-01T{seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}.{micros:06}Z"


def dataset(root: Path, keys: int, events: int, batches: int, seed: int) -> Dataset:
    """The files for one key count, made on the first call."""
    directory = root / f"{keys}-keys-{events}-events-{batches}-batches-seed-{seed}"
    manifest = directory / "expected.json"
    if not manifest.exists():
        manifest.parent.mkdir(parents=True, exist_ok=True)
        manifest.write_text(json.dumps(asdict(_write(directory / "views", keys, events, batches, seed))))
    return Dataset(directory / "views", keys, events, batches, Tally(**json.loads(manifest.read_text())))


def tally_of(output: Path) -> Tally:
    """What a peer's output comes to: every line of every JSON file under a directory that is not hidden."""
    total = Tally()
    for path in sorted(output.rglob("*.json*")):
        if any(part.startswith((".", "_")) for part in path.relative_to(output).parts):
            continue
        for line in path.read_bytes().splitlines():
            total += row_of(json.loads(line))
    return total


def _write(directory: Path, keys: int, events: int, batches: int, seed: int) -> Tally:
    directory.mkdir(exist_ok=True)
    random_ = random.Random(seed)
    open_minutes: dict[int, Counter[str]] = {}
    expected = Tally()
    for batch in range(batches):
        path = directory / f"views-{batch:05}.jsonl"
        with path.open("w") as file:
            for channel, timestamp in views(keys, events, batch, random_):
                file.write(view_line(channel, timestamp) + "\n")
                open_minutes.setdefault(timestamp // MINUTE, Counter())[channel] += 1
        os.utime(path, (1_735_689_600 + batch,) * 2)  # Spark reads the files of a directory by modification time
        # the newest event is at the end of this batch's minute: the minutes before it are complete, and will be closed
        for minute in [minute for minute in open_minutes if minute < batch]:
            for channel, count in open_minutes.pop(minute).items():
                expected += _row(channel, minute, count)
    return expected


def row_of(sum_: Mapping[str, Any]) -> Tally:
    """What a row of an output comes to."""
    minute = int(datetime.fromisoformat(sum_["timestamp"]).timestamp()) % 86_400 // 60
    return _row(sum_["channel_id"], minute, sum_["sum"])


def _row(channel: str, minute: int, count: int) -> Tally:
    return Tally(1, count, zlib.crc32(f"{channel}|{minute}|{count}".encode()))
