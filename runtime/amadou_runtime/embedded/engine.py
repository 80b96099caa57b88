"""The embedded engine, which runs a job in one process, with one key group and without Java."""

import gc
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from time import perf_counter
from typing import Any, NamedTuple, TypeAlias

import attrs

from amadou import Job
from amadou.engine import DEAD_LETTERS, BeforeEnd
from amadou_runtime.core.batch_driver import BatchDriver, BatchInput
from amadou_runtime.core.dead_letter_limit import LetterCount
from amadou_runtime.core.dependencies import Decision, Held, check_held
from amadou_runtime.core.events import FED, Chunk
from amadou_runtime.core.keying import Keying, key_event_of
from amadou_runtime.core.operator import Operator
from amadou_runtime.core.references import ReferenceTable, new_tables, notifies_keys, with_updates
from amadou_runtime.core.table_reader import TableRead, TableReader
from amadou_runtime.core.tally import BatchTally
from amadou_runtime.core.vectorized import handler_for
from amadou_runtime.core.watermark import newest_of
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

    tally: BatchTally
    decision: Decision
    held: Held
    letters: list[Any]
    """Encoded dead letters for records that could not be keyed."""
    letter_count: LetterCount
    """Counts of callback calls and failures after the batch."""
    references: Mapping[str, ReferenceTable]
    """The references in the batch, by name."""


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
        tables, self._read = self._read, []
        tally = BatchTally(stage_seconds={"keying": 0.0})
        for read in tables:
            tally.merge(read.tally)
        chunks, updates = list[tuple[int, Chunk]](), list[Chunk]()
        for source in self._keying:
            for order, (partition, stretch) in enumerate(records.get(source, ())):
                events, of_stretch = self._keyed(source, partition, list(stretch), now)
                tally.merge(of_stretch)
                place = FED if source in self._job.fed_sources else order.to_bytes(8, "big")
                found = [Chunk(source, place, packed) for packed in events.values()]
                if source in self._job.reference_sources:
                    updates += found
                else:
                    chunks += [(0, chunk) for chunk in found]
        letters = tally.outputs.get(DEAD_LETTERS, [])
        began = perf_counter()
        references = with_updates(self._job, self.references, updates)
        driver = BatchDriver(self._operator, self.state.load(self._operator.run))
        of_group, decision, held = driver.process(
            BatchInput(
                chunks,
                watermark,
                now,
                number,
                references,
                newest=newest_of(tally.newest),
                oldest=tally.oldest,
                dependency_state=dependency_state,
                before_end=before_end,
            )
        )
        check_held(self._job, held, decision.down)
        tally.merge(of_group)
        tally.stage_seconds["processing"] = perf_counter() - began
        written = {port: len(values) for port, values in tally.outputs.items() if port in self._job.sinks}
        tally.counts = attrs.evolve(tally.counts, outputs=written)
        count = self.letters.then(self._job, tally.callback_calls, tally.failures)
        return BatchResult(tally, decision, held, letters, count, references)

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

    def store(self, result: BatchResult) -> None:
        """Store the state after a batch, and add its counts to the result."""
        stored = self.state.store()
        self.letters = result.letter_count
        self.references |= result.references
        for table in result.references.values():
            table.merge()
        result.tally.counts = attrs.evolve(
            result.tally.counts,
            state_bytes_written=stored.counts.state_bytes_written,
            state_entries=stored.status.entries,
            state_bytes=stored.status.state_bytes,
        )

    def _keyed(
        self, source: str, partition: str, records: list[Any], now: int
    ) -> tuple[Mapping[int, bytes], BatchTally]:
        """Return the packed events of a source's records, and what keying them did."""
        keying, began = self._keying[source], perf_counter()
        keyed = keying.pack(records, now)
        return keyed.events, keying.tally(keyed, len(records), partition, perf_counter() - began)

    def close(self) -> None:
        """Call the handler's `close`."""
        self._operator.close()
