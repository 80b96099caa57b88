"""Spark stages of a test run: the stages of a real run, with a script, a trace and simulated crashes."""

import base64
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from time import perf_counter
from typing import Any

import attrs

from amadou import Job
from amadou.errors import AmadouError
from amadou_runtime.core.events import FED, Chunk
from amadou_runtime.core.key_group import KeyGroup
from amadou_runtime.core.keying import Keying
from amadou_runtime.core.operator import Operator
from amadou_runtime.core.references import ReferenceTable, new_tables, with_updates
from amadou_runtime.core.stored import RangeState, StoredRange
from amadou_runtime.formats.compressed import pack_compressed, unpack_compressed
from amadou_runtime.jobs.stages import errors_of_stage
from amadou_runtime.spark.clock import BatchTime
from amadou_runtime.spark.keying_stage import KeyingStage, Rows, order_of
from amadou_runtime.spark.modules import loads
from amadou_runtime.spark.payload import Worker
from amadou_runtime.spark.rows import passed_row
from amadou_runtime.spark.spread import range_numbers
from amadou_runtime.spark.stateful_stage import StatefulStage
from amadou_runtime.spark.summary import Summary, error_fields
from amadou_runtime.spark.worker_end import end_with_spark
from amadou_runtime.store.log.forms import Forms
from amadou_runtime.store.log.logged_range import LoggedRange
from amadou_runtime.store.packed_group import packed_group
from amadou_runtime.testing.checked import CheckedKeying, CheckedOperator
from amadou_runtime.testing.trace import SimulatedCrash, Trace

_BEGIN = b"begin"
"""First bytes of the content of a row with a `ScriptedBegin`. Those of other rows begin with another letter; see
`spark.rows`.
"""


@attrs.frozen
class ScriptedBegin:
    """The first row of each batch of a stage in a script.

    :param run: name of the run
    :param crash_after: number of callbacks before the worker crashes; if the batch has fewer callbacks, the worker
        crashes at the end of the batch. `None` for no crash
    :param references: see `ScriptedBatch.references`
    :param put: state that replaces the stored state of the only key group; empty bytes for no state. `None` to keep the
        stored state
    """

    stage: str
    run: str
    crash_after: int | None
    put: bytes | None
    references: dict[str, bytes]


@attrs.frozen
class ScriptedRow:
    """A record in a script, as Spark receives it."""

    stage: str
    source: str
    partition: str
    record: Any


class TracedWorker(Worker):
    """A worker with a trace of its callbacks."""

    is_of_test_run = True

    def __init__(self, job: Job, run: str, groups: int) -> None:
        super().__init__(job, run, groups)
        self.references: Any = _ScriptedReferences(job)

    def operator_of(self, job: Job, run: str) -> Operator:
        self.trace = Trace()
        return CheckedOperator(job, self.trace)

    def keying_of(self, job: Job, source: str, groups: int) -> Keying:
        return CheckedKeying(job, source, groups)


class _ScriptedReferences:
    """References whose entries before a batch are in the script; see `WorkerReferences`."""

    def __init__(self, job: Job) -> None:
        self._job = job
        self.before: dict[str, ReferenceTable] = {}

    def in_batch(self, time: BatchTime, updates: Sequence[Chunk]) -> Mapping[str, ReferenceTable]:
        return with_updates(self._job, {**new_tables(self._job), **self.before}, updates)


class ScriptedKeyingStage(KeyingStage):
    """Keys the records of a script, for all stages and from all sources. The first stage passes on the rows for later
    stages: with a stream for each stage, Spark could read the same batch of the script at different times.
    """

    def _blocks(self, worker: Worker, cells: Any) -> Iterator[list[Any]]:
        yield [loads(base64.b64decode(cell)) for cell in cells.to_pylist()]

    def _key(self, worker: Worker, rows: Rows, records: list[Any], place: tuple[str, int, int]) -> None:
        for stage, of_stage in groupby(records, lambda row: row.stage):
            if stage == self.payload.stage:
                self._key_stage(worker, rows, of_stage, place)
                continue
            payload, later = self.payload.of_stage(stage), Rows(self.payload, BatchTime.of_task(stage), perf_counter())
            with errors_of_stage(stage):
                self._key_stage(payload.opened(), later, of_stage, place)
            for target, chunk in later.pairs():
                rows.add(*passed_row(stage, target, chunk))

    def _key_stage(self, worker: Worker, rows: Rows, records: Iterable[Any], place: tuple[str, int, int]) -> None:
        name, position, number = place
        (key_range,) = range_numbers(self.payload.ranges)
        script: dict[tuple[str, str], list[Any]] = {}
        for row in records:
            if isinstance(row, ScriptedBegin):
                rows.add(key_range, _BEGIN + pack_compressed(list(attrs.astuple(row)[1:])))
            else:
                script.setdefault((row.source, row.partition), []).append(row.record)
        for (source, partition), brought in sorted(script.items(), key=lambda item: item[0]):
            is_fed = source in worker.job.fed_sources
            ordering = FED if is_fed else order_of(f"{partition}\0{name}", position, number)
            rows.add_events(source, partition, ordering, brought, worker)


class TracedRange:
    """The only key range of a test run, with one key group; see `StoredRange`. In every batch that has a watermark, the
    key group is processed even without events.
    """

    def __init__(self, stored: StoredRange, run: str) -> None:
        self._stored = stored
        self._run = run
        self.group, self.take = stored.group, stored.take

    def called(self, operator: Operator, watermark: int | None, limits: Mapping[str, int]) -> list[int]:
        called = list(self._stored.called(operator, watermark, limits))
        return called if watermark is None else [0]

    def state(self) -> bytes | None:
        """Return the state of the key group as one value; see `PackedGroup`."""
        stored = self.group(0)
        group = KeyGroup(stored, self._run)
        stored.load_all(group)
        return packed_group(group)


@attrs.frozen
class TracedStatefulStage(StatefulStage):
    """Processes the only key range of a test run, traces the callbacks, and simulates the crashes of the script.

    :param forms: rules for the form of the key group on the store *log*; `None` for those of a real run
    """

    forms: Forms | None = None

    def _process(self, number: int, contents: list[bytes], state: RangeState) -> Summary:
        begin = next((content for content in contents if content.startswith(_BEGIN)), None)
        if begin is None:  # the batch has already failed; only the range's timeout caused this call
            return Summary()
        run, crash_after, put, references = unpack_compressed(begin[len(_BEGIN) :])
        stored: Any = state.load(run)
        if isinstance(stored, LoggedRange) and self.forms is not None:
            stored.forms = self.forms
        if put is not None:
            stored.replace(0, put or None)
        traced = TracedRange(stored, run)
        worker = self.payload.opened()
        assert isinstance(worker, TracedWorker)
        worker.operator.run = run
        worker.references.before = {name: ReferenceTable.of_bytes(packed) for name, packed in references.items()}
        worker.trace.take()
        worker.trace.crash_after = crash_after
        try:
            with errors_of_stage(self.payload.stage):
                summary = self._batch(worker, traced, number, [content for content in contents if content is not begin])
        except AmadouError as error:
            return Summary(error=error_fields(error), trace=_traced(worker.trace))
        if crash_after is not None:
            raise SimulatedCrash
        states: dict[int, bytes | None] = {0: traced.state()}
        summary.add_stored(number, state.store())
        return attrs.evolve(summary, trace=_traced(worker.trace), states=states)


def _traced(trace: Trace) -> list[Any]:
    return [entry.parts() for entry in trace.take()]


end_with_spark()
