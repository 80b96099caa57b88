"""Engines for test runs. An engine processes a script batch by batch."""

import copy
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from typing import Any, Protocol

import attrs

from amadou import Job, Lookup
from amadou.engine import BeforeEnd, sum_counts
from amadou.errors import AmadouError
from amadou_runtime.core.dead_letter_limit import LetterCount
from amadou_runtime.core.dependencies import Held
from amadou_runtime.core.feeding import fed_by
from amadou_runtime.core.keying import Keying, keyed_sources
from amadou_runtime.core.operator import Operator
from amadou_runtime.core.references import ReferenceTable
from amadou_runtime.core.watermark import Newest
from amadou_runtime.embedded.engine import BatchResult, Embedded
from amadou_runtime.formats.failure import cannot_travel
from amadou_runtime.jobs.stages import errors_of_stage
from amadou_runtime.store.memory import EmbeddedState, GroupState
from amadou_runtime.store.packed_group import packed_group
from amadou_runtime.testing.checked import CheckedKeying, CheckedOperator
from amadou_runtime.testing.difference import difference, in_fixed_order
from amadou_runtime.testing.in_place import class_attributes_checked
from amadou_runtime.testing.trace import RawEntry, SimulatedCrash, Trace


@attrs.frozen
class ScriptedBatch:
    """A batch of a script for one stage.

    :param run: name of the run; the in-memory state of earlier runs is lost
    :param records: records and `ScriptedEvent`s by source and partition
    :param watermark: the batch's watermark in microseconds
    :param now: processing time in microseconds
    :param crash_after: number of callbacks before the crash; if the batch has fewer callbacks, the crash is at its end.
        After the crash, the batch is reprocessed. `None` for no crash
    :param put: key group state that replaces the stored state. Empty bytes remove the stored state; `None` keeps it
    :param number: the batch's number
    :param dependency_state: the `Decision.state` of the previous batch
    :param letter_count: counts of callback calls and failures before the batch
    :param references: the entries of references before the batch, by reference; see `ReferenceTable.to_bytes`
    :param before_end: see `Watermark.before_end`
    """

    run: str
    records: Mapping[str, Mapping[str, list[Any]]]
    watermark: int | None
    now: int
    crash_after: int | None = None
    put: bytes | None = None
    number: int = 0
    dependency_state: bytes | None = None
    letter_count: LetterCount = attrs.field(factory=LetterCount)
    references: Mapping[str, bytes] = attrs.field(factory=dict)
    before_end: BeforeEnd | None = None

    def after_crash(self) -> "ScriptedBatch":
        """Return the batch without the crash, for the run that reprocesses the batch."""
        return attrs.evolve(self, run=next_run(self.run), crash_after=None)


def next_run(run: str) -> str:
    """Return the name of the run that follows the given run after a restart or a crash."""
    script, _, number = run.partition("/")
    return f"{script}/{int(number) + 1}"


@attrs.frozen
class ScriptedResult:
    """Result of a scripted batch in one stage.

    :param letters: encoded dead letters for records on which `key_event` failed
    :param counts: counters of callbacks and components
    :param dropped: number of late events that were dropped
    :param trace: raw trace entries of the callbacks
    :param newest: the newest event times in the batch, by source and partition
    :param held: number of events held after the batch, and the oldest event time among them, by source
    :param dependency_state: see `Decision.state`
    :param letter_count: counts of callback calls and failures after the batch
    :param references: the entries of references after the batch, by reference
    :param state: the key group's state after the batch, in a fixed order; only for comparing engines
    """

    letters: list[Any]
    counts: Mapping[str, int]
    dropped: int
    trace: list[RawEntry]
    newest: Newest
    held: Held
    dependency_state: bytes | None
    letter_count: LetterCount
    references: Mapping[str, bytes] = attrs.field(factory=dict)
    state: bytes | None = None


