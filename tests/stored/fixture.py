"""Unpacks stored checkpoints, and continues the jobs to which they belong."""

import json
import os
import shutil
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Set
from contextlib import contextmanager
from datetime import timedelta
from itertools import chain
from pathlib import Path
from tempfile import TemporaryDirectory
from types import MappingProxyType
from typing import Any, NoReturn
from urllib.parse import urlsplit
from uuid import uuid4

import attrs
import psycopg
from tests.archives import unpack_archive
from tests.services import new_database
from tests.stored.cases import BEGIN, Case, Input, Services
from tests.stored.jobs.fraud import Alert
from tests.topics import fill, id_of, make_topic

from amadou import Job, Key
from amadou_plugins.connectors import JsonCodec
from amadou_runtime import TestRun, run
from amadou_runtime.command.state_rows import export_rows
from amadou_runtime.runs.files import LocalFiles
from amadou_runtime.savepoint.job_savepoint import JobSavepoint
from amadou_runtime.savepoint.rows import rows_of
from amadou_runtime.savepoint.stored_keys import StoredState
from amadou_runtime.spark.checkpoint import read_metadata
from amadou_runtime.spark.savepoints.checkpoint_state import CheckpointState
from amadou_runtime.spark.savepoints.state_files import RangeFiles, partitions_with_state
from amadou_runtime.spark.spread import range_numbers
from amadou_runtime.store.log.logged_range import PACKED, PREFIX
from amadou_runtime.store.log.segments import Log
from amadou_runtime.store.log.stored_log import SegmentsInMemory

HERE = Path(__file__).parent
FORMATS = sorted(HERE.glob("checkpoints-*"), key=lambda path: int(path.name.partition("-")[2]))
"""The directories with fixtures."""
PARTITIONS = 3
"""Number of partitions of the topic that the example `fraud` reads."""
NOW = BEGIN + timedelta(days=365)
"""Processing time of test runs."""
PARALLEL = "local[2]"
"""The master of all runs."""
COUNTED = ("dead_letters", "late_events")
"""Ports whose values are only counted: they have times of processing."""
PATHS = ("offsets/*", "clock/*", "sources/*/*", "state/*/_metadata/v2/*")
"""Files of a checkpoint with the paths of input files and state schemas, and the names and ids of topics."""


def rows_in(path: Path) -> list[Any]:
    return [json.loads(line) for line in path.read_text("utf-8").splitlines()]


def write_rows(path: Path, rows: Iterable[Any]) -> None:
    path.write_text("".join(f"{json.dumps(row, ensure_ascii=False)}\n" for row in rows), "utf-8")


def in_order(values: Iterable[Any]) -> list[Any]:
    return sorted(values, key=lambda value: json.dumps(value, sort_keys=True))


@attrs.frozen
class Fixture:
    """The stored checkpoints and savepoints of a case.

    :param directory: the directory of the format
    """

    directory: Path
    case: Case

    def __str__(self) -> str:
        return f"{self.directory.name}-{self.case}"

    @property
    def archive(self) -> Path:
        return self.directory / f"{self.case}.tar.xz"

    @property
    def rows(self) -> Path:
        """A file with the state, as `amadou state export` writes it."""
        return self.directory / f"{self.case}.rows.jsonl"

    @property
    def outputs(self) -> Path:
        """A file with the outputs after the further input."""
        return self.directory / f"{self.case}.outputs.jsonl"

    def unpack(self, to: Path, services: Services = MappingProxyType({})) -> "Place":
        """Unpack the fixture to a directory."""
        unpack_archive(self.archive, to)
        place = Place(self.case, to, services)
        made = place.made
        changes = {f"file:{slashes}{made['place']}/": f"file:{slashes}{to}/" for slashes in ("", "//")}
        if "TOPIC" in services:
            changes |= {made["topic"]: services["TOPIC"], made["topic_id"]: services["TOPIC_ID"]}
        for checkpoint in place.checkpoints:
            rewrite(checkpoint, changes)
        return place

    @contextmanager
    def with_services(self, to: Path) -> "Iterator[Place]":
        """Unpack the fixture to a directory, with new services that have what the job has read and needs."""
        with services_for(self.case) as services:
            place = self.unpack(to, services)
            place.fill_topic("in")
            yield place


