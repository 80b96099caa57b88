"""Computes the alarms of `failed_logins.py` for an entire log, without amadou: `python oracle.py LOG [YEAR]`."""

import json
import sys
from collections.abc import Iterator
from datetime import datetime, timedelta, timezone
from itertools import pairwise
from pathlib import Path
from typing import Any


def alarms(log: str | Path, year: int = 2016) -> Iterator[dict[str, Any]]:
    failures: dict[str, list[datetime]] = {}
    with open(log, encoding="latin-1") as file:
        lines = file.readlines()
    for line in lines:
        words = line.replace("]\n", "\n").split()
        if "sshd[" in line and "Failed password for" in line and "port" in words[-3:]:
            at = datetime.strptime(f"{year} {line[:15]}", "%Y %b %d %H:%M:%S").replace(tzinfo=timezone.utc)
            repeated = int(words[words.index("repeated") + 1]) if "message repeated" in line else 1
            failures.setdefault(words[-1 - words[::-1].index("port") - 1], []).extend([at] * repeated)
    minute = timedelta(seconds=60)
    for address, times in failures.items():
        bursts = [i for i, at in enumerate(times) if i == 0 or at - times[i - 1] > minute] + [len(times)]
        for start, end in pairwise(bursts):
            fifth = next((i for i in range(start + 4, end) if times[i] - times[i - 4] <= minute), None)
            if fifth is not None:
                yield {"address": address, "timestamp": times[fifth], "since": times[fifth - 4]}


if __name__ == "__main__":
    for alarm in alarms(sys.argv[1], *map(int, sys.argv[2:])):
        print(json.dumps(alarm, default=lambda at: at.strftime("%Y-%m-%dT%H:%M:%SZ")))
