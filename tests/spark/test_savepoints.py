"""Real jobs that are moved with savepoints: to other stores, engines and numbers of key groups and partitions."""

import json
import random
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.spark.moving import job_of, record_of

from amadou import Job
from amadou.engine import clock_time
from amadou_runtime import run
from amadou_runtime.core.watermark import Watermark
from amadou_runtime.embedded.engine import Embedded
from amadou_runtime.jobs.ports import port_codec
from amadou_runtime.spark.savepoints.rescaling import rescale

pytestmark = [pytest.mark.spark, pytest.mark.needs_spark(4)]

KINDS = ("everything", "windows", "waiting")
Step = dict[str, list[dict[str, Any]]]
"""The new records of each source."""


class Uninterrupted:
    """The outputs of a job that one process runs all the time: two batches for each step."""

    def __init__(self, job: Job) -> None:
        self._job = job
        self._engine = Embedded(job)
        self._watermark = Watermark(job)
        self._codec = port_codec(job, "out")
        self._dependency_state: bytes | None = None
        self._batches = 0

    def outputs(self, step: Step) -> list[str]:
        found: list[str] = []
        lines = {source: [("", [json.dumps(record).encode() for record in of])] for source, of in step.items() if of}
        for records in (lines, {}):
            now = clock_time()
            batch = self._engine.process(
                records, self._watermark.follow(now), now, self._batches, self._dependency_state
            )
            self._engine.store(batch)
            self._watermark.observe(batch.tally.newest, now)
            self._watermark.hold(batch.held)
            self._dependency_state = batch.decision.state
            self._batches += 1
            values = batch.tally.outputs.get("out", [])
            found += [value.decode() if isinstance(value, bytes) else value for value in values]
        return sorted(found)


class Moved:
    """A job that is moved between steps."""

    def __init__(self, kind: str, sources: list[str], directory: Path, spark: Any, chance: random.Random) -> None:
        self._kind = kind
        self._inputs = {source: directory / source for source in sources}
        for path in self._inputs.values():
            path.mkdir()
        self._directory = directory
        self._spark = spark
        self._chance = chance
        self._settings: dict[str, Any] = {"state": "log", "key_groups": 8}
        self._partitions = 2
        self._engine: Any = "spark"
        self._checkpoint = directory / "checkpoint-0"
        self._from: Path | None = None
        self._moves = 0

    def job(self, out: Path) -> Job:
        inputs = {source: f"{path}/" for source, path in self._inputs.items()}
        return job_of(self._kind, inputs, str(out), **self._settings)

    def outputs(self, number: int, step: Step, *, ends_with: Path | None) -> list[str]:
        """Run the job with the records of a step. Return its outputs."""
        for source, records in step.items():
            if records:
                text = "".join(f"{json.dumps(record)}\n" for record in records)
                (self._inputs[source] / f"{number}.jsonl").write_text(text)
        out = self._directory / f"out-{number}-{self._moves}"
        started = {"from_savepoint": None if self._from is None else str(self._from)}
        if self._engine == "spark":
            started |= {"checkpoint": str(self._checkpoint), "trigger": "available-now"}
            started["conf"] = {"spark.sql.shuffle.partitions": str(self._partitions)}
        run(
            self.job(out),
            engine=self._engine,
            to_savepoint=None if ends_with is None else str(ends_with),
            **started,
        )
        return sorted(line for path in sorted(out.glob("*.jsonl")) for line in path.read_text().splitlines())

    def move(self, savepoint: Path) -> str:
        """Start from a savepoint with other settings."""
        self._moves += 1
        self._from = savepoint
        self._settings = {
            "state": self._chance.choice(["log", "groups"]),
            "key_groups": self._chance.choice([1, 3, 8, 16]),
        }
        self._partitions = self._chance.choice([1, 2, 3])
        self._engine = self._chance.choice(["spark", "spark", "embedded"])
        self._checkpoint = self._directory / f"checkpoint-{self._moves}"
        return f"{self._engine} {self._settings} partitions={self._partitions}"

    def rescale(self) -> str:
        """Change the checkpoint in place."""
        self._settings["key_groups"] = self._chance.choice([1, 3, 8, 16])
        self._settings["state"] = self._chance.choice(["log", "groups"])
        self._partitions = self._chance.choice([1, 2, 3])
        job = self.job(self._directory / "unused")
        rescale(
            self._spark,
            str(self._checkpoint),
            key_groups=self._settings["key_groups"],
            partitions=self._partitions,
            store=self._settings["state"],
            job=job,
        )
        return f"rescaled to {self._settings} partitions={self._partitions}"

    @property
    def must_move(self) -> bool:
        """`True` if only a savepoint keeps the state between steps."""
        return bool(self._engine == "embedded")

    @property
    def has_checkpoint(self) -> bool:
        """`True` if the job has run on Spark since the last move."""
        return self._engine == "spark" and any((self._checkpoint / "commits").glob("[0-9]*"))

    def forget(self, numbers: range) -> None:
        """Remove the input of some steps, which are repeated."""
        for number in numbers:
            for path in self._inputs.values():
                (path / f"{number}.jsonl").unlink(missing_ok=True)


def steps_of(chance: random.Random, sources: list[str], number: int) -> Iterator[Step]:
    newest = 0
    for _ in range(number):
        newest += chance.randrange(4, 12)
        step: Step = {}
        for source in sources:
            late = chance.choice([0, 0, 15]) if source == "b" else 0
            records = []
            for _ in range(chance.choice([0, 5, 30])):
                second = max(newest - late - chance.randrange(6), 0)
                records.append(record_of(f"k{chance.randrange(12)}", second, chance.randrange(1, 8)))
            step[source] = sorted(records, key=lambda record: record["timestamp"])
        yield step


@pytest.mark.parametrize(
    # 0: a job with each kind of state is rescaled, changes its store, and moves to the embedded engine and back.
    "seed",
    [0, *(pytest.param(seed, marks=pytest.mark.qualify) for seed in range(1, 24))],
)
def test_a_job_that_is_moved_has_the_outputs_of_an_uninterrupted_one(seed: int, spark: Any, tmp_path: Path) -> None:
    chance = random.Random(seed)
    kind = KINDS[seed % len(KINDS)]
    sources = ["a", "b"] if kind == "waiting" else ["a"]
    steps = list(steps_of(chance, sources, 4))
    moved = Moved(kind, sources, tmp_path, spark, chance)
    reference = Uninterrupted(moved.job(tmp_path / "unused"))
    expected = [reference.outputs(step) for step in steps]
    found: list[list[str]] = []
    taken: list[tuple[Path, int]] = []
    history = [f"{kind}, log"]
    at = 0
    has_rolled_back = False
    while at < len(steps):
        is_moved = at < len(steps) - 1 and (moved.must_move or chance.random() < 0.6)
        path = tmp_path / f"savepoint-{at}-{len(history)}" if is_moved else None
        found.append(moved.outputs(at, steps[at], ends_with=path))
        at += 1
        if path is not None:
            taken.append((path, at))
            if not has_rolled_back and chance.random() < 0.3:
                has_rolled_back = True
                path, at = chance.choice(taken)
                moved.forget(range(at, len(steps)))
                del found[at:]
            elsewhere = path.with_name(f"{path.name}-copied-{len(history)}")
            shutil.copytree(path, elsewhere)
            history.append(f"before step {at}: {moved.move(elsewhere)}")
        elif moved.has_checkpoint and at < len(steps):
            history.append(f"before step {at}: {moved.rescale()}")
    assert found == expected, "\n".join(history)