@contextmanager
def services_for(case: Case) -> Iterator[Services]:
    """Yield the parameters of a job for a new topic and a new database, as far as the job needs them."""
    services: dict[str, str] = {}
    if case.topic:
        kafka = os.environ["AMADOU_KAFKA"]
        topic = make_topic(kafka, PARTITIONS, f"stored-{uuid4().hex[:8]}")
        services |= {"KAFKA": kafka, "TOPIC": topic, "TOPIC_ID": id_of(kafka, topic)}
    if not case.schema:
        yield services
        return
    with new_database() as made:
        url = urlsplit(made)
        user, password = url.username or "", url.password or ""
        services |= {"DATABASE": f"postgresql://{url.hostname}:{url.port}{url.path}"}
        services |= {"DB_USER": user, "DB_PASSWORD": password}
        services |= {"DATABASE_USER": user, "DATABASE_PASSWORD": password}
        with connected(services) as database:
            database.execute(case.schema.encode())
        yield services


def connected(services: Services) -> Any:
    user, password = services["DB_USER"], services["DB_PASSWORD"]
    return psycopg.connect(services["DATABASE"], user=user, password=password, autocommit=True)


def outputs_in_database(services: Services) -> list[Any]:
    """Return what the example `fraud` has written."""
    with connected(services) as database:
        alerts = database.execute("SELECT card, time, rule, payment, reason FROM alerts").fetchall()
        counts = {port: database.execute(f"SELECT count(*) FROM {port}").fetchone()[0] for port in COUNTED}
    outputs = (["alerts", json.loads(JsonCodec(Alert).encode(Alert(*row)))] for row in alerts)
    return [*in_order(outputs), *([port, counts[port]] for port in COUNTED)]


def rewrite(checkpoint: Path, changes: Mapping[str, str]) -> None:
    """Replace texts in the files of a checkpoint that have paths. Hadoop's checksums of these files are removed."""
    for path in (path for pattern in PATHS for path in checkpoint.glob(pattern)):
        if path.name.startswith("."):
            continue
        text = before = path.read_text("utf-8")
        for old, new in changes.items():
            text = text.replace(old, new)
        if text != before:
            path.write_text(text, "utf-8")
            path.with_name(f".{path.name}.crc").unlink(missing_ok=True)


