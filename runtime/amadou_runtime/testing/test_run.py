"""`TestRun`: runs a job on scripted records in milliseconds."""

import sys
import uuid
from collections.abc import Callable, Iterable, Mapping
from copy import copy
from datetime import datetime, timedelta
from itertools import count
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal, TypeAlias

import attrs

from amadou import (
    Codec,
    Component,
    DeadLetter,
    Handler,
    Job,
    Key,
    KeyedEvent,
    Lookup,
    MemorySink,
    SinkBatch,
    SinkSpec,
    Subject,
)
from amadou.engine import DEAD_LETTERS, LATE_EVENTS, check_key, clock_time, declared_specs, pack, sum_counts, unpack
from amadou.errors import AmadouError, CheckpointError
from amadou.event_time import END_OF_TIME, MICROSECOND, from_micros, to_micros
from amadou.text import shown_value
from amadou_runtime.core.dead_letter_limit import LetterCount
from amadou_runtime.core.key_group import KeyGroup
from amadou_runtime.core.packed_group import PackedGroup, packed_group
from amadou_runtime.core.ports import port_codec
from amadou_runtime.core.returned_sources import check_returned
from amadou_runtime.core.state_schema import Known, described, state_problem, with_structures
from amadou_runtime.core.watermark import Watermark
from amadou_runtime.savepoint.fitting import check_fits
from amadou_runtime.savepoint.savepoint import (
    TEST_RUN,
    SavedProgress,
    Savepoint,
    clock_fields,
    newest_times,
    write_savepoint,
)
from amadou_runtime.testing.engines import BothEngines, EmbeddedEngine, ScriptedBatch, ScriptEngine, next_run
from amadou_runtime.testing.scripted import ScriptedEvent
from amadou_runtime.testing.test_result import TestResult, named_spec, subject_of
from amadou_runtime.testing.trace import RawEntry

Records: TypeAlias = dict[str, dict[str, list[Any]]]
"""A batch's records by source and partition."""
ENGINES = ("embedded", "spark", "both")


@attrs.define
class Defaults:
    """Settings of the pytest plugin for all test runs.

    :param engine: engine for test runs that do not set one
    :param made: test runs of the current test; a test run is added when its engine starts. `None` outside of tests
    """

    engine: str = "embedded"
    made: list["TestRun"] | None = None


defaults = Defaults()
_numbers = count()
_SNAPSHOT = 4
"""Version of the snapshot format."""


