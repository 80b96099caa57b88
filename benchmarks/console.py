"""The console of a job with many keys and many batches: the time of each page, and the memory of the driver.

python benchmarks/console.py --keys 1000000 --batches 10000
"""

import argparse
import json
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

from machine import machine
from savepoints import job_of, synthetic

from amadou.plugins import BatchReport, Counts, DeadLetterReport, LateEventReport, PartitionReport, Run, hookimpl
from amadou_plugins.console import Console
from amadou_runtime import start
from amadou_runtime.spark.session import session

_EVERY = timedelta(seconds=0.36)
"""Interval between batches: 10,000 of them fill the hour of the charts."""
_PATIENCE = 300


class Watch:
    """Keeps the run."""

    run: Run

    @hookimpl
    def amadou_run_started(self, run: Run) -> None:
        self.run = run


def report_of(number: int, batches: int, now: datetime) -> BatchReport:
    """Return a report with as many figures as those of a job with several sources and callbacks."""
    completed = now - (batches - number) * _EVERY
    sources = [f"source-{each}" for each in range(4)]
    letter = DeadLetterReport(
        "on_event", "KeyError: 'x'", "line\n" * 40, "record " * 100, "in", "'a'", completed, "", completed,
        {f"spec-{each}": "value " * 100 for each in range(5)}, packed=bytes(2000),
    )  # fmt: skip
    late = LateEventReport("dropped", "in", "'a'", completed - timedelta(minutes=5), "value " * 50, completed, "window")
    counts = Counts(
        records=dict.fromkeys(sources, 1000),
        events=4000,
        late=1,
        outputs={f"port-{each}": 100 for each in range(4)} | {"dead_letters": 1},
        counters={f"counter-{each}": 10 for each in range(4)},
        keys=1_000_000 + number,
    )
    names = ["key_event", "on_event", "on_timer_expired", "window"]
    return BatchReport(
        number,
        counts,
        completed - timedelta(seconds=5),
        0.3,
        completed,
        dict.fromkeys(("keying", "processing", "writing", "committing"), 0.1),
        dict.fromkeys(names, 0.05),
        dict.fromkeys(names, 1000),
        partitions=[
            PartitionReport(name, str(part), completed, 10, timedelta(seconds=1), False)
            for name in sources
            for part in range(8)
        ],
        dead_letters=[letter],
        late_events=[late],
    )


def ask(url: str, path: str) -> bytes:
    """Return a page or a document."""
    address, _, token = url.partition("/?token=")
    request = Request(f"{address}{path}", headers={"Authorization": f"Bearer {token}"})
    with urlopen(request, timeout=_PATIENCE) as answer:
        return bytes(answer.read())


def resident_mib() -> int:
    """Return the resident memory of this process."""
    (line,) = (line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmRSS"))
    return int(line.split()[1]) >> 10


def until(condition: Callable[[], Any]) -> None:
    end = time.monotonic() + _PATIENCE
    while not condition():
        if time.monotonic() > end:
            raise SystemExit("the job does not get there")
        time.sleep(0.1)


def measure(spark: Any, store: str, options: argparse.Namespace, directory: Path) -> list[dict[str, Any]]:
    """Run the job on a store with a console, and return a row for each page."""
    console, watch = Console(), Watch()
    job = job_of(directory, timers=True, store=store, plugins=[console, watch])
    checkpoint = str(directory / f"checkpoint-{store}")
    running = start(job, spark, checkpoint=checkpoint, from_savepoint=str(directory / "savepoint"), trigger="1 second")
    try:
        until(lambda: running.summary.batches > 0)
        before, now = resident_mib(), datetime.now(timezone.utc)
        began = time.perf_counter()
        for number in range(options.batches):
            console.amadou_batch_completed(watch.run, report_of(number, options.batches, now))
        took = (time.perf_counter() - began) / options.batches
        print(f"{store}: a batch takes {1e3 * took:.2f} ms to make up and record", flush=True)
        assert console.url is not None
        rows = [measured(store, console.url, path, options.rounds) for path in pages(options.keys)]
        print(f"{store}: the driver has {before} MiB before the batches, {resident_mib()} MiB at the end", flush=True)
        began = time.perf_counter()
        until(lambda: json.loads(ask(console.url or "", "/api/v1/biggest"))["status"] == "found")
        print(f"{store}: the biggest keys are found in {time.perf_counter() - began:.1f} s", flush=True)
        return rows
    finally:
        running.stop()


def pages(keys: int) -> list[str]:
    key = f"user-{keys // 2:09}"
    apis = ("overview", "charts", "pipeline", "letters", "batches?limit=1000", f"state?key={key}", "biggest")
    return [
        *("/", "/pipeline", f"/state?key={key}", "/state?biggest=1", "/letters", "/batches", "/batches?before=500"),
        *(f"/api/v1/{each}" for each in apis),
    ]


def measured(store: str, url: str, path: str, rounds: int) -> dict[str, Any]:
    """Return the time of a page, which is read several times."""
    seconds, size = [], 0
    for _ in range(rounds):
        began = time.perf_counter()
        size = len(ask(url, path))
        seconds.append(time.perf_counter() - began)
    row = {"store": store, "path": path, "seconds": statistics.median(seconds), "most": max(seconds), "bytes": size}
    print(f"{store:<7} {path:<34} {row['seconds']:.3f} s, at most {row['most']:.3f} s {size:>12,} bytes", flush=True)
    return row


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--keys", type=int, default=1_000_000, help="number of keys (default: 1,000,000)")
    parser.add_argument("--batches", type=int, default=10_000, help="batches of the history (default: 10,000)")
    parser.add_argument("--rounds", type=int, default=7, help="readings of each page (default: 7)")
    parser.add_argument("--master", default="local[2]", help="Spark master URL (default: local[2])")
    parser.add_argument("--json", metavar="FILE", help="write the results to this file")
    options = parser.parse_args()
    about = machine()
    print(*(f"{name}: {value}" for name, value in about.items()), sep="\n")
    directory = Path(tempfile.mkdtemp(prefix="amadou-console-"))
    try:
        synthetic(job_of(directory, timers=True, store="groups"), options.keys, True, directory / "savepoint")
        spark = session("console benchmark", master=options.master, conf={"spark.driver.memory": "4g"})
        rows = [row for store in ("groups", "log") for row in measure(spark, store, options, directory)]
        spark.stop()
    finally:
        shutil.rmtree(directory, ignore_errors=True)
    if options.json:
        Path(options.json).write_text(json.dumps({"machine": about, "options": vars(options), "rows": rows}, indent=2))


if __name__ == "__main__":
    main()