@attrs.frozen
class Place:
    """A directory with the input, checkpoints and savepoints of a case."""

    case: Case
    directory: Path
    services: Services = attrs.field(factory=dict)

    @property
    def made(self) -> dict[str, Any]:
        """The versions with which the fixture was made, and its directory at that time."""
        made: dict[str, Any] = json.loads((self.directory / "made.json").read_text())
        return made

    @property
    def checkpoints(self) -> list[Path]:
        return [self.checkpoint(store) for store in self.case.stores]

    def checkpoint(self, store: str) -> Path:
        return self.directory / store / "checkpoint"

    def savepoint(self, store: str) -> Path:
        return self.directory / store / "savepoint"

    def job(self, store: str) -> Job:
        return self.case.make(str(self.directory), str(self.directory / store / "out"), store, self.services)

    def write(self, directory: str, batch: Input, number: int) -> None:
        """Write the files with the input of a batch to the directory `in` or `further`."""
        for source, lines in batch.items():
            path = self.directory / directory / source / f"{number}.jsonl"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(b"".join(b"%b\n" % line for line in lines))
            time = int(BEGIN.timestamp()) + number
            os.utime(path, (time, time))

    def read(self, directory: str) -> Iterator[tuple[str, str, list[bytes]]]:
        """Yield sources, partitions and records of the files in the directory `in` or `further`."""
        place = self.directory / directory
        for path in sorted(place.rglob("*.jsonl")):
            source, _, partition = path.parent.relative_to(place).as_posix().partition("/")
            yield source, partition, path.read_bytes().splitlines()

    def fill_topic(self, directory: str) -> None:
        """Write the input in a directory to the topic, if the job reads one."""
        for _, partition, records in self.read(directory) if self.case.topic else ():
            keyed = ({"value": record, "partition": int(partition)} for record in records)
            fill(self.services["KAFKA"], self.services["TOPIC"], keyed)

    def add_further(self) -> None:
        shutil.copytree(self.directory / "further", self.directory / "in", dirs_exist_ok=True)
        self.fill_topic("further")

    def last_commit(self, store: str) -> int:
        """Return the number of the last completed batch."""
        return max(int(path.name) for path in (self.checkpoint(store) / "commits").iterdir() if path.name.isdigit())

    def remove_last_commit(self, store: str) -> None:
        """Leave the checkpoint as a run that is killed before Spark's commit does."""
        number = self.last_commit(store)
        for name in (f"{number}", f".{number}.crc"):
            (self.checkpoint(store) / "commits" / name).unlink()

    def written(self, store: str) -> set[Path]:
        """Return the files with outputs, dead letters and late events."""
        return {*(self.directory / store / "out").rglob("*.jsonl"), *self.counted_files(store)}

    def counted_files(self, store: str) -> Iterator[Path]:
        for port in COUNTED:
            yield from (self.checkpoint(store) / port).glob("*.jsonl")

    def outputs(self, store: str, *, before: Set[Path] = frozenset()) -> list[Any]:
        """Return the outputs, and the numbers of dead letters and late events.

        :param before: files to leave out
        """
        files = sorted(self.written(store) - before)
        outputs = [[path.parent.name, value] for path in files for value in rows_in(path)]
        counts = Counter(port for port, _ in outputs if port in COUNTED)
        if self.case.topic:
            return outputs_in_database(self.services)
        values = in_order(output for output in outputs if output[0] not in COUNTED)
        return [*values, *([port, counts[port]] for port in COUNTED)]

    def resumed(self, store: str) -> list[Any]:
        """Continue the job on Spark, from its checkpoint, with the further input. Return what it writes."""
        before = self.written(store)
        self.add_further()
        run(
            self.job(store),
            master=PARALLEL,
            checkpoint=str(self.checkpoint(store)),
            trigger="available-now",
            flush=True,
        )
        return self.outputs(store, before=before)

    def continued(self, store: str) -> list[Any]:
        """Continue the job in a test run, from its savepoint, with the further input. Return what it collects."""
        job = self.job(store)
        with TestRun(job, savepoint=self.savepoint(store), lookups=self.case.lookups, processing_time=NOW) as test_run:
            for source, name, lines in self.read("further"):
                partition = f"{self.made['topic']}-{name}" if self.case.topic else name
                for line in lines:
                    test_run.add_record(self.case.as_record(line), source, partition=partition)
            result = test_run.end_batch().run(flush=True)
        ports = [port for stage in job.by_stage.values() for port, _ in stage.all_sinks if port not in COUNTED]
        values = [
            [port, json.loads(JsonCodec(type(value)).encode(value))] for port in ports for value in result.records(port)
        ]
        counts = {"dead_letters": result.dead_letters, "late_events": [*result.late]}
        return [*in_order(values), *([port, len(values)] for port, values in counts.items())]

    def rows(self, store: str, *, savepoint: bool = False) -> list[Any]:
        """Return the state in a checkpoint or savepoint without Spark, as `amadou state export` writes it. With stages,
        each row has the name of its stage.
        """
        job, rows = self.job(store), []
        with TemporaryDirectory() as local:
            for name, stage in job.by_stage.items():
                file = Path(local) / f"{name}.jsonl"
                export_rows(self.state(store, name, savepoint=savepoint), str(self), file, None, None, None, stage)
                rows += ({"stage": name, **row} if name else row for row in rows_in(file))
        return in_order(rows)

    def rows_of_keys(self, store: str, keys: Iterable[Key], *, savepoint: bool = False) -> list[Any]:
        """Return the rows of keys in a checkpoint or savepoint, each of which is looked up."""
        state = self.state(store, savepoint=savepoint)
        rows = chain.from_iterable(rows_of(state.find(key), state.structures) for key in keys)
        return in_order(json.loads(json.dumps(row)) for row in rows)

    def history(self, store: str, key: Key) -> list[list[Any]]:
        """Return the rows of a key after each batch, from a checkpoint without stages."""
        state = CheckpointState(str(self.checkpoint(store)), without_spark)
        versions = (rows_of(blocks, state.structures) for _, blocks in state.history(key))
        return [in_order(json.loads(json.dumps(row)) for row in rows) for rows in versions]

    def state(self, store: str, stage: str = "", *, savepoint: bool = False) -> StoredState:
        if savepoint:
            return JobSavepoint(self.savepoint(store)).stages[stage]
        return CheckpointState(str(self.checkpoint(store)), without_spark, stage)

    def forms(self, store: str) -> set[str]:
        """Return the forms in which the key groups of a checkpoint on the store `log` are stored."""
        checkpoint, batch = self.checkpoint(store), self.last_commit(store)
        metadata = read_metadata(LocalFiles(str(checkpoint), checkpoint))
        partitions = partitions_with_state(checkpoint, batch)
        forms = set()
        for stage in metadata.stages:
            for number in range_numbers(metadata.key_ranges):
                files = RangeFiles(checkpoint, "log", number, partitions, metadata.operator_of(stage))
                log = Log(SegmentsInMemory(files.rows(batch)), str(number))
                entries: dict[bytes, bytes | None] = {}
                for segment in log.head.segments:
                    entries |= {id_: value for id_, (value, _) in log.read(segment.number).items()}
                ids = (id_ for id_, value in entries.items() if value is not None)
                forms |= {"packed" if id_[PREFIX:] == PACKED else "by key" for id_ in ids}
        return forms


def without_spark() -> NoReturn:
    raise AssertionError("Spark was needed to read state")
