"""`TestRun`: runs a job on scripted records in milliseconds."""

import sys
import uuid
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal

import attrs

from amadou import Job, Key, KeyedEvent, MemorySink, Subject
from amadou.components import Component
from amadou.engine import check_key, clock_time, pack, unpack
from amadou.errors import AmadouError
from amadou.event_time import MICROSECOND, from_micros, to_micros
from amadou.text import shown_value
from amadou_runtime.core.feeding import FedRecord
from amadou_runtime.core.watermark import feed_stages
from amadou_runtime.jobs.stages import depth
from amadou_runtime.savepoint.fitting import check_job_fits
from amadou_runtime.savepoint.job_savepoint import JobSavepoint, write_job_savepoint
from amadou_runtime.testing.engines import BothEngines, EmbeddedEngine, ScriptEngine, next_run
from amadou_runtime.testing.for_test import GivenAnswers, GivenHandler, for_test
from amadou_runtime.testing.scripted import ScriptedEvent
from amadou_runtime.testing.stage_run import StageRecords, StageRun, changed_state
from amadou_runtime.testing.test_result import TestResult, has_spec, named_spec, only_stage
from amadou_runtime.testing.trace import RawEntry

ENGINES = ("embedded", "spark", "both")


def embedded_engine(job: Job) -> ScriptEngine:
    """Return the embedded engine for a job."""
    return EmbeddedEngine(job)


def spark_engine(job: Job, spark: Any) -> ScriptEngine:
    """Return the engine that runs a job on a Spark session."""
    from amadou_runtime.testing.spark_engine import SparkEngine

    return SparkEngine(job, spark)


@attrs.define
class Defaults:
    """Settings of the pytest plugin for all test runs.

    :param engine: engine for test runs that do not set one
    :param made: test runs of the current test; a test run is added when its engine starts. `None` outside of tests
    :param embedded_engine: function that starts the embedded engine
    :param spark_engine: function that starts the engine on Spark
    """

    engine: str = "embedded"
    made: list["TestRun"] | None = None
    embedded_engine: Callable[[Job], ScriptEngine] = embedded_engine
    spark_engine: Callable[[Job, Any], ScriptEngine] = spark_engine


