"""Prints a table of the sums that `views.py` wrote: `python show.py SUMS`."""

import json
import sys
from pathlib import Path


def main(directory: str) -> None:
    lines = [line for file in Path(directory).glob("*.jsonl") for line in file.read_text().splitlines()]
    sums = sorted(map(json.loads, lines), key=lambda record: (record["channel_id"], record["timestamp"]))
    width = max((len(record["channel_id"]) for record in sums), default=7)
    print(f"{'channel':<{width}}  {'minute':<16}  {'sum':>5}")
    for record in sums:
        print(f"{record['channel_id']:<{width}}  {record['timestamp'][:16].replace('T', ' ')}  {record['sum']:>5}")


if __name__ == "__main__":
    main(*sys.argv[1:])
