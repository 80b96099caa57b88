"""Savepoints of a large state: start from one, write one, rehearse new code, and find a key.

python benchmarks/savepoints.py --keys 10000000
"""

import argparse
import json
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import state_jobs
from machine import machine
from memory import MemoryUse, MemoryWatch

from amadou import Job
from amadou.engine import StateTable, pack
from amadou.event_time import to_micros
from amadou_plugins.connectors import LinesSource
from amadou_runtime.core.key_group import KeyGroup
from amadou_runtime.core.keying import key_group
from amadou_runtime.jobs.state_schema import described
from amadou_runtime.plugins.hooks import plugins_of
from amadou_runtime.plugins.run_hooks import RunHooks
from amadou_runtime.savepoint.savepoint import (
    NO_CLOCK,
    SavedProgress,
    Savepoint,
    Totals,
    complete,
    new_savepoint,
    write_groups,
)
from amadou_runtime.savepoint.stored_keys import key_state
from amadou_runtime.spark import start
from amadou_runtime.spark.savepoints.writing import write_savepoint
from amadou_runtime.spark.session import session
from amadou_runtime.store.packed_group import PackedGroup
from amadou_runtime.testing.rehearsal import rehearse

_GROUPS = 256
_FILES = 8


def job_of(directory: Path, timers: bool, store: str, plugins: Any = ()) -> Job:
    """Return the job, which reads no events."""
    (directory / "in").mkdir(exist_ok=True)
    handler = state_jobs.Timers() if timers else state_jobs.Counters()
    return Job(
        "counters",
        handler,
        {"in": LinesSource(f"{directory}/in/")},
        {},
        key_groups=_GROUPS,
        state=store,
        plugins=plugins,
    )


