"""`TestRun`: runs a job's script in milliseconds."""

import sys
import uuid
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime, timedelta
from itertools import count
from types import MappingProxyType
from typing import Any, Literal, TypeAlias

import attrs

from amadou import Codec, Component, DeadLetter, Handler, Job, Key, KeyedEvent, MemorySink, SinkBatch, SinkSpec, Subject
from amadou.engine import DEAD_LETTERS, LATE_EVENTS, check_key, clock_time, declared_specs, pack, sum_counts, unpack
from amadou.errors import AmadouError, CheckpointError
from amadou.event_time import END_OF_TIME, MICROSECOND, from_micros, to_micros
from amadou.text import shown_value
from amadou_runtime.core.dead_letter_limit import LetterCount
from amadou_runtime.core.key_group import KeyGroup
from amadou_runtime.core.ports import port_codec
from amadou_runtime.core.returned_sources import check_returned
from amadou_runtime.core.state_schema import Known, described, state_problem, with_structures
from amadou_runtime.core.watermark import Watermark
from amadou_runtime.testing.players import BothPlayer, EmbeddedPlayer, Player, ScriptedBatch, next_run
from amadou_runtime.testing.scripted import ScriptedEvent
from amadou_runtime.testing.test_result import TestResult, named_spec, subject_of
from amadou_runtime.testing.trace import RawEntry

Records: TypeAlias = dict[str, dict[str, list[Any]]]
"""A batch's records by source and partition."""
ENGINES = ("embedded", "spark", "both")


@attrs.define
class Defaults:
    """Settings of the pytest plugin for all test runs.

    :param engine: engine of the runs that do not name one
    :param made: list that each run is added to when it begins to process
    """

    engine: str = "embedded"
    made: list["TestRun"] | None = None


defaults = Defaults()
_numbers = count()
_SNAPSHOT = 4
"""The version of snapshots."""