defaults = Defaults()
_STAGES = "stages"
"""First part of a snapshot of a job with several stages. Then follow their snapshots, by stage."""


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

    A test run of a job with several stages processes each batch in all stages, each after those that feed it. Records
    can be added to any stage: `stage=` names it, and can be omitted if only one stage has the source, spec or port.
    After the last `add_watermark` or `end_batch`, `run` processes as many batches as stages feed one another.

    :param job: the job
    :param engine: `"embedded"` does not need Java and takes milliseconds; `"spark"` runs the script on real Spark;
        `"both"` runs the script on both engines and fails if the results differ. The default is the pytest option
        `--amadou-engine`, or `"embedded"` if the option is not set
    :param handler: handler or handler class that replaces the job's handler, for example a fake; or a mapping with
        replacements by stage
    :param params: values of the job's parameters, by name; parameters that only sources and sinks use can be omitted
    :param lookups: what takes the place of a lookup's service, by the lookup's name: a mapping from keys to answers, or
        a function that returns the answer for a key. An answer can be an exception. Other lookups ask their service
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
        handler: GivenHandler | Mapping[str, GivenHandler] | None = None,
        params: Mapping[str, str] = MappingProxyType({}),
        lookups: Mapping[str, GivenAnswers] = MappingProxyType({}),
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
        self._original = job
        self._params = params
        self._lookups = lookups
        self._next = for_test(job, _by_stage(handler), params, lookups)
        """The job after the last restart in the script."""
        self._job = self._next
        sinks = {
            name: [(port, sink) for port, sink in stage.all_sinks if isinstance(sink, MemorySink)]
            for name, stage in job.by_stage.items()
        }
        self._stages = {name: StageRun(stage, sinks[name]) for name, stage in self._job.by_stage.items()}
        self.engine = engine or defaults.engine
        """The engine that runs the script."""
        self._spark = spark
        self._script: list[tuple[dict[str, StageRecords], Callable[[], None], tuple[str, int] | None]] = []
        self._batch: dict[str, StageRecords] = {}
        self._fed = 0
        """Number of scripted records of ports."""
        self._at_boundary = False
        self._now = clock_time()
        self._running: ScriptEngine | None = None
        self._raw: list[tuple[str, RawEntry]] = []
        if snapshot is not None:
            self._resume(snapshot)
        if savepoint is not None:
            self._start_from(JobSavepoint(savepoint), keys)
        if processing_time is not None:
            self._now = to_micros(processing_time)
        self._run = f"{uuid.uuid4().hex}/0"
        """The name of the current run."""
        self._batches = 0

    def add_record(
        self,
        record: Any,
        source: str | None = None,
        *,
        partition: str = "",
        stage: str | None = None,
        timestamp: datetime | None = None,
    ) -> "TestRun":
        """Add a record. `run` passes the record to `key_event`.

        :param source: the record's source; required if the job has multiple sources
        :param partition: any name for the record's partition; a source's watermark is the minimum of the watermarks of
            its partitions (`semantics.md` 2)
        :param timestamp: for a source that is a port of another stage: the time of the callback that collects the value
        """
        self._to_batch(stage, source, partition, record, timestamp)
        return self

    def add_records(
        self, records: Iterable[Any], source: str | None = None, *, partition: str = "", stage: str | None = None
    ) -> "TestRun":
        """Add records in order."""
        if isinstance(records, str | bytes):
            raise TypeError(f"add_records takes an iterable of records, not {shown_value(records)}: use add_record")
        for record in records:
            self._to_batch(stage, source, partition, record)
        return self

    def add_event(
        self, event: KeyedEvent[Any], source: str | None = None, *, partition: str = "", stage: str | None = None
    ) -> "TestRun":
        """Add an event directly, without calling `key_event`."""
        self._to_batch(stage, source, partition, ScriptedEvent(event))
        return self

    def add_watermark(
        self,
        timestamp: datetime | None = None,
        source: str | None = None,
        *,
        partition: str | None = None,
        stage: str | None = None,
    ) -> "TestRun":
        """End the batch and advance the watermark to at least a time, for every source and regardless of the job's
        watermark delay. If an event of the batch is newer, the watermark follows the event. The watermark of a source
        that is a port follows the stage that feeds it, one batch later.

        :param timestamp: an aware datetime; by default the newest event time in this batch and all earlier batches
        :param source: the source that has reached this time; the job's watermark is the minimum of the watermarks
            of its sources (`semantics.md` 2)
        :param partition: the partition that has reached this time; by default all partitions of the source
        :param stage: the stage that has reached this time; by default all stages with sources that are not ports
        :raises NaiveTimestampError: the timestamp has no time zone
        """
        micros = None if timestamp is None else to_micros(timestamp)
        if source is not None or partition is not None:
            stage, source = self._named_source(stage, source)
        elif stage is not None:
            only_stage(stage, dict.fromkeys(self._stages, True))
        meant = [self._stages[stage]] if stage is not None else list(self._stages.values())
        for each in meant:
            if (stage is not None and not each.job.external_sources) or source in each.job.fed_sources:
                what = f"stage {stage}" if source is None else f"source {source}"
                raise ValueError(f"the watermark of the {what} follows the stages that feed it: advance theirs")

        def reach() -> None:
            for each in meant:
                each.advance(source, partition, micros, self._now)

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

    def restart(self, handler: GivenHandler | Mapping[str, GivenHandler] | None = None) -> "TestRun":
        """End the batch and the run, and start a new run from the stored state.

        :param handler: handler or handler class that resumes from the state, as in an upgrade, or a mapping by stage;
            by default a new copy of the current handler, as in a new process
        :raises CheckpointError: the handler cannot resume from the state; the same rules apply as for checkpoints
        """
        given = None if handler is None else for_test(self._original, _by_stage(handler), self._params, self._lookups)
        job = self._next if given is None else given
        taking = [self._stages[name].upgrade(stage) for name, stage in job.by_stage.items()]
        self._next = job

        def restart() -> None:
            assert self._running is not None
            self._running.restart(job)
            self._job = job
            for take in taking:
                take()
            self._run = next_run(self._run)

        return self._end_batch(restart)

    def crash(self, after: int | None = None, *, stage: str | None = None) -> "TestRun":
        """End the batch, simulate a crash during the batch, and process the batch again.

        :param after: number of callbacks before the crash, not counting `key_event`; by default, or if the batch has
            fewer callbacks, the crash happens at the end of the batch
        :param stage: the stage that crashes, and whose callbacks count; by default the last
        """
        name = list(self._stages)[-1] if stage is None else only_stage(stage, dict.fromkeys(self._stages, True))
        return self._end_batch(lambda: None, crash=(name, sys.maxsize if after is None else after))

    def set_state(
        self,
        spec: Any,
        key: Key,
        value: Any,
        *,
        written: datetime | None = None,
        next_timer: datetime | None = None,
        stage: str | None = None,
    ) -> "TestRun":
        """End the batch, if there is one, and set a key's state.

        :param spec: the spec (`MyHandler.counts`) or its name
        :param value: the value for a `ValueSpec`, a mapping for a `MapSpec`, a list for a `ListSpec`; for a component,
            such as a window, the component's stored state
        :param written: time of the state's last write; required for a spec with a `ttl`
        :param next_timer: time of the component's next timer for this key
        :raises EncodeError: the value does not fit the spec
        """
        name = only_stage(stage, {name: has_spec(each.job.specs, spec) for name, each in self._stages.items()})
        spec = named_spec(self._stages[name].job, spec)
        if spec.ttl is not None and written is None:
            raise ValueError(f"{spec.name} has a ttl: pass written=, the time of the state's last write")

        def put(subject: Subject) -> None:
            subject.timestamp = from_micros(0) if written is None else written
            if isinstance(spec, Component):
                spec.state_for(subject).store(value, None if next_timer is None else to_micros(next_timer))
            else:
                spec.assign(subject, value)

        return self._put(name, key, put)

    def set_timer(self, key: Key, timestamp: datetime, tag: str = "", *, stage: str | None = None) -> "TestRun":
        """End the batch, if there is one, and set a timer.

        :raises NaiveTimestampError: the timestamp has no time zone
        """
        name = only_stage(stage, dict.fromkeys(self._stages, True))
        return self._put(name, key, lambda subject: subject.set_timer(timestamp, tag))

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
            records, boundary, crash = self._script.pop(0)
            self._process(engine, records, crash)
            boundary()
        if self._batch or self._at_boundary:
            further = depth(self._job) if self._at_boundary else 1
            batch, self._batch, self._at_boundary = self._batch, {}, False
            for number in range(further):
                self._process(engine, batch if number == 0 else {})
        if flush:
            for stage in self._stages.values():
                stage.watermark.flush()
            for _ in range(depth(self._job)):
                self._process(engine, {})
        return TestResult({name: stage.result(self._now) for name, stage in self._stages.items()}, self._raw)

    def snapshot(self) -> bytes:
        """Return a snapshot for `TestRun(snapshot=…)`: the state, timers, watermark, processing time and dead-letter
        count after the processed batches.

        Multiple test runs can continue from the same snapshot. To test that a new release of a handler can read the
        state of an older release, store a snapshot created with the older release.
        """
        snapshots = {name: stage.snapshot(self._now) for name, stage in self._stages.items()}
        return pack([_STAGES, snapshots]) if self._job.stages else snapshots[""]

    def savepoint(self, directory: str | Path) -> None:
        """Write a savepoint after the processed batches, like `amadou run --savepoint`. A test run does not read from
        sources, so no job can continue to read sources from this savepoint; another test run can start from it.

        :param directory: a new directory
        :raises SavepointError: the directory is not empty, or cannot be written
        """
        saves = {name: partial(stage.savepoint, self._batches) for name, stage in self._stages.items()}
        write_job_savepoint(self._job.name, saves, directory)

    def trace_text(self, lines: int | None = None) -> str:
        """Return the callbacks of the test run as text, including the callbacks of a failed batch.

        :param lines: maximum number of lines, counted from the end; all lines by default
        """
        failed = [(name, raw) for name, stage in self._stages.items() for raw in stage.failed]
        results = {name: stage.failed_result() for name, stage in self._stages.items()}
        result = TestResult(results, [*self._raw, *failed])
        shown = "\n".join(map(str, result.trace)).splitlines()
        cut = [] if lines is None or len(shown) <= lines else [f"… {len(shown) - lines} earlier lines"]
        return "\n".join([*cut, *shown[-(lines or 0) :]]) or "no callback ran"

    def close(self) -> None:
        """Stop the engine and call the handler's `close`. The pytest plugin does this after each test.

        A later `run` continues from the stored state, as after a restart. `with TestRun(job) as run:` closes the test
        run at the end of the block. Use `with` in Hypothesis tests, which create many test runs.
        """
        if self._running is not None:
            for stage in self._stages.values():
                stage.keep()
            engine, self._running = self._running, None
            engine.close()

    def __enter__(self) -> "TestRun":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _to_batch(
        self, stage: str | None, source: str | None, partition: str, record: Any, timestamp: datetime | None = None
    ) -> None:
        if not isinstance(partition, str):
            raise TypeError(f"a partition's name must be a str, not {partition!r}")
        stage, source = self._named_source(stage, source)
        fed = self._stages[stage].job.fed_sources.get(source)
        if fed is None and timestamp is not None:
            raise ValueError(f"the source {source!r} is not a port of another stage: key_event sets the timestamp")
        if fed is not None:
            record = self._fed_record(record, timestamp, fed.spec.feed_codec().encode)
        self._batch.setdefault(stage, {}).setdefault(source, {}).setdefault(partition, []).append(record)

    def _fed_record(self, record: Any, timestamp: datetime | None, encode: Callable[[Any], Any]) -> Any:
        """Return a scripted record of a port in the form in which a stage would pass it."""
        self._fed += 1
        if isinstance(record, ScriptedEvent):
            key, time, value = record.event
            return ScriptedEvent(KeyedEvent(key, time, [to_micros(time), None, self._fed, value]))
        micros = 0 if timestamp is None else to_micros(timestamp)
        return FedRecord((micros, None, self._fed), timestamp, encode(record))

    def _named_source(self, stage: str | None, source: str | None) -> tuple[str, str]:
        """Return the names of a stage and a source; for `None`, the name of the only source."""
        stages = {name: each.job for name, each in self._stages.items()}
        if source is None:
            external = {name: bool(job.external_sources) for name, job in stages.items()}
            stage = only_stage(stage, external)
            names = list(stages[stage].external_sources or stages[stage].sources)
            if len(names) > 1:
                raise ValueError(f"the job has multiple sources: pass source= ({', '.join(names)})")
            return stage, names[0]
        known = [name for job in stages.values() for name in job.sources]
        if source not in known:
            raise ValueError(f"the job has no source {source!r}: use one of {', '.join(known)}")
        stage = only_stage(stage, {name: source in job.sources for name, job in stages.items()})
        if source not in stages[stage].sources:
            raise ValueError(
                f"the stage {stage} has no source {source!r}: use one of {', '.join(stages[stage].sources)}"
            )
        return stage, source

    def _put(self, stage: str, key: Key, put: Callable[[Subject], Any]) -> "TestRun":
        check_key(key)
        changed_state(None, key, put)  # so that an invalid value fails here, not in the batch

        def place() -> None:
            self._stages[stage].put(key, put)

        if self._script or self._batch:
            return self._end_batch(place)
        place()
        return self

    def _end_batch(self, boundary: Callable[[], None], crash: tuple[str, int] | None = None) -> "TestRun":
        self._script.append((self._batch, boundary, crash))
        self._batch = {}
        self._at_boundary = True
        return self

    def _resume(self, snapshot: bytes) -> None:
        snapshots = {"": snapshot}
        if self._job.stages:
            try:
                kind, snapshots = unpack(snapshot)
            except (AmadouError, ValueError, TypeError):
                kind = None
            if kind != _STAGES:
                raise ValueError("the snapshot is not that of a job with several stages, or cannot be read")
            if snapshots.keys() != self._stages.keys():
                names = ", ".join(snapshots)
                raise ValueError(f"the snapshot has other stages ({names}) than the job ({', '.join(self._stages)})")
        for name, stage in self._stages.items():
            self._now = stage.resume(snapshots[name])
        self._feed()

    def _start_from(self, savepoint: JobSavepoint, keys: Iterable[Key] | None) -> None:
        check_job_fits(self._job, savepoint, needs_positions=False)
        wanted = None if keys is None else list(keys)
        found = {name: of for name, of in savepoint.stages.items() if name in self._stages}
        looked = [self._stages[name].start_from(of, wanted) for name, of in found.items()]
        self._now = max((micros for micros in looked if micros is not None), default=self._now)
        self._feed()

    def _process(
        self, engine: ScriptEngine, records: Mapping[str, StageRecords], crash: tuple[str, int] | None = None
    ) -> None:
        batches = {
            name: stage.batch(
                records.get(name, {}),
                self._run,
                self._now,
                self._batches,
                crash[1] if crash is not None and crash[0] == name else None,
            )
            for name, stage in self._stages.items()
        }
        for stage in self._stages.values():
            stage.failed = []
        try:
            results = engine.process(batches)
        except AmadouError:
            failed = engine.failed()
            for name, stage in self._stages.items():
                stage.take_failure(failed.get(name, []))
            raise
        for name, stage in self._stages.items():
            before = len(stage.raw)
            stage.take_result(batches[name], results[name], partial(engine.state, name))
            self._raw += [(name, raw) for raw in stage.raw[before:]]
        self._feed()
        self._batches += 1
        if crash is not None:
            self._run = next_run(self._run)

    def _feed(self) -> None:
        feed_stages({name: stage.watermark for name, stage in self._stages.items()})

    def _new_engine(self) -> ScriptEngine:
        if defaults.made is not None and self not in defaults.made:
            defaults.made.append(self)
        if self.engine == "embedded":
            return defaults.embedded_engine(self._job)
        spark = defaults.spark_engine(self._job, self._spark)
        return spark if self.engine == "spark" else BothEngines(self._job, defaults.embedded_engine(self._job), spark)


def _by_stage(handler: GivenHandler | Mapping[str, GivenHandler] | None) -> Mapping[str, GivenHandler]:
    """Return handlers by stage. A single handler is that of a job with one handler."""
    if handler is None:
        return {}
    return handler if isinstance(handler, Mapping) else {"": handler}
