"""Report of the state benchmark: progress lines, tables and JSON file."""

import json
from collections.abc import Mapping
from pathlib import Path
from statistics import median
from typing import Any

from attrs import asdict, define, field, frozen
from memory import MemoryUse
from report import Run, micros, summary
from rich.console import Console
from rich.table import Table

MIB = 2**20
FOOTNOTE = """\
s a batch: Spark's triggerExecution of a measured batch with data, plus that of no-data batches before the next batch
with data; the median over all rounds. CPU µs: CPU time per event of the JVM and all Python processes during the
measured batches, in microseconds; the median over the rounds. cost: seconds a batch as a multiple of the same peer's
with the fewest keys. to spark-sql: throughput as a multiple of Spark SQL's. Both ratios are medians over the rounds.
jvm: peak resident memory of the driver's JVM, including memory of the warm-up that the JVM has not returned. python:
peak private memory of the Python workers. mapped: file pages that the Python workers had mapped at the end of a run.
All memory in MiB, the maximum over the rounds. settings: the faster of Java's C1 compiler and its default compiler
(C2), and the faster of Spark with and without whole-stage code generation."""


@frozen
class Steady:
    """One measured run of a case that compares the time of a batch."""

    case: str
    run: Run
    memory: MemoryUse


@frozen
class Load:
    """The run that has stored the keys of a case."""

    case: str
    keys: int
    peer: str
    seconds: float
    memory: MemoryUse


@frozen
class Written:
    """The bytes that a run has written to the state directory of its checkpoint, per batch.

    :param changed: bytes of the keys that a batch touched, and of their new values
    :param changelogs: bytes in new changelog files
    :param others: bytes in all other new files, such as snapshots
    """

    case: str
    keys: int
    peer: str
    batches: int
    changed: float
    changelogs: float
    others: float
    memory: MemoryUse


@frozen
class Restart:
    """The seconds from the start of each run to the end of its first batch.

    :param kind: `state lost` for the first run in a new session without local files, or `same machine` for the next one
    """

    keys: int
    peer: str
    kind: str
    seconds: list[float]
    memory: MemoryUse


@frozen
class Checked:
    """The totals that a peer has found in all of its runs, and the totals that its input implies."""

    case: str
    keys: int
    peer: str
    found: Mapping[str, int]
    expected: Mapping[str, int]

    @property
    def agrees(self) -> bool:
        return all(self.found.get(name) == number for name, number in self.expected.items())


@define
class Results:
    """All results of the benchmark."""

    loads: list[Load] = field(factory=list)
    steady: list[Steady] = field(factory=list)
    written: list[Written] = field(factory=list)
    restarts: list[Restart] = field(factory=list)
    checked: list[Checked] = field(factory=list)

    def print(self, console: Console) -> bool:
        """Print the checks and the tables. Return `True` if all results are correct."""
        for check in self.checked:
            found = ", ".join(f"{name} {check.found.get(name, 0):,}" for name in check.expected)
            expected = ", ".join(f"{name} {number:,}" for name, number in check.expected.items())
            verdict = "as expected" if check.agrees else f"[red]WRONG, expected {expected}[/red]"
            line = f"results of {check.case} with {check.keys:,} keys, {check.peer}: {verdict} ({found})"
            console.print(line, soft_wrap=True)
        if self.steady:
            console.print(_steady_table(self.steady))
            console.print(FOOTNOTE)
        if self.written:
            console.print(_written_table(self.written))
        if self.restarts:
            console.print(_restart_table(self.restarts))
        return all(check.agrees for check in self.checked)

    def write_json(self, file: Path, machine: dict[str, str], settings: dict[str, Any]) -> None:
        """Write the results to a JSON file."""
        checks = [asdict(check) | {"agrees": check.agrees} for check in self.checked]
        content = {"machine": machine, "settings": settings, "table": steady_rows(self.steady)}
        content |= asdict(self) | {"checked": checks}
        file.write_text(json.dumps(content, indent=2) + "\n")


def steady_rows(measured: list[Steady]) -> list[dict[str, Any]]:
    """Return one row for each case, number of keys and peer."""
    rows = []
    for case in dict.fromkeys(each.case for each in measured):
        mine = [each for each in measured if each.case == case]
        for row in summary([each.run for each in mine]):
            memory = [each.memory for each in mine if (each.run.keys, each.run.peer) == (row["keys"], row["peer"])]
            peaks = {name: max(getattr(use, name) for use in memory) for name in ("jvm", "python", "mapped")}
            rows.append({"case": case} | row | peaks)
    return rows


def _steady_table(measured: list[Steady]) -> Table:
    titles = ["keys", "peer", "batches", "s a batch", "min", "max", "CPU µs", "cost", "to spark-sql"]
    memory = ["jvm", "python", "mapped"]
    shown = _table("Batches on random keys of a large state", ["case", *titles, *memory, "settings"])
    previous = None
    for row in steady_rows(measured):
        if previous not in (None, row["case"]):
            shown.add_section()
        shown.add_row(
            "" if row["case"] == previous else row["case"],
            f"{row['keys']:,}",
            row["peer"],
            str(row["batches"]),
            *(f"{row[name]:.2f}" for name in ("median", "min", "max")),
            micros(row["cpu_micros"]),
            _times(row["cost_to_fewest_keys"]),
            _times(row["throughput_to_spark-sql"]),
            *(_mib(row[name]) for name in memory),
            row["settings"],
        )
        previous = row["case"]
    return shown


def _written_table(written: list[Written]) -> Table:
    titles = ["keys", "peer", "batches", "changed", "changelogs", "multiple", "all files", "multiple", "jvm", "python"]
    shown = _table("KiB a batch: changed by the events, and written to the checkpoint's state", ["state", *titles])
    for each in written:
        written_bytes = each.changelogs + each.others
        shown.add_row(
            each.case,
            f"{each.keys:,}",
            each.peer,
            str(each.batches),
            f"{each.changed / 1024:,.0f}",
            f"{each.changelogs / 1024:,.0f}",
            _times(each.changelogs / each.changed),
            f"{written_bytes / 1024:,.0f}",
            _times(written_bytes / each.changed),
            _mib(each.memory.jvm),
            _mib(each.memory.python),
        )
    return shown


def _restart_table(restarts: list[Restart]) -> Table:
    titles = ["peer", "restart", "runs", "seconds", "min", "max", "jvm", "python", "mapped"]
    shown = _table("Restart: seconds from the start of a run to the end of its first batch", ["keys", *titles])
    for each in restarts:
        shown.add_row(
            f"{each.keys:,}",
            each.peer,
            each.kind,
            str(len(each.seconds)),
            *(f"{function(each.seconds):.2f}" for function in (median, min, max)),
            *(_mib(size) for size in (each.memory.jvm, each.memory.python, each.memory.mapped)),
        )
    return shown


def _table(title: str, columns: list[str]) -> Table:
    shown = Table(title=title)
    for column in columns:
        left = column in ("case", "state", "peer", "restart", "settings")
        shown.add_column(column, justify="left" if left else "right", no_wrap=True)
    return shown


def _times(ratio: float | None) -> str:
    return "-" if ratio is None else f"{ratio:.2f} x"


def _mib(size: int) -> str:
    return f"{size / MIB:,.0f}" if size else "-"