class ScriptEngine(Protocol):
    """An engine that processes a script."""

    def process(self, batches: Mapping[str, ScriptedBatch]) -> dict[str, ScriptedResult]:
        """Process one batch.

        :param batches: the batch by stage
        :returns: the results by stage
        """

    def state(self, stage: str) -> bytes | None:
        """Return the state of a stage's key group after the last batch as one value; `None` if there is no state."""

    def restart(self, job: Job) -> None:
        """Restart with the stored state.

        :param job: the job to run after the restart
        """

    def failed(self) -> dict[str, list[RawEntry]]:
        """Return the raw trace entries of the callbacks in the last failed batch by stage, if the engine has recorded
        them.
        """

    def close(self) -> None:
        """Release the engine's resources."""


class EmbeddedEngine:
    """Processes batches in this process; see `ScriptEngine`.

    :param job: the job, with in-memory sinks
    :param state_of: makes the state of a stage's key group from its state as one value (see `PackedGroup`), or from
        `None`
    """

    def __init__(self, job: Job, state_of: Callable[[bytes | None], GroupState] = EmbeddedState.of) -> None:
        self._state_of = state_of
        self._begin(job)
        for engine in self._engines.values():
            engine.state = state_of(None)

    def process(self, batches: Mapping[str, ScriptedBatch]) -> dict[str, ScriptedResult]:
        for name, batch in batches.items():
            if batch.put is not None:
                self._engines[name].state = self._state_of(batch.put or None)
        if any(batch.crash_after is not None for batch in batches.values()):
            with suppress(SimulatedCrash):
                self._process(batches)
            self.restart(self._job)
            batches = {name: batch.after_crash() for name, batch in batches.items()}
        results = self._process(batches)
        return {name: self._stored(name, result) for name, result in results.items()}

    def state(self, stage: str) -> bytes | None:
        return packed_group(self._engines[stage].state.whole())

    def failed(self) -> dict[str, list[RawEntry]]:
        return {name: engine.trace.take() for name, engine in self._engines.items()}

    def restart(self, job: Job) -> None:
        states = {name: engine.state for name, engine in self._engines.items()}
        self.close()
        self._begin(job)
        for name, state in states.items():
            self._engines[name].state = state

    def close(self) -> None:
        for engine in self._engines.values():
            engine.close()

    def _begin(self, job: Job) -> None:
        self._job = job
        self._stages = {name: _for_worker(stage) for name, stage in job.by_stage.items()}
        self._engines: dict[str, _TracedEngine] = {}
        for name, stage in self._stages.items():
            with errors_of_stage(name):
                self._engines[name] = _TracedEngine(stage)

    def _process(self, batches: Mapping[str, ScriptedBatch]) -> dict[str, BatchResult]:
        results: dict[str, BatchResult] = {}
        for name, batch in batches.items():
            self._engines[name].trace.take()
            self._engines[name].begin(batch.run)
            self._engines[name].letters = batch.letter_count
            fed = fed_by(self._stages[name], {of: result.tally.outputs for of, result in results.items()})
            with errors_of_stage(name):
                results[name] = self._engines[name].process_scripted(batch, fed)
        return results

    def _stored(self, name: str, result: BatchResult) -> ScriptedResult:
        engine = self._engines[name]
        engine.store(result)
        return ScriptedResult(
            result.letters,
            result.tally.counts.counters,
            result.tally.counts.dropped,
            engine.trace.take(),
            result.tally.newest,
            result.held,
            result.decision.state,
            engine.letters,
            {reference: table.to_bytes() for reference, table in engine.references.items()},
        )