class TestRun:
    """Processes records with a job and shows the results, on the embedded engine or on Spark.

    A script is a sequence of batches. Records go into the current batch; `add_watermark`, `end_batch` and
    `advance_processing_time` end it. In each batch timers fire up to its watermark, then its events are processed
    (`semantics.md` 2–7). Only `advance_processing_time` moves the clock. A test run does not touch the job's sources,
    sinks and handler: it uses a copy of the handler, as a worker does, and only a `MemorySink` gets the collected
    values.

    Where a run processes a handler by columns (`windowed`), a test run processes it both by columns and event by event.
    A difference raises a `VectorizedPathError`.

    ::

        run = TestRun(job)
        run.add_record(b'{"channel_id": "a", "timestamp": "2025-01-01T00:01:00Z"}')
        run.add_watermark()
        assert run.run().records("sums") == [...]

    :param job: the job
    :param engine: `"embedded"` needs no Java and takes milliseconds; `"spark"` processes the same script on real Spark;
        `"both"` processes it on each and fails where they differ. The default is pytest's option `--amadou-engine`,
        else embedded
    :param handler: a handler, or its class, that replaces the job's handler, such as a fake
    :param params: values of the job's parameters by name; parameters that only sources and sinks use need none
    :param spark: the session for `engine="spark"`; without it a local session is created or re-used
    :param processing_time: the clock's time at the beginning, an aware datetime; without it the time now
    :param snapshot: the `snapshot` of another run, also of an older release of the handler: the run continues there
    :raises ParamError: a parameter has no value
    :raises CheckpointError: the snapshot does not fit the job, by the rules for a run's checkpoint
    """

    __test__ = False  # not a test class for pytest

    def __init__(
        self,
        job: Job,
        *,
        engine: Literal["embedded", "spark", "both"] | None = None,
        handler: Handler | type[Handler] | None = None,
        params: Mapping[str, str] = MappingProxyType({}),
        spark: Any = None,
        processing_time: datetime | None = None,
        snapshot: bytes | None = None,
    ) -> None:
        if engine not in (None, *ENGINES):
            raise ValueError(f'the engine is "embedded", "spark" or "both", not {engine!r}')
        if not isinstance(job, Job):
            raise TypeError(f"a test run processes a Job, not {shown_value(job)}")
        self._codecs: dict[str, Codec[Any]] = {}
        self._original = job
        self._params = params
        self._next = _for_test(job, handler, params)
        """The job after the restarts of the script so far."""
        self._take(self._next)
        self._known = self._current = self._stored = with_structures({}, described(self._job))
        """Structures of the state that the script will store, that the current code stores, and that is stored."""
        self.engine = engine or defaults.engine
        """The engine that runs the script."""
        self._spark = spark
        self._script: list[tuple[Records, Callable[[], None], int | None]] = []
        self._batch: Records = {}
        self._at_boundary = False
        self._watermark = Watermark(self._job)
        self._now = clock_time()
        self._player: Player | None = None
        self._raw: list[RawEntry] = []
        self._counts: dict[str, int] = {}
        self._dropped = 0
        self._failed: list[RawEntry] = []
        self._state: bytes | None = None
        self._placed: bytes | None = None
        self._dependency_state: bytes | None = None
        self._letters = LetterCount()
        self._read: set[str] = set()
        self._last_sources: list[str] = []
        if snapshot is not None:
            self._resume(snapshot)
        if processing_time is not None:
            self._now = to_micros(processing_time)
        self._run = f"{uuid.uuid4().hex}/0"
        """The name of the current run."""
        self._played = 0
        self._batches = 0
        self._number = next(_numbers)
        self._memory_sinks = [(port, sink) for port, sink in job.all_sinks if isinstance(sink, MemorySink)]

    def add_record(self, record: Any, source: str | None = None, *, partition: str = "") -> "TestRun":
        """Add a record, which goes through `key_event`.

        :param source: the record's source; needed if the job has several
        :param partition: the record's partition, under any name; a source's watermark is that of its partition
            furthest behind (`semantics.md` 2)
        """
        self._to_batch(source, partition, record)
        return self

    def add_records(self, records: Iterable[Any], source: str | None = None, *, partition: str = "") -> "TestRun":
        """Add records in their order."""
        if isinstance(records, str | bytes):
            raise TypeError(f"add_records takes several records, and add_record one, such as {shown_value(records)}")
        for record in records:
            self._to_batch(source, partition, record)
        return self

    def add_event(self, event: KeyedEvent[Any], source: str | None = None, *, partition: str = "") -> "TestRun":
        """Add an event, which does not go through `key_event`."""
        self._to_batch(source, partition, ScriptedEvent(event))
        return self

    def add_watermark(
        self, timestamp: datetime | None = None, source: str | None = None, *, partition: str | None = None
    ) -> "TestRun":
        """End the batch and raise the watermark to a time, whatever the job's delay. The watermark never goes back.

        :param timestamp: an aware datetime; without it the newest event time so far
        :param source: the source that has reached this time; the watermark is that of the source furthest behind
            (`semantics.md` 2)
        :param partition: the partition that has reached this time; without it all of the source's partitions
        :raises NaiveTimestampError: the timestamp has no zone
        """
        micros = None if timestamp is None else to_micros(timestamp)
        if source is not None or partition is not None:
            source = self._named_source(source)

        def reach() -> None:
            if source is not None:
                self._watermark.bring(source, partition, micros, self._now)
                return
            target = self._watermark.newest if micros is None else micros
            if target is not None:
                self._watermark.raise_to(target)

        return self._end_batch(reach)

    def end_batch(self) -> "TestRun":
        """End the batch: the watermark follows the newest event, less the job's delay, as it does in a real run."""
        return self._end_batch(lambda: None)

    def advance_processing_time(self, by: timedelta) -> "TestRun":
        """End the batch and advance the clock, for jobs with an `idle_timeout` (`semantics.md` 3).

        :param by: duration, not below zero
        """
        if not isinstance(by, timedelta):
            raise TypeError(f"time goes on by a timedelta, not by {by!r}")
        if by < timedelta(0):
            raise ValueError(f"time does not go back: {by}")

        def advance() -> None:
            self._now += by // MICROSECOND

        return self._end_batch(advance)

    def restart(self, handler: Handler | type[Handler] | None = None) -> "TestRun":
        """End the batch and the run, and begin again from the stored state.

        :param handler: another handler, or its class, that takes the state over: an upgrade. Without it the job's
            handler, as in a new process
        :raises CheckpointError: the handler cannot take the state over, by the rules for a run
        """
        job = self._next if handler is None else _for_test(self._original, handler, self._params)
        self._take_over("of the test run", job, self._known)
        self._next, known = job, self._known

        def restart() -> None:
            assert self._player is not None
            self._player.restart(job)
            self._take(job)
            self._current = known
            self._run = next_run(self._run)

        return self._end_batch(restart)

    def crash(self, after: int | None = None) -> "TestRun":
        """End the batch, which a crash interrupts and which is then processed again.

        :param after: number of callbacks before the crash; without it, or in a batch with fewer, the crash comes at the
            end of the batch. `key_event` does not count
        """
        return self._end_batch(lambda: None, crash_after=sys.maxsize if after is None else after)

    def set_state(
        self, spec: Any, key: Key, value: Any, *, written: datetime | None = None, next_timer: datetime | None = None
    ) -> "TestRun":
        """End the batch, if there is one, and set a subject's state.

        :param spec: the spec (`MyHandler.counts`) or its name
        :param key: the subject's key
        :param value: the value of a `ValueSpec`, a mapping for a `MapSpec`, a list for a `ListSpec`; for a component,
            such as a window, its stored state
        :param written: time at which the state counts as written, needed for a spec with a `ttl`
        :param next_timer: time of the component's timer
        :raises EncodeError: the value does not fit the spec
        """
        spec = named_spec(self._job, spec)
        if spec.ttl is not None and written is None:
            raise ValueError(f"{spec.name} has a ttl: say written=, the time at which it counts as written")

        def put(subject: Subject) -> None:
            subject.timestamp = from_micros(0) if written is None else written
            if isinstance(spec, Component):
                spec.state_for(subject).store(value, None if next_timer is None else to_micros(next_timer))
            else:
                spec.assign(subject, value)

        return self._put(key, put)

    def set_timer(self, key: Key, timestamp: datetime, tag: str = "") -> "TestRun":
        """End the batch, if there is one, and set a timer.

        :raises NaiveTimestampError: the timestamp has no zone
        """
        return self._put(key, lambda subject: subject.set_timer(timestamp, tag))

    def run(self, *, flush: bool = False) -> "TestResult":
        """Process the part of the script that was added since the last call, and return all results so far.

        :param flush: at the end raise the watermark to the end of time, so that every timer fires (`semantics.md` 12)
        :raises CallbackError: a callback of the handler failed; its batch does not count
        :raises EngineDifferenceError: with `engine="both"`, the engines differ
        :raises VectorizedPathError: processing by columns and event by event differ
        """
        player = self._player = self._player or self._new_player()
        while self._script:
            records, boundary, crash_after = self._script.pop(0)
            self._process(player, records, crash_after)
            boundary()
        if self._batch or self._at_boundary:
            batch, self._batch = self._batch, {}
            self._at_boundary = False
            self._process(player, batch)
        if flush:
            self._watermark.raise_to(END_OF_TIME)
            self._process(player, {})
        watermark = self._watermark.follow(self._now)
        before, self._played = self._played, len(self._raw)
        counted = self._counts, self._dropped
        return TestResult(self._job, self._codecs, self._raw, self._state, watermark, *counted, new_from=before)

    def snapshot(self) -> bytes:
        """Return state, timers, watermark, clock and the number of dead letters after the processed batches, for
        `TestRun(snapshot=…)`.

        Several runs may continue from one snapshot. A stored snapshot of an older release of a handler shows whether
        the next release can take its state over.
        """
        return pack(
            [
                _SNAPSHOT,
                self._state,
                self._watermark.to_json(),
                self._now,
                self._dependency_state,
                attrs.asdict(self._letters),
                sorted(self._read),
                self._last_sources,
                self._job.name,
                self._known,
            ]
        )

    def trace_text(self, lines: int | None = None) -> str:
        """Return the callbacks so far as text, including those of a failed batch.

        :param lines: number of the last lines to return; without it all of them
        """
        result = TestResult(self._job, self._codecs, self._raw + self._failed, self._state, None, {})
        shown = "\n".join(map(str, result.trace)).splitlines()
        cut = [] if lines is None or len(shown) <= lines else [f"… {len(shown) - lines} lines before"]
        return "\n".join([*cut, *shown[-(lines or 0) :]]) or "no callback ran"

    def close(self) -> None:
        """End the engine, which calls the handler's `close`; the pytest plugin does so after each test. A later `run`
        continues from the stored state, as after a restart. `with TestRun(job) as run:` closes at the end of the
        block: Hypothesis tests, which make many runs, need this.
        """
        if self._player is not None:
            player, self._player = self._player, None
            self._placed = self._state or b""
            player.close()

    def __enter__(self) -> "TestRun":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _to_batch(self, source: str | None, partition: str, record: Any) -> None:
        if not isinstance(partition, str):
            raise TypeError(f"a partition is named by a str, not {partition!r}")
        self._batch.setdefault(self._named_source(source), {}).setdefault(partition, []).append(record)

    def _named_source(self, source: str | None) -> str:
        """Return a source's name: without one that of the job's only source."""
        names = list(self._job.sources)
        if source is None and len(names) > 1:
            raise ValueError(f"the job has several sources: say source= ({', '.join(names)})")
        if source is not None and source not in names:
            raise ValueError(f"the job has no source {source!r} (its sources: {', '.join(names)})")
        return source or names[0]

    def _put(self, key: Key, put: Callable[[Subject], Any]) -> "TestRun":
        check_key(key)
        _with(None, key, put)  # raises errors of the value here, not in the batch

        def place() -> None:
            self._state = _with(self._state, key, put)
            self._placed = self._state or b""

        if self._script or self._batch:
            return self._end_batch(place)
        place()
        return self

    def _end_batch(self, boundary: Callable[[], None], crash_after: int | None = None) -> "TestRun":
        self._script.append((self._batch, boundary, crash_after))
        self._batch = {}
        self._at_boundary = True
        return self

    def _resume(self, snapshot: bytes) -> None:
        try:
            version, *rest = unpack(snapshot)
            if version != _SNAPSHOT:
                raise ValueError(f"it is of version {version}, this release reads {_SNAPSHOT}")
            self._state, watermark, self._now, self._dependency_state, letters, *others = rest
            read, self._last_sources, name, known = others
            self._watermark.load(watermark)
            self._letters, self._read = LetterCount(**letters), set(read)
        except (ValueError, TypeError, KeyError) as error:
            raise ValueError(f"that is no snapshot of a test run: {error}") from error
        if name != self._job.name:
            raise CheckpointError("of the snapshot", f"it belongs to the job {name!r}, not to {self._job.name!r}")
        self._take_over("of the snapshot", self._job, known)
        check_returned("of the snapshot", self._job.sources, self._read, self._last_sources)
        self._current, self._stored = self._known, known
        self._placed = self._state

    def _take_over(self, of: str, job: Job, known: Known) -> None:
        """Let a job take state over, by the rules for a run.

        :param of: owner of the state
        :param known: structures that the specs have had
        :raises CheckpointError: the job cannot read the state
        """
        now = described(job)
        problem = state_problem(job, known, now)
        if problem is not None:
            raise CheckpointError(of, problem)
        self._known = with_structures(known, now)

    def _take(self, job: Job) -> None:
        """Continue with a job."""
        self._job = job
        self._codecs |= {port: port_codec(job, port) for port in job.ports}

    def _process(self, player: Player, records: Records, crash_after: int | None = None) -> None:
        batch = ScriptedBatch(
            self._run,
            records,
            self._watermark.follow(self._now),
            self._now,
            crash_after,
            self._placed,
            self._batches,
            self._dependency_state,
            self._letters,
        )
        self._failed = []
        try:
            result = player.process(batch)
        except AmadouError:
            self._failed = player.failed()
            self._known = self._stored  # code whose first batch fails leaves the state to the code before it
            raise
        self._placed = None
        self._stored = self._current
        self._counts = sum_counts((self._counts, result.counts))
        self._dropped += result.dropped
        self._watermark.observe(result.newest, self._now)
        self._watermark.hold(result.held)
        self._dependency_state = result.dependency_state
        self._letters = result.letter_count
        self._read |= {source for source, by_partition in records.items() if any(by_partition.values())}
        self._last_sources = list(self._job.sources)
        trace = [self._undeliverable(encoded) for encoded in result.letters] + result.trace
        self._raw += trace
        self._state = result.state
        for port, sink in self._memory_sinks:
            if port not in self._codecs:  # a port of the replaced handler
                continue
            into = SinkBatch(f"test-{self._number}", self._job.name, port, self._batches, self._codecs[port])
            sink.commit(into, [[encoded for entry in trace for name, encoded in entry.outputs if name == port]])
        self._batches += 1
        if crash_after is not None:
            self._run = next_run(self._run)

    def _undeliverable(self, encoded: Any) -> RawEntry:
        """Return the trace entry of a record that could not be keyed."""
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

    def _new_player(self) -> Player:
        if defaults.made is not None and self not in defaults.made:
            defaults.made.append(self)
        if self.engine == "embedded":
            return EmbeddedPlayer(self._job)
        from amadou_runtime.testing.spark_player import SparkPlayer

        spark = SparkPlayer(self._job, self._spark)
        return spark if self.engine == "spark" else BothPlayer(EmbeddedPlayer(self._job), spark)