class TestRun:
    """Runs a job on scripted records, on the embedded engine or on Spark, and returns the results.

    A script is a sequence of batches. `add_record` and `add_event` add to the current batch. Methods such as
    `add_watermark`, `end_batch` and `advance_processing_time` end this batch. Each batch first fires the timers up to
    its watermark, and then processes its events (`semantics.md` 2–7). Only `advance_processing_time` advances the
    processing-time clock.

    A test run uses a copy of the handler, as a worker does. A test run does not read from the job's sources, and does
    not write to the job's sinks. The only exception is `MemorySink`, which receives the collected values.

    If a real run would use a vectorised path, as `windowed` does, a test run processes the events on both the
    vectorised and the per-event path. If the results differ, the test run raises a `VectorizedPathError`.

    ::

        run = TestRun(job)
        run.add_record(b'{"channel_id": "a", "timestamp": "2025-01-01T00:01:00Z"}')
        run.add_watermark()
        assert run.run().records("sums") == [...]

    :param job: the job
    :param engine: `"embedded"` does not need Java and takes milliseconds; `"spark"` runs the script on real Spark;
        `"both"` runs the script on both engines and fails if the results differ. The default is the pytest option
        `--amadou-engine`, or `"embedded"` if the option is not set
    :param handler: handler or handler class that replaces the job's handler, for example a fake
    :param params: values of the job's parameters, by name; parameters that only sources and sinks use can be omitted
    :param lookups: the answers of lookups, by the lookup's name: a mapping that takes the place of the service. An
        answer can be an exception. Other lookups ask their service
    :param spark: session for the Spark engine; by default a local session is created or reused
    :param processing_time: initial processing time, as an aware datetime; by default the snapshot's processing time, or
        the current time if there is no snapshot
    :param snapshot: result of another test run's `snapshot`, to continue from. That test run may have used an older
        release of the handler
    :param savepoint: directory of a savepoint to continue from, for example of a job in production
    :param keys: the keys whose state is loaded from the savepoint; by default, all of its state, which must then fit
        into memory
    :raises ParamError: a parameter has no value
    :raises CheckpointError: the job cannot resume from the snapshot; the same rules apply as for checkpoints
    :raises SavepointError: the job cannot start from the savepoint, or the savepoint cannot be read
    """

    __test__ = False  # not a test class for pytest

    def __init__(
        self,
        job: Job,
        *,
        engine: Literal["embedded", "spark", "both"] | None = None,
        handler: Handler | type[Handler] | None = None,
        params: Mapping[str, str] = MappingProxyType({}),
        lookups: Mapping[str, Mapping[Any, Any]] = MappingProxyType({}),
        spark: Any = None,
        processing_time: datetime | None = None,
        snapshot: bytes | None = None,
        savepoint: str | Path | None = None,
        keys: Iterable[Key] | None = None,
    ) -> None:
        if engine not in (None, *ENGINES):
            raise ValueError(f'the engine must be "embedded", "spark" or "both", not {engine!r}')
        if not isinstance(job, Job):
            raise TypeError(f"a TestRun takes a Job, not {shown_value(job)}")
        if snapshot is not None and savepoint is not None:
            raise ValueError("snapshot and savepoint are mutually exclusive: pass only one of them")
        self._codecs: dict[str, Codec[Any]] = {}
        self._original = job
        self._params = params
        self._lookups = lookups
        self._next = _for_test(job, handler, params, lookups)
        """The job after the last restart in the script."""
        self._take(self._next)
        self._known = self._current = self._stored = with_structures({}, described(self._job))
        """State structures at the end of the script, in the current code, and in the stored state."""
        self.engine = engine or defaults.engine
        """The engine that runs the script."""
        self._spark = spark
        self._script: list[tuple[Records, Callable[[], None], int | None]] = []
        self._batch: Records = {}
        self._at_boundary = False
        self._watermark = Watermark(self._job)
        self._now = clock_time()
        self._running: ScriptEngine | None = None
        self._raw: list[RawEntry] = []
        self._counts: dict[str, int] = {}
        self._dropped = 0
        self._failed: list[RawEntry] = []
        self._state: bytes | None = None
        """The state after the last batch as one value, unless `_is_in_engine`."""
        self._is_in_engine = False
        self._placed: bytes | None = None
        self._dependency_state: bytes | None = None
        self._letters = LetterCount()
        self._read: set[str] = set()
        self._last_sources: list[str] = []
        if snapshot is not None:
            self._resume(snapshot)
        if savepoint is not None:
            self._start_from(Savepoint(savepoint), keys)
        if processing_time is not None:
            self._now = to_micros(processing_time)
        self._run = f"{uuid.uuid4().hex}/0"
        """The name of the current run."""
        self._returned = 0
        self._batches = 0
        self._number = next(_numbers)
        self._memory_sinks = [(port, sink) for port, sink in job.all_sinks if isinstance(sink, MemorySink)]

    def add_record(self, record: Any, source: str | None = None, *, partition: str = "") -> "TestRun":
        """Add a record. `run` passes the record to `key_event`.

        :param source: the record's source; required if the job has multiple sources
        :param partition: any name for the record's partition; a source's watermark is the minimum of the watermarks of
            its partitions (`semantics.md` 2)
        """
        self._to_batch(source, partition, record)
        return self

    def add_records(self, records: Iterable[Any], source: str | None = None, *, partition: str = "") -> "TestRun":
        """Add records in order."""
        if isinstance(records, str | bytes):
            raise TypeError(f"add_records takes an iterable of records, not {shown_value(records)}: use add_record")
        for record in records:
            self._to_batch(source, partition, record)
        return self

    def add_event(self, event: KeyedEvent[Any], source: str | None = None, *, partition: str = "") -> "TestRun":
        """Add an event directly, without calling `key_event`."""
        self._to_batch(source, partition, ScriptedEvent(event))
        return self

    def add_watermark(
        self, timestamp: datetime | None = None, source: str | None = None, *, partition: str | None = None
    ) -> "TestRun":
        """End the batch and advance the watermark to a time, regardless of the job's watermark delay. The watermark
        never moves backwards.

        :param timestamp: an aware datetime; by default the newest event time in this batch and all earlier batches
        :param source: the source that has reached this time; the job's watermark is the minimum of the watermarks
            of its sources (`semantics.md` 2)
        :param partition: the partition that has reached this time; by default all partitions of the source
        :raises NaiveTimestampError: the timestamp has no time zone
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
        """End the batch. As in a real run, the watermark follows the newest event time minus the `watermark_delay`."""
        return self._end_batch(lambda: None)

    def advance_processing_time(self, by: timedelta) -> "TestRun":
        """End the batch and advance the processing-time clock, for jobs with an `idle_timeout` (`semantics.md` 3).

        :param by: a non-negative duration
        """
        if not isinstance(by, timedelta):
            raise TypeError(f"advance_processing_time takes a timedelta, not {by!r}")
        if by < timedelta(0):
            raise ValueError(f"advance_processing_time takes a non-negative duration, not {by}")

        def advance() -> None:
            self._now += by // MICROSECOND

        return self._end_batch(advance)

    def restart(self, handler: Handler | type[Handler] | None = None) -> "TestRun":
        """End the batch and the run, and start a new run from the stored state.

        :param handler: handler or handler class that resumes from the state, as in an upgrade; by default a new copy of
            the current handler, as in a new process
        :raises CheckpointError: the handler cannot resume from the state; the same rules apply as for checkpoints
        """
        job = self._next if handler is None else _for_test(self._original, handler, self._params, self._lookups)
        self._take_over("of the test run", job, self._known)
        self._next, known = job, self._known

        def restart() -> None:
            assert self._running is not None
            self._running.restart(job)
            self._take(job)
            self._current = known
            self._run = next_run(self._run)

        return self._end_batch(restart)

    def crash(self, after: int | None = None) -> "TestRun":
        """End the batch, simulate a crash during the batch, and process the batch again.

        :param after: number of callbacks before the crash, not counting `key_event`; by default, or if the batch has
            fewer callbacks, the crash happens at the end of the batch
        """
        return self._end_batch(lambda: None, crash_after=sys.maxsize if after is None else after)

    def set_state(
        self, spec: Any, key: Key, value: Any, *, written: datetime | None = None, next_timer: datetime | None = None
    ) -> "TestRun":
        """End the batch, if there is one, and set a key's state.

        :param spec: the spec (`MyHandler.counts`) or its name
        :param value: the value for a `ValueSpec`, a mapping for a `MapSpec`, a list for a `ListSpec`; for a component,
            such as a window, the component's stored state
        :param written: time of the state's last write; required for a spec with a `ttl`
        :param next_timer: time of the component's next timer for this key
        :raises EncodeError: the value does not fit the spec
        """
        spec = named_spec(self._job, spec)
        if spec.ttl is not None and written is None:
            raise ValueError(f"{spec.name} has a ttl: pass written=, the time of the state's last write")

        def put(subject: Subject) -> None:
            subject.timestamp = from_micros(0) if written is None else written
            if isinstance(spec, Component):
                spec.state_for(subject).store(value, None if next_timer is None else to_micros(next_timer))
            else:
                spec.assign(subject, value)

        return self._put(key, put)

    def set_timer(self, key: Key, timestamp: datetime, tag: str = "") -> "TestRun":
        """End the batch, if there is one, and set a timer.

        :raises NaiveTimestampError: the timestamp has no time zone
        """
        return self._put(key, lambda subject: subject.set_timer(timestamp, tag))

    def run(self, *, flush: bool = False) -> "TestResult":
        """Process the batches added since the last call, and return the results of the entire test run.

        :param flush: `True` to advance the watermark to the end of time after the last batch so that every timer fires
            (`semantics.md` 12)
        :raises CallbackError: a callback of the handler failed; the results of the callback's batch are discarded
        :raises EngineDifferenceError: with `engine="both"`, the results of the two engines differ
        :raises VectorizedPathError: the results of vectorised and per-event processing differ
        """
        engine = self._running = self._running or self._new_engine()
        while self._script:
            records, boundary, crash_after = self._script.pop(0)
            self._process(engine, records, crash_after)
            boundary()
        if self._batch or self._at_boundary:
            batch, self._batch = self._batch, {}
            self._at_boundary = False
            self._process(engine, batch)
        if flush:
            self._watermark.raise_to(END_OF_TIME)
            self._process(engine, {})
        watermark = self._watermark.follow(self._now)
        before, self._returned = self._returned, len(self._raw)
        counted = self._counts, self._dropped
        return TestResult(
            self._job, self._codecs, self._raw, self._stored_state(), watermark, *counted, new_from=before
        )

    def snapshot(self) -> bytes:
        """Return a snapshot for `TestRun(snapshot=…)`: the state, timers, watermark, processing time and dead-letter
        count after the processed batches.

        Multiple test runs can continue from the same snapshot. To test that a new release of a handler can read the
        state of an older release, store a snapshot created with the older release.
        """
        return pack(
            [
                _SNAPSHOT,
                self._stored_state(),
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

    def savepoint(self, directory: str | Path) -> None:
        """Write a savepoint after the processed batches, like `amadou run --savepoint`. A test run does not read from
        sources, so no job can continue to read sources from this savepoint; another test run can start from it.

        :param directory: a new directory
        :raises SavepointError: the directory is not empty, or cannot be written
        """
        state = self._stored_state()
        sources = {name: {"newest": newest_times(self._watermark.newest_times(name))} for name in self._job.sources}
        write_savepoint(
            KeyGroup(PackedGroup(state)),
            SavedProgress(
                engine=TEST_RUN,
                job=self._job.name,
                run=f"test-{self._number}",
                batch=self._batches - 1,
                sources=sources,
                clock=clock_fields(self._watermark, self._dependency_state, self._letters),
                structures=self._known,
                ever_read=sorted(self._read),
            ),
            Path(directory),
        )

    def trace_text(self, lines: int | None = None) -> str:
        """Return the callbacks of the test run as text, including the callbacks of a failed batch.

        :param lines: maximum number of lines, counted from the end; all lines by default
        """
        result = TestResult(self._job, self._codecs, self._raw + self._failed, None, None, {})
        shown = "\n".join(map(str, result.trace)).splitlines()
        cut = [] if lines is None or len(shown) <= lines else [f"… {len(shown) - lines} earlier lines"]
        return "\n".join([*cut, *shown[-(lines or 0) :]]) or "no callback ran"

    def close(self) -> None:
        """Stop the engine and call the handler's `close`. The pytest plugin does this after each test.

        A later `run` continues from the stored state, as after a restart. `with TestRun(job) as run:` closes the test
        run at the end of the block. Use `with` in Hypothesis tests, which create many test runs.
        """
        if self._running is not None:
            self._placed = self._stored_state() or b""
            engine, self._running = self._running, None
            engine.close()

    def __enter__(self) -> "TestRun":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _to_batch(self, source: str | None, partition: str, record: Any) -> None:
        if not isinstance(partition, str):
            raise TypeError(f"a partition's name must be a str, not {partition!r}")
        self._batch.setdefault(self._named_source(source), {}).setdefault(partition, []).append(record)

    def _named_source(self, source: str | None) -> str:
        """Return the name of a source; for `None`, the name of the job's only source."""
        names = list(self._job.sources)
        if source is None and len(names) > 1:
            raise ValueError(f"the job has multiple sources: pass source= ({', '.join(names)})")
        if source is not None and source not in names:
            raise ValueError(f"the job has no source {source!r}: use one of {', '.join(names)}")
        return source or names[0]

    def _put(self, key: Key, put: Callable[[Subject], Any]) -> "TestRun":
        check_key(key)
        _with(None, key, put)  # so that an invalid value fails here, not in the batch

        def place() -> None:
            self._state = _with(self._stored_state(), key, put)
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
                raise ValueError(f"the snapshot has version {version}, not {_SNAPSHOT}")
            self._state, watermark, self._now, self._dependency_state, letters, *others = rest
            read, self._last_sources, name, known = others
            self._watermark.load(watermark)
            self._letters, self._read = LetterCount(**letters), set(read)
        except (ValueError, TypeError, KeyError) as error:
            raise ValueError(f"the snapshot cannot be read: create it again with this release ({error})") from error
        if name != self._job.name:
            raise CheckpointError("of the snapshot", f"it belongs to the job {name!r}, not to {self._job.name!r}")
        self._take_over("of the snapshot", self._job, known)
        check_returned("of the snapshot", self._job.sources, self._read, self._last_sources)
        self._current, self._stored = self._known, known
        self._placed = self._state

    def _start_from(self, savepoint: Savepoint, keys: Iterable[Key] | None) -> None:
        check_fits(self._job, savepoint, needs_positions=False)
        manifest = savepoint.manifest
        if keys is None:
            groups = savepoint.groups_for(self._job, 1, range(1), by_key=True)
        else:
            groups = savepoint.group_of_keys(self._job, keys)
        for _, group in groups:
            self._state = packed_group(group)
        self._watermark.load(savepoint.clock["watermark"])
        self._now = savepoint.clock["watermark"]["looked"] or self._now
        self._dependency_state, self._letters = savepoint.dependency_state, savepoint.letters
        self._read, self._last_sources = set(manifest.ever_read), list(manifest.sources)
        self._known = with_structures(manifest.structures, described(self._job))
        self._current, self._stored = self._known, manifest.structures
        self._placed = self._state

    def _take_over(self, of: str, job: Job, known: Known) -> None:
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

    def _take(self, job: Job) -> None:
        """Make a job the current job of the test run."""
        self._job = job
        self._codecs |= {port: port_codec(job, port) for port in job.ports}

    def _process(self, engine: ScriptEngine, records: Records, crash_after: int | None = None) -> None:
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
            result = engine.process(batch)
        except AmadouError:
            self._failed = engine.failed()
            self._known = self._stored  # if the first batch of new code fails, earlier code can resume
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
        self._is_in_engine = True
        for port, sink in self._memory_sinks:
            if port not in self._codecs:  # a port of the replaced handler
                continue
            into = SinkBatch(f"test-{self._number}", self._job.name, port, self._batches, self._codecs[port])
            sink.commit(into, [[encoded for entry in trace for name, encoded in entry.outputs if name == port]])
        self._batches += 1
        if crash_after is not None:
            self._run = next_run(self._run)

    def _stored_state(self) -> bytes | None:
        """Return the state after the last batch as one value."""
        if self._is_in_engine and self._running is not None:
            self._state, self._is_in_engine = self._running.state(), False
        return self._state

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

    def _new_engine(self) -> ScriptEngine:
        if defaults.made is not None and self not in defaults.made:
            defaults.made.append(self)
        if self.engine == "embedded":
            return EmbeddedEngine(self._job)
        from amadou_runtime.testing.spark_engine import SparkEngine

        spark = SparkEngine(self._job, self._spark)
        return spark if self.engine == "spark" else BothEngines(EmbeddedEngine(self._job), spark)


