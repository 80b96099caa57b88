"""The embedded engine, which runs a job in one process, with one key group and without Java."""

import gc
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from time import perf_counter
from typing import Any, NamedTuple, TypeAlias

import attrs

from amadou import Counts, Job
from amadou.engine import DEAD_LETTERS, BeforeEnd, sum_counts
from amadou_runtime.core.dead_letter_limit import Failures, LetterCount, all_failures
from amadou_runtime.core.dependencies import check_held
from amadou_runtime.core.events import FED, Chunk
from amadou_runtime.core.keying import KeyedRecords, Keying, key_event_of
from amadou_runtime.core.operator import Evaluation, GroupBatch, Operator, ProcessedGroup, together
from amadou_runtime.core.references import ReferenceTable, new_tables, notifies_keys, with_updates
from amadou_runtime.core.samples import Samples
from amadou_runtime.core.table_reader import TableRead, TableReader
from amadou_runtime.core.vectorized import handler_for
from amadou_runtime.core.watermark import Newest, newest_of
from amadou_runtime.store.memory import EmbeddedState, GroupState

BatchRecords: TypeAlias = Mapping[str, Iterable[tuple[str, Iterable[Any]]]]
"""The records of a batch by source: pairs of a partition's name and records of this partition, in the source's
order."""


@contextmanager
def _without_garbage_collection() -> Iterator[None]:
    """Disable garbage collection during a batch, since all objects of a batch live until the batch ends. With
    100,000 keys, garbage collection would take a quarter of the batch's time.
    """
    collects = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collects:
            gc.enable()


class BatchResult(NamedTuple):
    """The result of a batch."""

    counts: Counts
    outputs: dict[str, list[Any]]
    """The encoded values, by port."""
    processed: ProcessedGroup
    evaluation: Evaluation
    samples: Samples
    newest: Newest
    """The newest event times in the batch, by source and partition."""
    letters: list[Any]
    """Encoded dead letters for records that could not be keyed."""
    letter_count: LetterCount
    """Counts of callback calls and failures after the batch."""
    references: Mapping[str, ReferenceTable]
    """The references in the batch, by name."""
    stage_seconds: dict[str, float]
    callback_seconds: dict[str, float]
    callback_calls: dict[str, int]


