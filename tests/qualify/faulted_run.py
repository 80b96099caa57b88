"""A job from a source to sinks that is disturbed by faults, and whose outputs are read back and compared with a model.

`scripts/test` runs a few of these with fixed faults, `scripts/qualify` many with faults that it draws.
"""

import json
import os
import random
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import psycopg
from attrs import define, field, frozen
from tests.qualify.counts import STAGES, Model, Sum
from tests.qualify.moments import completed
from tests.qualify.systems import Systems
from tests.spark.clusters import paths
from tests.spark.programs import Program, program
from tests.topics import committed, contents, delete, fill, make_topic

ROOT = Path(__file__).parents[2]
PARTITIONS = 3
AHEAD = 3
"""Batches for which there are events when a fault comes: for one before it, one in which it happens, and one after."""


@frozen
class Setup:
    """What a run is made of.

    :param source: `files` or `kafka`
    :param sinks: see `tests.qualify.counts.job_of`, as are `stages` and `padding`
    :param names: number of names
    :param pace: number of events in a batch
    :param millis_apart: see `tests.qualify.counts.Model`
    :param store: `groups` or `log`
    """

    source: str = "files"
    sinks: tuple[str, ...] = ("files",)
    stages: int = 1
    store: str = "groups"
    names: int = 40
    padding: int = 0
    pace: int = 1500
    millis_apart: int = 40

    def __str__(self) -> str:
        form = ", state by key" if self.padding else ""
        return f"{self.source} to {'+'.join(self.sinks)}, {self.stages} stage(s), {self.store}{form}"


BY_KEY: Mapping[str, Any] = {"names": 4000, "padding": 2000}
"""Settings with which the key groups are too large to be stored as one entry."""


@define
class Outcome:
    """What a run has read and written.

    :param lost: results that are missing, by where they should be
    :param twice: results that are there more often than once
    :param wrong: results that the model does not have
    :param faults: what was done, in words
    """

    events: int = 0
    results: int = 0
    starts: int = 0
    lost: dict[str, int] = field(factory=dict)
    twice: dict[str, int] = field(factory=dict)
    wrong: dict[str, int] = field(factory=dict)
    faults: list[tuple[str, str]] = field(factory=list)

    @property
    def is_right(self) -> bool:
        return not (self.lost or self.twice or self.wrong)

    @property
    def counts(self) -> dict[str, int]:
        """The counts, over all places."""
        differences = {name: sum(getattr(self, name).values()) for name in ("lost", "twice", "wrong")}
        return {"events": self.events, "results": self.results, **differences}

    def __str__(self) -> str:
        lines = [f"{self.events:,} events, {self.results:,} results, {self.starts} starts"]
        lines += [f"{number:3} {kind:<14} {what}" for number, (kind, what) in enumerate(self.faults, start=1)]
        for name in ("lost", "twice", "wrong"):
            lines += [f"{count} {name} in {place}" for place, count in getattr(self, name).items()]
        return "\n".join(lines)


