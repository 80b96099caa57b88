"""How fast tests are: an embedded `TestRun` of the tumbling-window job, and the imports.

python benchmarks/embedded.py
"""

import argparse
import json
import random
import subprocess
import sys
import time
from pathlib import Path
from statistics import median

from events import view_line, views
from machine import heading, machine
from peers import example_job
from rich.console import Console
from rich.table import Table

from amadou import Job
from amadou_runtime import TestRun

IMPORTS = ("amadou", "amadou_runtime", "amadou_plugins")
EVENTS_A_MINUTE = 20_000
console = Console(highlight=False)


def main() -> None:
    """Measure, and print two tables."""
    parser = argparse.ArgumentParser(
        description="Seconds of an embedded TestRun, and of the imports.",
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    parser.add_argument("--events", type=int, default=100_000, help="events of a run")
    parser.add_argument("--keys", default="1000,100000", help="key counts, by comma")
    parser.add_argument("--repeat", type=int, default=5, help="runs and imports to take the median of")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures")
    options = parser.parse_args()
    described = machine(java=False)
    console.print(f"[bold]{heading(described)}[/bold]", soft_wrap=True)

    plays = [play_figures(int(keys), options.events, options.repeat) for keys in options.keys.split(",")]
    shown = Table("keys", "events", "records out", "seconds", "min", "max", "events/s", title="Embedded TestRun")
    for row in plays:
        seconds = [f"{row[name]:.3f}" for name in ("seconds", "min", "max")]
        counts = [f"{row[name]:,}" for name in ("keys", "events", "records")]
        shown.add_row(*counts, *seconds, f"{row['events'] / row['seconds']:,.0f}")
    console.print(shown)

    imports = import_figures(options.repeat)
    shown = Table("statement", "ms more than bare python", title="Start-up")
    for statement, seconds in imports.items():
        shown.add_row(statement, f"{seconds * 1000:.0f}")
    console.print(shown)
    if options.json:
        figures = {"machine": described, "embedded": plays, "imports": imports}
        options.json.write_text(json.dumps(figures, indent=2) + "\n")


def play_figures(keys: int, events: int, repeat: int) -> dict[str, float]:
    """Play the events in one batch for each minute, as a test would add them; the median of some runs."""
    random_ = random.Random(1)
    batches = [
        [view_line(*view).encode() for view in views(keys, min(EVENTS_A_MINUTE, events - first), number, random_)]
        for number, first in enumerate(range(0, events, EVENTS_A_MINUTE))
    ]
    job = example_job()
    played = [play(job, batches) for _ in range(repeat)]
    seconds = [each for each, _ in played]
    return {
        "keys": keys,
        "events": events,
        "records": played[0][1],
        "seconds": median(seconds),
        "min": min(seconds),
        "max": max(seconds),
    }


def play(job: Job, batches: list[list[bytes]]) -> tuple[float, int]:
    """Seconds of one run from its first record to its results, and how many there are."""
    started = time.perf_counter()
    run = TestRun(job)
    for batch in batches:
        run.add_records(batch).add_watermark()
    records = run.run().records("sums")
    return time.perf_counter() - started, len(records)


def import_figures(repeat: int) -> dict[str, float]:
    """Median seconds that an import adds to a bare interpreter, each in a process of its own, in turn."""
    statements = {"": "", **{f"import {name}": f"import {name}" for name in IMPORTS}}
    seconds: dict[str, list[float]] = {name: [] for name in statements}
    for _ in range(repeat + 1):
        for name, statement in statements.items():
            started = time.perf_counter()
            subprocess.run([sys.executable, "-c", statement], check=True)
            seconds[name].append(time.perf_counter() - started)
    # the first of each reads from the disk
    medians = {name: median(each[1:]) for name, each in seconds.items()}
    bare = medians.pop("")
    return {name: each - bare for name, each in medians.items()}


if __name__ == "__main__":
    main()