def _with(state: bytes | None, key: Key, put: Callable[[Subject], Any]) -> bytes | None:
    """Return a key group's state after `put` has changed the state of a key."""
    group = KeyGroup(PackedGroup(state))
    put(subject_of(group, key))
    for table in group.tables.values():
        table.store()
    return packed_group(group)


def _for_test(
    job: Job,
    handler: Handler | type[Handler] | None,
    params: Mapping[str, str],
    lookups: Mapping[str, Mapping[Any, Any]],
) -> Job:
    """Return the job in the form that a test run processes.

    :param handler: replacement for the job's handler; state that the replacement declares is not treated as retired
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
    return attrs.evolve(job, handler=_answered(job, lookups), sinks={port: MemorySink() for port in job.ports})


def _answered(job: Job, lookups: Mapping[str, Mapping[Any, Any]]) -> Handler:
    """Return the job's handler, with the answers of mappings in place of lookups.

    :raises ValueError: the handler has no such lookup
    """
    if not lookups:
        return job.handler
    handler = copy(job.handler)
    unknown = lookups.keys() - job.lookups.keys()
    if unknown:
        known = ", ".join(job.lookups) or "none"
        raise ValueError(f"the handler has no lookup {', '.join(sorted(unknown))} (its lookups: {known})")
    for attribute, spec in declared_specs(handler).items():
        if isinstance(spec, Lookup) and spec.name in lookups:
            setattr(handler, attribute, spec.answering(lookups[spec.name]))
    return handler
