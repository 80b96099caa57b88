"""The entries of references on Spark.

Each key range gets the updates of a batch, so that all ranges see the same entries. The entries before the batch are in
files. The driver writes a file with the changes of each batch to the checkpoint, before Spark marks the batch as
completed, and from time to time a file with all entries. Spark sends the files to the executors, and each worker
process keeps the entries in memory: it only loads the files that it has not loaded yet.

The driver reads tables before a batch, and then writes the file with the changes before the batch begins. So the batch
sees the same rows if it is processed again. Dead letters of rows are in another file until the batch is completed. One
task of the output stage writes them.
"""

import base64
import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from amadou import Job
from amadou.engine import clock_time
from amadou.errors import CheckpointError, SourceError
from amadou.event_time import END_OF_TIME, MICROSECOND
from amadou.text import qualified
from amadou_runtime.core.events import Chunk
from amadou_runtime.core.keying import Keying, key_event_of
from amadou_runtime.core.references import (
    REFERENCES,
    Columns,
    ReferenceTable,
    new_tables,
    notifies_keys,
    saved_name,
    with_updates,
)
from amadou_runtime.core.table_reader import TableReader
from amadou_runtime.formats.compressed import pack_compressed, unpack_compressed
from amadou_runtime.runs.files import Files
from amadou_runtime.savepoint.savepoint import Savepoint
from amadou_runtime.spark.clock import CLOCK_DIRECTORY
from amadou_runtime.spark.streams import is_woken
from amadou_runtime.spark.summary import Summary

_ALL, _CHANGES, _ROWS, _LETTERS = "all", "changes", "rows", "letters"
"""The kinds of files: all entries after a batch; the changes by the events in a batch; the changes by the rows of a
table, which was read before the batch; the dead letters of rows that failed."""
_LARGE: Final = 1 << 20
"""Size of the files with changes, in bytes, from which on they are merged into a file with all entries, provided that
they are larger than the last such file.
"""
_RETRY: Final = 1_000_000
"""Time in microseconds until a table is read again that could not be read."""
_logger = logging.getLogger("amadou")


class WorkerReferences:
    """The references of a stage in a worker process.

    :param job: the stage as a job
    """

    def __init__(self, job: Job) -> None:
        self._job = job
        self._before = new_tables(job)
        self._loaded: dict[str, list[str]] = {name: [] for name in self._before}
        self._batch: tuple[int, dict[str, ReferenceTable]] | None = None

    def in_batch(self, time: Any, updates: Sequence[Chunk]) -> Mapping[str, ReferenceTable]:
        """Return the references in a batch.

        :param time: the `BatchTime`
        :param updates: the updates in the batch: the same in each call for the batch
        """
        if self._batch is None or self._batch[0] != time.number:
            for name, files in time.references.items():
                self._load(name, [file for file in files if file != time.changed_files.get(name)])
            changed = {name: self._before[name].with_rows(_entries(file)) for name, file in time.changed_files.items()}
            self._batch = time.number, with_updates(self._job, {**self._before, **changed}, updates)
        return self._batch[1]

    def _load(self, name: str, files: list[str]) -> None:
        loaded = self._loaded[name]
        if files[: len(loaded)] != loaded:
            self._before[name], loaded = ReferenceTable(), []
        for file in files[len(loaded) :]:
            self._before[name].take(_entries(file))
        self._loaded[name] = files


def _entries(file: str) -> Columns:
    """Return the entries in a file that Spark has sent to this executor."""
    return _unpacked(_sent_bytes(file))


def letters_in(file: str) -> Summary:
    """Return the dead letters in a file that Spark has sent to this executor, with the calls and failures that count
    for the limit on dead letters.
    """
    return Summary.unpack(_sent_bytes(file))


def _sent_bytes(file: str) -> bytes:
    from pyspark import SparkFiles

    return Path(SparkFiles.get(file)).read_bytes()


