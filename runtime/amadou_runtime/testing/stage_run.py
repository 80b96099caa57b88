"""A stage of a test run: its script's results, state and watermark."""

from collections.abc import Callable, Iterable, Mapping
from copy import deepcopy
from itertools import count
from pathlib import Path
from typing import Any, TypeAlias

import attrs

from amadou import DeadLetter, Job, Key, MemorySink, Subject
from amadou.engine import DEAD_LETTERS, pack, sum_counts, unpack
from amadou.errors import AmadouError, CheckpointError
from amadou.plugins import Codec, SinkBatch
from amadou_runtime.core.dead_letter_limit import LetterCount
from amadou_runtime.core.key_group import KeyGroup
from amadou_runtime.core.references import ReferenceTable, saved_name
from amadou_runtime.core.watermark import Watermark
from amadou_runtime.embedded.savepoints import saved_tables
from amadou_runtime.jobs.ports import port_codec
from amadou_runtime.jobs.returned_sources import check_returned
from amadou_runtime.jobs.state_schema import Known, described, state_problem, with_structures
from amadou_runtime.savepoint.manifest import Manifest
from amadou_runtime.savepoint.savepoint import (
    TEST_RUN,
    SavedProgress,
    Savepoint,
    clock_fields,
    newest_times,
    write_group,
)
from amadou_runtime.store.packed_group import PackedGroup, packed_group
from amadou_runtime.testing.engines import ScriptedBatch, ScriptedResult
from amadou_runtime.testing.test_result import StageResult, subject_of
from amadou_runtime.testing.trace import RawEntry

StageRecords: TypeAlias = dict[str, dict[str, list[Any]]]
"""A batch's records for a stage by source and partition."""
_SNAPSHOT = 4
"""Version of the snapshot format."""
_numbers = count()


