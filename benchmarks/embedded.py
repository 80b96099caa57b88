"""Speed of tests: an embedded `TestRun` of the tumbling-window job, and the imports.

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
    """Measure and print two tables."""
    parser = argparse.ArgumentParser(
        description="Time of an embedded TestRun, and of the imports, in seconds.",
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    parser.add_argument("--events", type=int, default=100_000, help="events in each run")
    parser.add_argument("--keys", default="1000,100000", help="key counts, separated by commas")
    parser.add_argument("--repeat", type=int, default=5, help="number of runs and imports; the median is shown")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures to a file")
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
    """Process the events in one batch per minute, as a test would. Return the median figures of `repeat` runs."""
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
    """Return the seconds from the first record of a run to its results, and the number of results."""
    started = time.perf_counter()
    run = TestRun(job)
    for batch in batches:
        run.add_records(batch).add_watermark()
    records = run.run().records("sums")
    return time.perf_counter() - started, len(records)


def import_figures(repeat: int) -> dict[str, float]:
    """Return the median seconds that each import adds to a bare interpreter. Each import runs in its own process."""
    statements = {"": "", **{f"import {name}": f"import {name}" for name in IMPORTS}}
    seconds: dict[str, list[float]] = {name: [] for name in statements}
    for _ in range(repeat + 1):
        for name, statement in statements.items():
            started = time.perf_counter()
            subprocess.run([sys.executable, "-c", statement], check=True)
            seconds[name].append(time.perf_counter() - started)
    # skip the first run of each statement, which reads from disk
    medians = {name: median(each[1:]) for name, each in seconds.items()}
    bare = medians.pop("")
    return {name: each - bare for name, each in medians.items()}


if __name__ == "__main__":
    main()