def synthetic(job: Job, keys: int, timers: bool, directory: Path) -> Savepoint:
    """Write a savepoint of a job with a counter, and with a timer if wanted, for each key."""
    groups: list[list[str]] = [[] for _ in range(_GROUPS)]
    for number in range(keys):
        key = f"user-{number:09}"
        groups[key_group(key, _GROUPS)].append(key)
    micros = to_micros(state_jobs.NEVER)

    def group_of(number: int) -> tuple[int, KeyGroup]:
        group = KeyGroup(PackedGroup(None))
        packed = [pack(len(key) * number) for key in groups[number][:1000]]
        table = group.tables["counts"] = StateTable({})
        for at, key in enumerate(groups[number]):
            table.packed[key] = packed[at % 1000]
            if timers:
                group.timers.add(key, micros, "")
        return number, group

    with new_savepoint(directory) as partial:
        infos, totals = [], Totals()
        for file in range(_FILES):
            numbers = range(file * _GROUPS // _FILES, (file + 1) * _GROUPS // _FILES)
            written, figures = write_groups(partial, file, map(group_of, numbers), _GROUPS)
            infos += written
            totals.add(figures)
        progress = SavedProgress(
            engine="spark",
            job=job.name,
            run="benchmark",
            batch=0,
            sources={},
            clock=NO_CLOCK,
            structures={name: [structure] for name, structure in described(job).items()},
            ever_read=[],
            key_groups=_GROUPS,
        )
        complete(partial, progress, infos, totals)
    return Savepoint(directory)


def seconds(do: Callable[[], Any]) -> float:
    """Return the time that a function takes."""
    began = time.perf_counter()
    do()
    return time.perf_counter() - began


class Report:
    """The table of results."""

    def __init__(self, keys: int) -> None:
        self._keys = keys
        self.rows: list[dict[str, Any]] = []

    def add(self, what: str, took: float, memory: MemoryUse | None = None, *, per_key: bool = True) -> None:
        """Add and print a row."""
        row: dict[str, Any] = {"what": what, "seconds": round(took, 3)}
        if per_key:
            row["keys_per_second"] = round(self._keys / took)
        if memory is not None:
            row |= {"jvm_mib": memory.jvm >> 20, "python_mib": memory.python >> 20}
        self.rows.append(row)
        rate = f"{row['keys_per_second']:>12,} keys/s" if per_key else ""
        memory_text = "" if memory is None else f"  JVM {row['jvm_mib']:,} MiB, workers {row['python_mib']:,} MiB"
        print(f"{what:<44} {took:>9.3f} s {rate}{memory_text}", flush=True)


def on_spark(spark: Any, store: str, options: argparse.Namespace, directory: Path, report: Report) -> None:
    """Start from the savepoint, and write another one."""
    job = job_of(directory, options.timers, store)
    checkpoint, savepoint = directory / f"checkpoint-{store}", str(directory / "savepoint")

    def begin() -> None:
        hooks = RunHooks(plugins_of(()))
        start(
            job, spark, hooks, checkpoint=str(checkpoint), from_savepoint=savepoint, trigger="available-now"
        ).await_termination()

    with MemoryWatch(spark) as watch:
        took = seconds(begin)
    report.add(f"{store}: start from a savepoint", took, watch.use)
    with MemoryWatch(spark) as watch:
        took = seconds(lambda: write_savepoint(spark, str(checkpoint), directory / f"written-{store}"))
    report.add(f"{store}: write a savepoint", took, watch.use)
    written = Savepoint(directory / f"written-{store}")
    if written.manifest.keys != options.keys:
        raise SystemExit(f"the savepoint has {written.manifest.keys:,} of {options.keys:,} keys")
    for _ in range(options.rounds):
        shown = seconds(partial(show_with_command, checkpoint, options.keys))
        report.add(f"{store}: state show KEY on a checkpoint", shown, per_key=False)


def show_with_command(place: Path, keys: int) -> None:
    """Run `amadou state show` in a process of its own."""
    command = [sys.executable, "-c", "from amadou_runtime.command.cli import app; app()", "state", "show"]
    subprocess.run([*command, str(place), f"user-{keys // 2:09}"], check=True, capture_output=True)


def without_spark(options: argparse.Namespace, directory: Path, report: Report) -> None:
    """Verify, rehearse, and find keys."""
    job, savepoint = job_of(directory, options.timers, "log"), Savepoint(directory / "savepoint")
    report.add("verify", seconds(savepoint.verify))
    for _ in range(options.rounds):
        report.add("rehearse", seconds(lambda: rehearse(savepoint, job)))
    found = [seconds(partial(show, directory / "savepoint", key)) for key in some_keys(options.keys)]
    report.add("find a key in a savepoint (median of 100)", statistics.median(found), per_key=False)
    for _ in range(options.rounds):
        shown = seconds(partial(show_with_command, directory / "savepoint", options.keys))
        report.add("state show KEY, with Python's start", shown, per_key=False)


def show(directory: Path, key: str) -> None:
    """Open a savepoint and find a key."""
    savepoint = Savepoint(directory)
    assert not key_state(key, savepoint.find(key), savepoint.structures, None).is_empty


def some_keys(keys: int) -> Iterator[str]:
    """Yield keys that are spread over all keys."""
    yield from (f"user-{number * keys // 100:09}" for number in range(100))


def main() -> None:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--keys", type=int, default=1_000_000, help="number of keys (default: 1,000,000)")
    parser.add_argument("--timers", action="store_true", help="each key also has a timer")
    parser.add_argument("--stores", default="log,groups", help="stores to measure (default: log,groups)")
    parser.add_argument("--rounds", type=int, default=3, help="rounds of the short measurements (default: 3)")
    parser.add_argument("--output", type=Path, help="JSON file for the results")
    options = parser.parse_args()
    print(", ".join(f"{name}: {value}" for name, value in machine().items()))
    report = Report(options.keys)
    with tempfile.TemporaryDirectory(prefix="amadou-benchmark-") as name:
        directory = Path(name)
        took = seconds(
            lambda: synthetic(
                job_of(directory, options.timers, "log"), options.keys, options.timers, directory / "savepoint"
            )
        )
        report.add("prepare: write a savepoint in this process", took)
        size = Savepoint(directory / "savepoint").manifest.bytes
        print(f"the savepoint has {size >> 20:,} MiB")
        without_spark(options, directory, report)
        spark = session("savepoints", master="local[2]", conf={"spark.ui.enabled": "false"})
        for store in options.stores.split(","):
            on_spark(spark, store, options, directory, report)
            shutil.rmtree(directory / f"checkpoint-{store}")
            shutil.rmtree(directory / f"written-{store}")
        spark.stop()
    if options.output is not None:
        options.output.write_text(
            json.dumps({"machine": machine(), "keys": options.keys, "rows": report.rows}, indent=2)
        )


if __name__ == "__main__":
    main()