def _with(state: bytes | None, key: Key, put: Callable[[Subject], Any]) -> bytes | None:
    """Return a key group's state after a change by `put`."""
    group = KeyGroup(state)
    put(subject_of(group, key))
    for table in group.tables.values():
        table.store()
    return group.pack()


def _for_test(job: Job, handler: Handler | type[Handler] | None, params: Mapping[str, str]) -> Job:
    """Return the job as a test run processes it.

    :param handler: replacement for the job's handler; the state that it declares is not retired yet
    """
    known = {param.name for param in job.params}
    if handler is not None:
        handler = handler() if isinstance(handler, type) else handler
        declared = declared_specs(handler).values()
        ports = [spec.name for spec in declared if isinstance(spec, SinkSpec)]
        retired = {name: fate for name, fate in job.retired.items() if name not in {spec.name for spec in declared}}
        own = [port for port in job.sinks if port in (DEAD_LETTERS, LATE_EVENTS)]
        sinks = {port: MemorySink() for port in (*ports, *own)}
        job = attrs.evolve(job, handler=handler, sinks=sinks, retired=retired)
    taken = {param.name for param in job.params}
    given = {name: text for name, text in params.items() if name in taken or name not in known}
    job = job.with_params(given, connectors=False)
    return attrs.evolve(job, sinks={port: MemorySink() for port in job.ports})