class FaultedRun:
    """A run, fault after fault.

    :param directory: a directory for the job file, the log, and all that is local
    :ivar running: the program, while it runs
    :ivar environment: its variables
    """

    def __init__(self, setup: Setup, directory: Path, seed: int, systems: Systems) -> None:
        self.setup, self.directory, self.systems = setup, directory, systems
        self.drawn = random.Random(seed)
        self.model = Model(setup.names, seed, setup.millis_apart)
        self.outcome = Outcome()
        self.store = setup.store
        self.running: Program | None = None
        self.completed_before = 0
        """Batches that were completed before the last fault, start, or call of `wait_for_batch`."""
        self.stages = STAGES[: setup.stages]
        self._place = systems.disk or directory
        self._files = 0
        self._topics: list[str] = []
        self.environment = {**self._addresses(), **systems.environment}
        arguments = {"stages": setup.stages, "padding": setup.padding, "pace": setup.pace, "moments": True}
        self._job = directory / "job.py"
        self._job.write_text(
            "from amadou_runtime import main\n"
            "from tests.qualify.counts import job_of\n\n"
            f"job = job_of({setup.source!r}, {list(setup.sinks)}, {str(directory)!r}, **{arguments})\n"
            'if __name__ == "__main__":\n'
            "    main(job)\n"
        )

    def run(self, faults: Sequence[Any]) -> Outcome:
        """Run the job to its end, and compare what it has written.

        :param faults: the kinds of `tests.qualify.faults`, in order
        """
        *before, last = _up_to_each_end(faults)
        for part in before:
            with self.started("--trigger", "0 seconds"):
                for fault in part:
                    self.feed(AHEAD)
                    self._disturb(fault)
        self.feed(AHEAD * (len(last) + 1))
        with self.started("--trigger", "available-now", "--flush") as running:
            for fault in last:
                self._disturb(fault)
            running.finish()
        self.compare()
        return self.outcome

    def close(self) -> None:
        """Delete the run's topics."""
        for topic in self._topics:
            delete(self.systems.kafka, topic)

    @property
    def local(self) -> Path:
        """Spark's local directory; on a local master, this start's."""
        cluster = self.systems.cluster
        return self.directory / f"local-{self.outcome.starts}" if cluster is None else cluster.local

    @property
    def checkpoint(self) -> str:
        return f"{self.systems.remote_url or self._place}/checkpoint"

    @property
    def completed(self) -> int:
        """Number of batches that were completed."""
        return len(completed(self.directory))

    @property
    def processed(self) -> int:
        """Number of events in these batches."""
        return sum({batch.number: batch.records for batch in completed(self.directory)}.values())

    def wait_for_batch(self) -> None:
        """Wait until a batch has been completed since the last fault, start, or call."""
        assert self.running is not None
        self.running.wait_for(lambda: self.completed > self.completed_before)
        self.completed_before = self.completed

    def views(self) -> list[Path]:
        """The views of key ranges, which the store `log` has on local disks."""
        return sorted(path for path in paths(self.local) if path.parent.parent.name == "amadou-views")

    def _disturb(self, fault: Any) -> None:
        self.wait_for_batch()
        until = time.monotonic() + self.drawn.uniform(0, 1.5)  # anywhere in the next batch
        while time.monotonic() < until and self.completed == self.completed_before:
            time.sleep(0.01)
        done = fault.disturb(self)
        self.outcome.faults.append((fault.name, done))
        self.completed_before = self.completed

    @contextmanager
    def started(self, *options: str) -> Iterator[Program]:
        """Start the program, which does not outlive the block."""
        self.outcome.starts += 1
        self.completed_before = self.completed
        words = ["--state", self.store, *self.systems.options, *options]
        conf = {"spark.sql.shuffle.partitions": "2", **self.systems.conf}
        if self.systems.cluster is None:
            conf["spark.local.dir"] = str(self.local)
        words += [word for name, value in conf.items() for word in ("--conf", f"{name}={value}")]
        launcher, checkpoint = self.systems.launcher, self.checkpoint
        with program(
            self._job, self.directory, *words, launcher=launcher, checkpoint=checkpoint, **self.environment
        ) as running:
            self.running = running
            yield running
        self.running = None

    def _addresses(self) -> dict[str, str]:
        systems, made = self.systems, {"PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])}
        base = systems.remote_url or str(self._place)
        self._input = f"{systems.remote_url or self.directory}/in"
        if self.setup.source == "kafka":
            self._input = self._topic()
        elif systems.remote is None:
            Path(self._input).mkdir(exist_ok=True)
        made["IN"] = self._input
        for place, (stage, kind) in self.places.items():
            if kind == "files":
                made[place] = f"{base}/{stage}"
            elif kind == "postgres":
                made[place] = stage
                with psycopg.connect(systems.postgres, autocommit=True) as database:
                    database.execute(f"CREATE TABLE {stage} (name text, minute timestamptz, sum bigint, total bigint)")
            else:
                made[place] = self._topic()
        if systems.login is not None:
            made |= {"KAFKA": systems.login.address, "KAFKA_USER": systems.login.user}
            made["KAFKA_PASSWORD"] = systems.login.password
        if systems.postgres:
            url = urlsplit(systems.postgres)
            made["POSTGRES"] = f"postgresql://{url.hostname}:{url.port}{url.path}"
            made |= {"PGUSER": url.username or "", "PGPASSWORD": url.password or ""}
        return made

    def _topic(self) -> str:
        self._topics.append(make_topic(self.systems.kafka, PARTITIONS))
        return self._topics[-1]

    @property
    def places(self) -> dict[str, tuple[str, str]]:
        """Stage and kind of each sink, by the parameter of the job that says where it writes."""
        return {f"{stage}_{kind}".upper(): (stage, kind) for stage in self.stages for kind in self.setup.sinks}

    def feed(self, batches: int) -> None:
        """Write events, so that there are enough for a number of batches."""
        pace = self.setup.pace
        for _ in range(batches - (self.model.events - self.processed) // pace):
            records = self.model.draw(pace)
            if self.setup.source == "kafka":
                placed = ({"value": each, "partition": n % PARTITIONS} for n, each in enumerate(records))
                fill(self.systems.kafka, self._input, placed)
            else:
                self._write(b"".join(b"%b\n" % record for record in records))

    def _write(self, content: bytes) -> None:
        self._files += 1
        name, new = f"{self._files:05}.txt", self.directory / "new.part"
        new.write_bytes(content)
        os.utime(new, (1_700_000_000 + self._files,) * 2)  # Spark takes the oldest first
        if self.systems.remote is None:
            new.rename(Path(self._input, name))
        else:
            self.systems.remote.upload(str(new), f"in/{name}")

    def compare(self) -> None:
        """Read what the job has written, and compare it with the model."""
        self.outcome.events = self.model.events
        for place, (stage, kind) in self.places.items():
            written, expected = Counter(self._read(place, stage, kind)), self.model.sums(stage)
            label = f"{stage} in {kind}"
            self.outcome.results += sum(expected.values())
            for by_place, difference in (
                (self.outcome.lost, expected - written),
                (self.outcome.twice, Counter({each: n - 1 for each, n in written.items() if each in expected})),
                (self.outcome.wrong, Counter({each: n for each, n in written.items() if each not in expected})),
            ):
                if count := sum(difference.values()):
                    by_place[label] = count

    def _read(self, place: str, stage: str, kind: str) -> Iterable[Sum]:
        """What is in a sink. Of records with the same id, the first."""
        if kind == "postgres":
            with psycopg.connect(self.systems.postgres) as database:
                rows = database.execute(f"SELECT name, minute, sum, total FROM {stage}").fetchall()
            return [Sum(*row) for row in rows]
        values: Iterable[bytes]
        if kind == "files":
            values = self._lines(stage)
        elif kind == "once":
            values = [record.value() or b"" for record in committed(self.systems.kafka, self.environment[place])]
        else:
            records = contents(self.systems.kafka, self.environment[place])
            values = {dict(record.headers() or ())["amadou-id"]: record.value() or b"" for record in records}.values()
        return map(_sum, values)

    def _lines(self, stage: str) -> list[bytes]:
        remote = self.systems.remote
        if remote is None:
            files = [path.read_bytes() for path in (self._place / stage).glob("[!.]*.jsonl")]
        else:
            names = [name for name in remote.names(stage) if not name.startswith(".")]
            files = [remote.read(f"{stage}/{name}") or b"" for name in names]
        return [line for file in files for line in file.splitlines()]


def _sum(line: bytes) -> Sum:
    fields = json.loads(line)
    return Sum(fields["name"], datetime.fromisoformat(fields["minute"]), fields["sum"], fields["total"])


def _up_to_each_end(faults: Sequence[Any]) -> list[list[Any]]:
    """Faults, in groups that end with one that ends the program; the last group has none of these."""
    parts: list[list[Any]] = [[]]
    for fault in faults:
        parts[-1].append(fault)
        if fault.ends_run:
            parts.append([])
    return parts