class StageRun:
    """A stage of a test run. A job with one handler is its only stage.

    :param job: the stage as a job, in the form that a test run processes; see `TestRun`
    :param sinks: the stage's `MemorySink`s, as pairs of port and sink
    """

    def __init__(self, job: Job, sinks: Iterable[tuple[str, MemorySink]]) -> None:
        self.job = job
        self.watermark = Watermark(job)
        self.placed: bytes | None = None
        """The state that replaces the stored state in the next batch; see `ScriptedBatch.put`."""
        self.raw: list[RawEntry] = []
        self.failed: list[RawEntry] = []
        """The trace of the last batch, if it failed."""
        self._codecs: dict[str, Codec[Any]] = {}
        self._references: Mapping[str, bytes] = {}
        self._take(job)
        self._known = self._current = self._stored = with_structures({}, described(job))
        """State structures at the end of the script, in the current code, and in the stored state."""
        self._counts: dict[str, int] = {}
        self._dropped = 0
        self._state: bytes | None = None
        """The state after the last batch as one value, unless `_load`."""
        self._load: Callable[[], bytes | None] | None = None
        """Function that returns the state after the last batch."""
        self._dependency_state: bytes | None = None
        self._letters = LetterCount()
        self._read: set[str] = set()
        self._last_sources: list[str] = []
        self._returned = 0
        self._number = next(_numbers)
        self._memory_sinks = list(sinks)

    @property
    def state(self) -> bytes | None:
        """The state after the last batch as one value; `None` if there is no state."""
        if self._load is not None:
            self._state, self._load = self._load(), None
        return self._state

    def batch(self, records: StageRecords, run: str, now: int, number: int, crash_after: int | None) -> ScriptedBatch:
        """Return a batch to process. The watermark follows the batches before."""
        return ScriptedBatch(
            run,
            records,
            self.watermark.follow(now),
            now,
            crash_after,
            self.placed,
            number,
            self._dependency_state,
            self._letters,
            {name: packed for name, packed in self._references.items() if name in self.job.references},
            self.watermark.before_end,
        )

    def advance(self, source: str | None, partition: str | None, micros: int | None, now: int) -> None:
        """Advance the watermark; see `TestRun.add_watermark`.

        :param micros: the time in microseconds; `None` for the newest event time
        """
        if source is not None:
            self.watermark.bring(source, partition, micros, now)
            return
        target = self.watermark.newest if micros is None else micros
        for name in self.job.external_sources:
            self.watermark.bring(name, None, target, now)

    def take_result(self, batch: ScriptedBatch, result: ScriptedResult, load: Callable[[], bytes | None]) -> None:
        """Take the result of a batch.

        :param load: function that returns the state after the batch
        """
        self.placed, self._load = None, load
        self._stored = self._current
        self._counts = sum_counts((self._counts, result.counts))
        self._dropped += result.dropped
        self.watermark.observe(result.newest, batch.now)
        self.watermark.hold(result.held)
        self._dependency_state = result.dependency_state
        self._letters = result.letter_count
        self._references = {**self._references, **result.references}
        self._read |= {source for source, by_partition in batch.records.items() if any(by_partition.values())}
        self._last_sources = list(self.job.sources)
        trace = [self._undeliverable(encoded) for encoded in result.letters] + result.trace
        self.raw += trace
        for port, sink in self._memory_sinks:
            if port not in self._codecs:  # a port of the replaced handler
                continue
            into = SinkBatch(f"test-{self._number}", self.job.name, port, batch.number, self._codecs[port])
            sink.commit(into, [[encoded for entry in trace for name, encoded in entry.outputs if name == port]])

    def take_failure(self, failed: list[RawEntry]) -> None:
        """Take the trace of a batch that failed."""
        self.failed = failed
        self._known = self._stored  # if the first batch of new code fails, earlier code can resume

    def upgrade(self, job: Job) -> Callable[[], None]:
        """Check that a job can resume from the state at the end of the script.

        :returns: function to call when the script has come to this point
        :raises CheckpointError: the job cannot resume
        """
        self.take_over("of the test run", job, self._known)
        known = self._known

        def take() -> None:
            self._take(job)
            self._current = known

        return take

    def take_over(self, of: str, job: Job, known: Known) -> None:
        """Check that a job can resume from state, with the rules for checkpoints, and record the job's structures.

        :param of: owner of the state, for the error message
        :param known: the structures of each state spec in earlier runs
        :raises CheckpointError: the job cannot read the state
        """
        now = described(job)
        problem = state_problem(job, known, now)
        if problem is not None:
            raise CheckpointError(of, problem)
        self._known = with_structures(known, now)

    def put(self, key: Key, change: Callable[[Subject], Any]) -> None:
        """Change the state of a key."""
        self._state = changed_state(self.state, key, change)
        self.placed = self._state or b""

    def keep(self) -> None:
        """Keep the state for another engine."""
        self.placed = self.state or b""

    def result(self, now: int) -> StageResult:
        """Return the results of the stage."""
        followed = deepcopy(self.watermark)  # the watermark of the last batch feeds other stages
        watermark = followed.follow(now)
        before, self._returned = self._returned, len(self.raw)
        return StageResult(
            self.job,
            self._codecs,
            self.raw,
            self.state,
            watermark,
            self._counts,
            self._dropped,
            new_from=before,
            references=self._references,
            held_back_by=followed.held_back_by(now),
        )

    def failed_result(self) -> StageResult:
        """Return the trace of the stage, including the callbacks of a failed batch."""
        return StageResult(self.job, self._codecs, self.raw + self.failed, None, None, {})

    def snapshot(self, now: int) -> bytes:
        """Return a snapshot of the stage; see `TestRun.snapshot`."""
        return pack(
            [
                _SNAPSHOT,
                self.state,
                self.watermark.to_json(),
                now,
                self._dependency_state,
                attrs.asdict(self._letters),
                sorted(self._read),
                self._last_sources,
                self.job.name,
                self._known,
                *([dict(self._references)] if self._references else []),
            ]
        )

    def resume(self, snapshot: bytes) -> int:
        """Continue from a snapshot. Return its processing time in microseconds.

        :raises CheckpointError: the job cannot resume from the snapshot
        :raises ValueError: the snapshot cannot be read
        """
        try:
            version, *rest = unpack(snapshot)
            if version != _SNAPSHOT:
                raise ValueError(f"the snapshot has version {version}, not {_SNAPSHOT}")
            self._state, watermark, now, self._dependency_state, letters, *others = rest
            read, self._last_sources, name, known, *references = others  # only a job with references has them
            self._references = next(iter(references), {})
            self.watermark.load(watermark)
            self._letters, self._read = LetterCount(**letters), set(read)
        except (AmadouError, ValueError, TypeError, KeyError) as error:
            raise ValueError(f"the snapshot cannot be read: create it again with this release ({error})") from error
        if name != self.job.name:
            raise CheckpointError("of the snapshot", f"it belongs to the job {name!r}, not to {self.job.name!r}")
        self.take_over("of the snapshot", self.job, known)
        streams = {**self.job.stream_sources, **self.job.fed_sources}
        check_returned("of the snapshot", streams, self._read, self._last_sources)
        self._current, self._stored = self._known, known
        self.placed = self._state
        return int(now)

    def start_from(self, savepoint: Savepoint, keys: Iterable[Key] | None) -> int | None:
        """Continue from a savepoint. Return its processing time in microseconds; `None` if it has none.

        :param keys: the keys whose state is loaded; `None` for all
        """
        manifest = savepoint.manifest
        if keys is None:
            groups = savepoint.groups_for(self.job, 1, range(1), by_key=True)
        else:
            groups = savepoint.group_of_keys(self.job, keys)
        for _, group in groups:
            self._state = packed_group(group)
        self.watermark.load(savepoint.clock["watermark"])
        self._dependency_state, self._letters = savepoint.dependency_state, savepoint.letters
        self._read, self._last_sources = set(manifest.ever_read), list(manifest.sources)
        self._known = with_structures(manifest.structures, described(self.job))
        self._current, self._stored = self._known, manifest.structures
        self.placed = self._state
        tables = saved_tables(savepoint, self.job)
        self._references = {name: table.to_bytes() for name, table in tables.items()}
        looked: int | None = savepoint.clock["watermark"]["looked"]
        return looked

    def savepoint(self, batches: int, directory: Path) -> Manifest:
        """Write a savepoint; see `TestRun.savepoint`.

        :param batches: number of batches that the test run has processed
        :param directory: see `write_group`
        """
        names = self.job.stream_sources
        sources = {name: {"newest": newest_times(self.watermark.newest_times(name))} for name in names}
        return write_group(
            KeyGroup(PackedGroup(self.state)),
            SavedProgress(
                engine=TEST_RUN,
                job=self.job.name,
                run=f"test-{self._number}",
                batch=batches - 1 if batches else None,
                sources=sources,
                clock=clock_fields(self.watermark, self._dependency_state, self._letters),
                structures=self._known,
                ever_read=sorted(self._read - self.job.fed_sources.keys() - self.job.table_sources.keys()),
                files={
                    saved_name(name): ReferenceTable.of_bytes(of).to_text() for name, of in self._references.items()
                },
            ),
            directory,
        )

    def _take(self, job: Job) -> None:
        """Make a job the stage's current job."""
        self.job = job
        self._references = {name: of for name, of in self._references.items() if job.retired.get(name) != "drop"}
        self._codecs |= {port: port_codec(job, port) for port in job.ports}

    def _undeliverable(self, encoded: Any) -> RawEntry:
        """Return the trace entry for a record on which `key_event` failed."""
        letter: DeadLetter = self._codecs[DEAD_LETTERS].decode(encoded)
        return RawEntry(
            "key_event",
            key=None,
            timestamp=None,
            watermark=None,
            source=letter.source,
            value=letter.record,
            outputs=[(DEAD_LETTERS, encoded)],
            error=letter.error,
        )


def changed_state(state: bytes | None, key: Key, change: Callable[[Subject], Any]) -> bytes | None:
    """Return a key group's state after `change` has changed the state of a key."""
    group = KeyGroup(PackedGroup(state))
    change(subject_of(group, key))
    for table in group.tables.values():
        table.store()
    return packed_group(group)