class StageReferences:
    """The references of a stage on the driver.

    :param stage: the stage's name; empty for a job with one handler
    :param directory: local directory for the files that Spark sends to executors
    :param run: the id of the run; different after a restart
    :param done: number of the last completed batch; `None` if there is none
    :raises CheckpointError: a file cannot be read
    """

    def __init__(
        self, job: Job, stage: str, files: Files, spark: Any, directory: Path, run: str, done: int | None
    ) -> None:
        self._job = job
        self._files = files
        self._spark = spark
        self._local = directory
        self._run = run
        self.tables = new_tables(job)
        self._paths = {name: f"{REFERENCES}/{qualified(stage, name)}" for name in self.tables}
        self._sent: dict[str, list[str]] = {name: [] for name in self.tables}
        self._sizes = {name: [0, 0] for name in self.tables}
        """The size of the last file with all entries and that of the changes since then, by reference."""
        self._tables = {
            source: TableReader(source, of, Keying(job, source, key_event_of(job, source), 1))
            for source, of in job.table_sources.items()
        }
        self.letter_files: list[str] = []
        """The names of the files with the dead letters of rows that were read before the batch; see `letters_in`."""
        self._stored_letters: list[str] = []
        """The same files in the checkpoint."""
        self._next = 0 if done is None else done + 1
        """The first batch of the run."""
        self._replaced: list[str] = []
        """The files that a file with all entries replaces once its batch is completed."""
        self._due = dict.fromkeys(job.table_sources, 0)
        """The clock time in microseconds at which each table is to be read again."""
        self._notifies = notifies_keys(job)
        self._planned: set[str] = set()
        """The references whose table an earlier run has read for the next batch."""
        for name in self.tables:
            self._load(name, done)

    def read_tables(self, number: int) -> None:
        """Read the tables that are due before a batch, unless the batch is processed again.

        :raises SourceError: a table cannot be read when the run starts
        :raises CallbackError: `key_event` failed on a row
        """
        planned, self._planned, now = self._planned, set(), clock_time()
        if number != self._next:
            self.letter_files = []
        due = [source for source, at in self._due.items() if now >= at]
        if not due or self._files.exists(f"{CLOCK_DIRECTORY}/{number}-began"):
            return
        if self._notifies and number > 0 and not is_woken(self._files, number):
            return  # Spark does not call all keys in this batch
        for source in due:
            if self._job.reference_sources[source].name not in planned:
                self._read_table(source, number, now)

    def _read_table(self, source: str, number: int, now: int) -> None:
        name, reader = self._job.reference_sources[source].name, self._tables[source]
        try:
            read = reader.read(self.tables[name], now)
        except SourceError as error:
            if not self._due[source]:
                raise
            self._due[source] = now + _RETRY
            _logger.warning("job %s: the reference %s keeps its entries: %s", self._job.name, name, error)
            return
        refresh = self._job.table_sources[source].refresh
        self._due[source] = END_OF_TIME if refresh is None else now + refresh // MICROSECOND
        if read.table.changes:
            self._store_changes(name, number, _ROWS, read.table)
        if read.tally.outputs:
            path, packed = f"{self._paths[name]}/{number}-{_LETTERS}", Summary.of(read.tally).pack()
            _write(self._files, path, packed)
            self._send_letters(name, number, path, packed)

    def _send_letters(self, name: str, number: int, path: str, packed: bytes) -> None:
        self._stored_letters.append(path)
        self.letter_files.append(self._to_executors(name, number, _LETTERS, packed))

    @property
    def due(self) -> int | None:
        """The clock time in microseconds at which a batch has to begin so that keys are notified of the rows of tables;
        `None` if none has to.
        """
        return min(self._due.values()) if self._notifies else None

    def changed_files(self, number: int) -> dict[str, str]:
        """Return the files with the changes of which keys are notified in a batch; see `BatchTime.changed_files`. In
        batch 0, no key watches a reference yet.
        """
        if not self._notifies or number == 0:
            return {}
        end = f"-{number}-{_ROWS}"
        return {name: file for name, files in self._sent.items() for file in files[-1:] if file.endswith(end)}

    @property
    def sent(self) -> dict[str, list[str]]:
        """The names of the files that workers have to load, by reference."""
        return {name: list(files) for name, files in self._sent.items()}

    def take(self, number: int, chunks: Iterable[Sequence[Any]]) -> None:
        """Store the updates of a batch. All earlier batches are completed.

        :param chunks: the updates, as the fields of chunks
        """
        for file in self._replaced:
            self._files.remove(file)
        self._replaced, self._stored_letters = self._stored_letters, []
        for name, table in with_updates(self._job, self.tables, (Chunk(*chunk) for chunk in chunks)).items():
            if table.changes:
                self._store_changes(name, number, _CHANGES, table)
                whole, changed = self._sizes[name]
                if changed > max(whole, _LARGE):
                    self._merge(name, number)

    def _merge(self, name: str, number: int) -> None:
        """Replace the files of a reference by one with all entries."""
        self._sent[name], self._sizes[name] = [], [0, 0]
        self._store(name, number, _ALL, _packed(self.tables[name].columns()))
        files = self._files.names(self._paths[name])
        self._replaced += [f"{self._paths[name]}/{file}" for file in files if file != f"{number}-{_ALL}"]

    def _store_changes(self, name: str, number: int, kind: str, table: ReferenceTable) -> None:
        """Store the changes of a batch, and make them part of the reference."""
        packed = _packed(table.changed_columns())
        table.merge()
        self.tables[name] = table
        self._store(name, number, kind, packed)

    def _store(self, name: str, number: int, kind: str, packed: bytes) -> None:
        _write(self._files, f"{self._paths[name]}/{number}-{kind}", packed)
        self._send(name, number, kind, packed)

    def _send(self, name: str, number: int, kind: str, packed: bytes) -> None:
        self._sent[name].append(self._to_executors(name, number, kind, packed))
        self._sizes[name][kind != _ALL] += len(packed)

    def _to_executors(self, name: str, number: int, kind: str, packed: bytes) -> str:
        """Let Spark send a file to the executors, and return its name there."""
        file = self._local / f"{self._run}-{self._paths[name].rpartition('/')[2]}-{number}-{kind}"
        file.write_bytes(packed)
        self._spark.sparkContext.addFile(str(file))
        return file.name

    def _load(self, name: str, done: int | None) -> None:
        """Load the files of completed batches, and remove those of others."""
        path = self._paths[name]
        last = -1 if done is None else done
        found = _found(self._files, path)
        needed = _needed(found, last)
        if (last + 1, _ROWS) in found:
            needed.append((last + 1, _ROWS))
            self._planned.add(name)
        for number, kind in found:
            if kind == _LETTERS and number == last + 1:
                file = f"{path}/{number}-{kind}"
                self._send_letters(name, number, file, _read(self._files, file))
                self._planned.add(name)
            elif (number, kind) not in needed:
                self._files.remove(f"{path}/{number}-{kind}")
        for number, kind in needed:
            packed = _read(self._files, f"{path}/{number}-{kind}")
            self.tables[name].take(_unpacked(packed))
            self._send(name, number, kind, packed)