class _TracedEngine(Embedded):
    """The embedded engine with a trace, and with checks of the vectorised paths."""

    def __init__(self, job: Job) -> None:
        self.trace = Trace()
        super().__init__(job)

    def process_scripted(self, batch: ScriptedBatch, fed: Mapping[str, list[Any]]) -> BatchResult:
        """Process a scripted batch.

        :param fed: the records from ports of other stages, by source
        """
        self.trace.crash_after = batch.crash_after
        self.references |= {name: ReferenceTable.of_bytes(packed) for name, packed in batch.references.items()}
        records = {source: sorted(by_partition.items()) for source, by_partition in batch.records.items()}
        for source, given in fed.items():
            records.setdefault(source, []).append(("", given))
        with class_attributes_checked(self._job.handler):  # once for all sources and the callbacks, to save time
            result = self.process(
                records, batch.watermark, batch.now, batch.number, batch.dependency_state, batch.before_end
            )
        if batch.crash_after is not None:
            raise SimulatedCrash
        return result

    def operator_of(self, job: Job) -> Operator:
        return CheckedOperator(job, self.trace)

    def keying_of(self, job: Job, source: str) -> Keying:
        return CheckedKeying(job, source, 1)


class BothEngines:
    """Processes each batch on the embedded engine and on Spark; see `ScriptEngine`."""

    def __init__(self, job: Job, embedded: ScriptEngine, spark: ScriptEngine) -> None:
        self._job = job
        self._embedded = embedded
        self._spark = spark

    def process(self, batches: Mapping[str, ScriptedBatch]) -> dict[str, ScriptedResult]:
        embedded, spark = (_outcome(engine, batches) for engine in (self._embedded, self._spark))
        if isinstance(embedded, AmadouError) and isinstance(spark, AmadouError):
            raise embedded
        if isinstance(embedded, AmadouError) or isinstance(spark, AmadouError):
            found = difference(embedded, spark)
            assert found is not None
            raise found
        for stage, ours in embedded.items():
            self._compare(stage, ours, spark[stage])
        return embedded

    def _compare(self, stage: str, embedded: ScriptedResult, spark: ScriptedResult) -> None:
        _level_detail(embedded.trace, spark.trace)
        states = (in_fixed_order(engine.state(stage)) for engine in (self._embedded, self._spark))
        lookups = self._job.by_stage[stage].lookups.values()
        embedded, spark = (
            attrs.evolve(of, state=next(states), counts=_without_caches(of.counts, lookups)) for of in (embedded, spark)
        )
        differing = difference(embedded, spark, stage)
        if differing is not None:
            raise differing

    def state(self, stage: str) -> bytes | None:
        return self._embedded.state(stage)

    def restart(self, job: Job) -> None:
        self._job = job
        self._embedded.restart(job)
        self._spark.restart(job)

    def failed(self) -> dict[str, list[RawEntry]]:
        return self._embedded.failed()

    def close(self) -> None:
        self._embedded.close()
        self._spark.close()


def _without_caches(counts: Mapping[str, int], lookups: Iterable[Lookup[Any, Any]]) -> dict[str, int]:
    """Return counters in which the keys of lookups count as fetched even if their results were cached: each worker has
    a cache of its own.
    """
    fetched = {f"{lookup.name}.cached": f"{lookup.name}.fetched" for lookup in lookups}
    return sum_counts({fetched.get(name, name): count} for name, count in counts.items())


def _level_detail(embedded: list[RawEntry], spark: list[RawEntry]) -> None:
    """Copy the embedded engine's state into Spark's entries wherever the entry of either engine has no state. A trace
    records state only for a limited number of callbacks, and each Spark worker has its own trace.
    """
    for ours, theirs in zip(embedded, spark, strict=False):
        if ours.before is None or theirs.before is None:
            theirs.before, theirs.after = ours.before, ours.after


def _for_worker(job: Job) -> Job:
    """Return the job with copies of the handler and the sources, as in a worker. Objects are copied as if they were
    pickled.

    Unlike on Spark, classes and functions are not copied so that a test can compare results with objects of the test's
    classes.

    :raises JobError: the handler or a source cannot be copied
    """
    keyed = keyed_sources(job)
    try:
        handler, sources = copy.deepcopy((job.handler, keyed))
    except Exception as error:
        raise cannot_travel(job, error) from error
    return attrs.evolve(job, handler=handler, sources=sources)


def _outcome(engine: ScriptEngine, batches: Mapping[str, ScriptedBatch]) -> dict[str, ScriptedResult] | AmadouError:
    try:
        return engine.process(batches)
    except AmadouError as error:
        return error