class Embedded:
    """Processes batches of a job with one handler in this process.

    :param job: a job without unresolved parameters
    """

    def __init__(self, job: Job) -> None:
        self.state: GroupState = EmbeddedState()
        self.references = new_tables(job)
        self.letters = LetterCount()
        handler = handler_for(job)
        if handler is not job.handler:
            job = attrs.evolve(job, handler=handler)
        self._job = job
        self._operator = self.operator_of(job)
        self._keying = {source: self.keying_of(job, source) for source in job.sources}
        self._tables = {name: TableReader(name, of, self._keying[name]) for name, of in job.table_sources.items()}
        self._read: list[TableRead] = []
        """The tables that were read before the batch that comes next."""
        self._operator.open()

    def operator_of(self, job: Job) -> Operator:
        """Return the operator for a job. Test runs override this method."""
        return Operator(job)

    def keying_of(self, job: Job, source: str) -> Keying:
        """Return the `Keying` for a source. Test runs override this method."""
        return Keying(job, source, key_event_of(job, source), 1)

    def begin(self, run: str) -> None:
        """Start a new run. The in-memory state of the previous run is lost."""
        self._operator.run = run
        self.state.begin(run)

    @_without_garbage_collection()
    def process(
        self,
        records: BatchRecords,
        watermark: int | None,
        now: int,
        number: int = 0,
        dependency_state: bytes | None = None,
        before_end: BeforeEnd | None = None,
    ) -> "BatchResult":
        """Process one batch. The state changes only when the result is passed to `store`.

        :param records: the batch's records
        :param watermark: the batch's watermark in microseconds; `None` before the job's first watermark
        :param now: the clock time in microseconds
        :param number: the batch's number
        :param dependency_state: the `Decision.state` of the previous batch
        :param before_end: see `Watermark.before_end`
        :raises CallbackError: a callback failed
        :raises TooManyDeadLettersError: more calls failed than `max_dead_letters` allows
        :raises TooManyHeldError: more events are held than `DependsOn` allows
        """
        chunks, updates, letters = list[Chunk](), list[Chunk](), list[Any]()
        counts: list[Counts] = []
        newest: Newest = {}
        oldest: dict[str, int] = {}
        stages = {"keying": 0.0, "processing": 0.0}
        self._operator.take_failures()  # discards those of a batch that was not completed
        self._operator.samples.take()
        failures: list[Failures] = []
        samples = Samples()
        tables, self._read = self._read, []
        for read in tables:
            letters += read.letters
            failures.append(read.failures)
            samples.merge(read.samples)
        for source in self._keying:
            for order, (partition, stretch) in enumerate(records.get(source, ())):
                packed, count, seconds = self._packed(source, stretch, now)
                failures.append(self._keying[source].take_failures())
                samples.merge(self._keying[source].samples.take())
                if count:
                    counts.append(Counts(records={source: count}, vectorized_fallbacks=packed.fallbacks))
                stages["keying"] += seconds
                letters += packed.letters
                place = FED if source in self._job.fed_sources else order.to_bytes(8, "big")
                of_source = updates if source in self._job.reference_sources else chunks
                of_source += [Chunk(source, place, events) for events in packed.events.values()]
                if packed.newest is not None:
                    of = newest.setdefault(source, {})
                    of[partition] = max(packed.newest, of.get(partition, packed.newest))
                if packed.oldest is not None:
                    oldest[source] = min(packed.oldest, oldest.get(source, packed.oldest))
        began = perf_counter()
        references = with_updates(self._job, self.references, updates)
        self._operator.begin(references)
        self._operator.before_end, self._operator.lookups.now = before_end, now
        evaluation = self._operator.evaluate(dependency_state, newest_of(newest), oldest, number, watermark)
        decision = evaluation.decision
        given = GroupBatch(self.state.stored(), chunks, watermark, decision.limits)
        self._operator.fetch([given])
        processed = self._operator.process(given._replace(stored=self.state.stored()))
        check_held(self._job, processed.held, decision.down)
        stages["processing"] = perf_counter() - began
        lookups = self._operator.lookups
        total = Counts.total([*counts, processed.counts, Counts(counters=lookups.take_counters())])
        keyed = {"key_event": sum(total.records.values())} if total.records else {}
        calls = sum_counts(
            (keyed, *(read.calls for read in tables), evaluation.calls, lookups.take_calls(), processed.calls)
        )
        samples.merge(self._operator.samples.take())
        failed = all_failures((*failures, self._operator.take_failures()))
        watches = (*(keying.stopwatch for keying in self._keying.values()), self._operator.stopwatch)
        seconds_by_callback = sum_counts(watch.take() for watch in watches)
        outputs = together(({DEAD_LETTERS: letters} if letters else {}, evaluation.outputs, processed.outputs))
        written = {port: len(values) for port, values in outputs.items() if port in self._job.sinks}
        return BatchResult(
            attrs.evolve(total, outputs=written),
            outputs,
            processed,
            evaluation,
            samples,
            newest,
            letters,
            self.letters.then(self._job, calls, failed),
            references,
            stages,
            seconds_by_callback,
            calls,
        )

    def read_tables(self, now: int) -> None:
        """Read the tables that are sources of references.

        :raises SourceError: a table cannot be read
        :raises CallbackError: `key_event` failed on a row
        """
        for source, table in self._tables.items():
            name = self._job.reference_sources[source].name
            read = table.read(self.references[name], now)
            self._read.append(read)
            self.references[name] = read.table
            if not notifies_keys(self._job):
                read.table.merge()

    def store(self, result: BatchResult) -> BatchResult:
        """Store the state after a batch. Return the result with the counts of the state."""
        written = self.state.take(result.processed)
        self.letters = result.letter_count
        self.references |= result.references
        for table in result.references.values():
            table.merge()
        counts = attrs.evolve(
            result.counts,
            state_bytes_written=written,
            state_entries=self.state.entries,
            state_bytes=self.state.size,
        )
        return result._replace(counts=counts)

    def _packed(self, source: str, records: Iterable[Any], now: int) -> tuple[KeyedRecords, int, float]:
        """Return a source's keyed records, the number of records, and the seconds that keying took."""
        read = list(records)
        began = perf_counter()
        return self._keying[source].pack(read, now), len(read), perf_counter() - began

    def close(self) -> None:
        """Call the handler's `close`."""
        self._operator.close()
