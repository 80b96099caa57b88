"""Computes the ranks of `top_pages.py` for an entire log, without amadou: `python top_pages_oracle.py LOG`."""

import json
import sys
from collections import Counter
from collections.abc import Iterable, Iterator
from datetime import datetime, timezone


def ranks(lines: Iterable[bytes]) -> Iterator[tuple[datetime, int, str, int]]:
    minutes: dict[datetime, Counter[str]] = {}
    for line in lines:
        words = line.decode("latin-1").split()
        page, status = words[6].split("?")[0], int(words[-2])
        if (
            words[5] == '"GET'
            and status in (*range(200, 300), 304)
            and page.lower()[-4:]
            not in (
                ".gif",
                ".jpg",
                ".png",
                ".xbm",
            )
        ):
            time = datetime.strptime(f"{words[3]} {words[4]}", "[%d/%b/%Y:%H:%M:%S %z]")
            minutes.setdefault(time.astimezone(timezone.utc).replace(second=0), Counter())[page] += 1
    for minute, pages in sorted(minutes.items()):
        ranked = sorted(pages, key=lambda page: (-pages[page], page))
        yield from ((minute, rank, page, pages[page]) for rank, page in enumerate(ranked[:10], 1))


if __name__ == "__main__":
    with open(sys.argv[1], "rb") as file:
        for minute, rank, page, views in ranks(file):
            print(json.dumps([minute.strftime("%Y-%m-%dT%H:%M:%SZ"), rank, page, views]))