def table_at(files: Files, name: str, batch: int) -> ReferenceTable:
    """Return the entries of a reference as of a batch.

    :param name: the name of the reference's directory in `REFERENCES`
    :raises CheckpointError: a file cannot be read, or a run has removed files since
    """
    table = ReferenceTable()
    found = _found(files, f"{REFERENCES}/{name}")
    if any(kind == _ALL and number > batch for number, kind in found):
        raise CheckpointError(files.checkpoint, f"the reference {name} has changed meanwhile. Take the savepoint again")
    for number, kind in _needed(found, batch):
        table.take(_unpacked(_read(files, f"{REFERENCES}/{name}/{number}-{kind}")))
    return table


def saved_references(files: Files, stage: str, batch: int | None) -> Iterator[tuple[str, str]]:
    """Yield the names and texts of the files of a stage's references for a savepoint.

    :param batch: number of the last batch; `None` if there is none
    """
    prefix = qualified(stage, "")
    for name in files.names(REFERENCES) if batch is not None else ():
        if name.startswith(prefix):
            yield saved_name(name.removeprefix(prefix)), table_at(files, name, batch or 0).to_text()


def load_references(files: Files, stage: str, savepoint: Savepoint) -> None:
    """Write the references in the savepoint of a stage to a checkpoint, as of batch 0."""
    for name, table in savepoint.references():
        _write(files, f"{REFERENCES}/{qualified(stage, name)}/0-{_ALL}", _packed(table.columns()))


def drop_references(files: Files, job: Job) -> None:
    """Remove the entries of references that the job no longer declares and that it drops."""
    for stage, of in job.by_stage.items():
        for name, fate in of.retired.items():
            if fate == "drop":
                files.remove(f"{REFERENCES}/{qualified(stage, name)}")


def plan_rows_again(files: Files, before: str, number: int) -> None:
    """Plan the rows of tables that were read for a batch for batch 1 of a rescaled checkpoint.

    :param before: the directory with the files of the checkpoint as it was
    :param number: the batch's number before
    """
    for name in files.names(f"{before}/{REFERENCES}"):
        rows = files.read(f"{before}/{REFERENCES}/{name}/{number}-{_ROWS}")
        if rows is not None:
            files.write(f"{REFERENCES}/{name}/1-{_ROWS}", rows)


def _found(files: Files, path: str) -> list[tuple[int, str]]:
    """Return the number and the kind of each file of a reference, in the order in which they are to be read."""
    found = [(int(number), kind) for number, _, kind in (file.partition("-") for file in files.names(path))]
    return sorted(found, key=lambda file: (file[0], file[1] == _ALL))


def _needed(found: Sequence[tuple[int, str]], batch: int) -> list[tuple[int, str]]:
    """Return the files that have the entries as of a batch: the last one with all entries, and those after it.

    :param found: the result of `_found`
    """
    until = [(number, kind) for number, kind in found if number <= batch and kind != _LETTERS]
    first = max((position for position, (_, kind) in enumerate(until) if kind == _ALL), default=0)
    return until[first:]


def _write(files: Files, name: str, packed: bytes) -> None:
    files.write(name, base64.b64encode(packed).decode())


def _read(files: Files, name: str) -> bytes:
    try:
        return base64.b64decode(files.read(name) or "", validate=True)
    except ValueError as error:
        why = f"the file {name} cannot be read: restore it, or start with a new checkpoint directory ({error})"
        raise CheckpointError(files.checkpoint, why) from error


def _packed(entries: Columns) -> bytes:
    return pack_compressed(list(entries))


def _unpacked(packed: bytes) -> Columns:
    return Columns(*unpack_compressed(packed))
