"""`TestRun`: a job's script, played in milliseconds."""

from collections.abc import Callable, Iterable, Mapping
from datetime import datetime, timedelta
from itertools import count
from types import MappingProxyType
from typing import Any, Literal, Protocol

import attrs

from amadou import DeadLetter, Job, Key, KeyedEvent, MemorySink, SinkBatch, Subject, Timer
from amadou._letters import DEAD_LETTERS
from amadou._subject import Batch
from amadou._time import MICROSECOND, from_micros, to_micros
from amadou.errors import PortError
from amadou_runtime._embedded import Embedded, clock_time
from amadou_runtime._group import KeyGroup
from amadou_runtime._ports import port_codec
from amadou_runtime._trace import Trace, TraceEntry, trace_entries
from amadou_runtime._watermark import END_OF_TIME, Watermark

_numbers = count()


class ScriptedEvent:
    """An event that a script brings past `key_event`."""

    def __init__(self, event: KeyedEvent[Any]) -> None:
        self.event = event

    def __repr__(self) -> str:
        return repr(self.event)


class Player(Protocol):
    """An engine that plays a script batch by batch."""

    def play(self, records: Mapping[str, list[Any]], watermark: int | None, now: int) -> "Played":
        """Play one batch.

        :param records: records and `ScriptedEvent`s by source
        :param watermark: the batch's watermark in microseconds
        :param now: the time of the clock in microseconds
        """

    def close(self) -> None:
        """Give back what the engine holds."""


@attrs.frozen
class Played:
    """What a batch of a script gave.

    :param letters: dead letters of records that could not be keyed, in wire form
    :param trace: raw entries of the callbacks
    :param newest: each source's newest event time in microseconds
    :param state: the key group's state after the batch
    """

    letters: list[Any]
    trace: list[list[Any]]
    newest: dict[str, int]
    state: bytes | None


class TestRun:
    """Plays records against a job and shows what came out, on the embedded engine or on Spark.

    A script is a sequence of batches. Records go into the batch in hand; `add_watermark`, `end_batch` and
    `advance_processing_time` end it. At the beginning of each batch timers fire up to its watermark, then its events
    run (`semantics.md` 2–7). The clock stands still but for `advance_processing_time`. The job's sources and sinks are
    left alone, but for a `MemorySink`, which gets what is collected.

    ::

        run = TestRun(job)
        run.add_record(b'{"channel_id": "a", "timestamp": "2025-01-01T00:01:00Z"}')
        run.add_watermark()
        assert run.run().records("sums") == [...]

    :param job: the job
    :param engine: `"embedded"` needs no Java and takes milliseconds; `"spark"` plays the same script on real Spark
    :param params: values of the job's parameters by name
    :param spark: the session to use with `engine="spark"`; a local one is made or re-used without it
    :param processing_time: where the clock stands at the beginning, an aware datetime; the time now without it
    :raises ParamError: a parameter has no value
    """

    __test__ = False  # not a test class for pytest

    def __init__(
        self,
        job: Job,
        *,
        engine: Literal["embedded", "spark"] = "embedded",
        params: Mapping[str, str] = MappingProxyType({}),
        spark: Any = None,
        processing_time: datetime | None = None,
    ) -> None:
        if engine not in ("embedded", "spark"):
            raise ValueError(f'the engine is "embedded" or "spark", not {engine!r}')
        self._job = _for_test(job.with_params(params))
        self._engine = engine
        self._spark = spark
        self._script: list[tuple[dict[str, list[Any]], Callable[[], None]]] = []
        self._batch: dict[str, list[Any]] = {}
        self._at_boundary = False
        self._watermark = Watermark(self._job)
        self._now = clock_time() if processing_time is None else to_micros(processing_time)
        self._player: Player | None = None
        self._raw: list[list[Any]] = []
        self._state: bytes | None = None
        self._batches = 0
        self._number = next(_numbers)
        self._memory_sinks = {port: sink for port, sink in job.sinks.items() if isinstance(sink, MemorySink)}

    def add_record(self, record: Any, source: str | None = None) -> "TestRun":
        """Add a record, which goes through `key_event`.

        :param source: the source that brings it; needed where the job has several
        """
        self._to_batch(source, record)
        return self

    def add_records(self, records: Iterable[Any], source: str | None = None) -> "TestRun":
        """Add records in their order."""
        for record in records:
            self._to_batch(source, record)
        return self

    def add_event(self, event: KeyedEvent[Any], source: str | None = None) -> "TestRun":
        """Add an event past `key_event`."""
        self._to_batch(source, ScriptedEvent(event))
        return self

    def add_watermark(self, timestamp: datetime | None = None) -> "TestRun":
        """End the batch and move the watermark to a time, whatever the job's delay; it never goes back.

        :param timestamp: an aware datetime; up to the newest event so far without it
        :raises NaiveTimestampError: the timestamp has no zone
        """
        micros = None if timestamp is None else to_micros(timestamp)

        def reach() -> None:
            target = self._watermark.newest if micros is None else micros
            if target is not None:
                self._watermark.raise_to(target)

        return self._end_batch(reach)

    def end_batch(self) -> "TestRun":
        """End the batch: the watermark follows the newest event, less the job's delay, as it does in a real run."""
        return self._end_batch(lambda: None)

    def advance_processing_time(self, by: timedelta) -> "TestRun":
        """End the batch and let time pass on the clock, for jobs with an `idle_timeout` (`semantics.md` 3).

        :param by: how long, not below zero
        """
        if by < timedelta(0):
            raise ValueError(f"time does not go back: {by}")

        def advance() -> None:
            self._now += by // MICROSECOND

        return self._end_batch(advance)

    def run(self, *, flush: bool = False) -> "TestResult":
        """Play what was added since the last call, and show all that came out so far.

        :param flush: in the end send the watermark to the end of time, so that every timer fires (`semantics.md` 12)
        :raises CallbackError: a callback of the handler failed; what its batch did does not count
        """
        player = self._player = self._player or self._new_player()
        while self._script:
            records, boundary = self._script.pop(0)
            self._play(player, records)
            boundary()
        if self._batch or self._at_boundary:
            batch, self._batch = self._batch, {}
            self._at_boundary = False
            self._play(player, batch)
        if flush:
            self._watermark.raise_to(END_OF_TIME)
            self._play(player, {})
        return TestResult(self._job, self._raw, self._state, self._watermark.follow(self._now))

    def close(self) -> None:
        """Give back what the engine holds; needed for `engine="spark"` only, and done at exit."""
        if self._player is not None:
            self._player.close()
            self._player = None

    def _to_batch(self, source: str | None, record: Any) -> None:
        names = list(self._job.sources)
        if source is None and len(names) > 1:
            raise ValueError(f"the job has several sources: say source= ({', '.join(names)})")
        if source is not None and source not in names:
            raise ValueError(f"the job has no source {source!r} (its sources: {', '.join(names)})")
        self._batch.setdefault(source or names[0], []).append(record)

    def _end_batch(self, boundary: Callable[[], None]) -> "TestRun":
        self._script.append((self._batch, boundary))
        self._batch = {}
        self._at_boundary = True
        return self

    def _play(self, player: Player, records: Mapping[str, list[Any]]) -> None:
        played = player.play(records, self._watermark.follow(self._now), self._now)
        self._watermark.observe(played.newest, self._now)
        trace = [self._undeliverable(wire) for wire in played.letters] + played.trace
        self._raw += trace
        self._state = played.state
        for port, sink in self._memory_sinks.items():
            batch = SinkBatch(f"test-{self._number}", self._job.name, port, self._batches, port_codec(self._job, port))
            sink.commit(batch, [[wire for *_, outputs, _ in trace for name, wire in outputs if name == port]])
        self._batches += 1

    def _undeliverable(self, wire: Any) -> list[Any]:
        """The raw trace entry of a record that could not be keyed."""
        letter = port_codec(self._job, DEAD_LETTERS).decode(wire)
        return ["key_event", None, None, None, letter.source, letter.record, "", [(DEAD_LETTERS, wire)], letter.error]

    def _new_player(self) -> Player:
        if self._engine == "embedded":
            return _EmbeddedPlayer(self._job)
        from amadou_runtime.spark import SparkPlayer

        return SparkPlayer(self._job, self._spark)


class TestResult:
    """What a test run gave, from its beginning."""

    __test__ = False  # not a test class for pytest

    def __init__(self, job: Job, raw: list[list[Any]], state: bytes | None, watermark: int | None) -> None:
        self._job = job
        self._raw = list(raw)
        self._group = KeyGroup(state)
        self.watermark: datetime | None = None if watermark is None else from_micros(watermark)
        """Where the watermark stands after the last batch."""

    def records(self, port: str) -> list[Any]:
        """The values that a port collected, in the order of the callbacks.

        :raises PortError: the handler has no such port
        """
        if port not in self._job.ports:
            raise PortError(port, tuple(self._job.ports))
        decode = port_codec(self._job, port).decode
        return [decode(wire) for *_, outputs, _ in self._raw for name, wire in outputs if name == port]

    @property
    def trace(self) -> list[TraceEntry]:
        """The callbacks, in order. `print(*result.trace, sep="\\n")` shows them to a reader."""
        return trace_entries(self._raw, {port: port_codec(self._job, port).decode for port in self._job.ports})

    @property
    def late(self) -> list[KeyedEvent[Any]]:
        """The events that were behind the watermark of their batch, whatever became of them (`semantics.md` 13)."""
        return [entry.event for entry in self.trace if entry.is_late]

    @property
    def dead_letters(self) -> list[DeadLetter]:
        """The callbacks that failed and were undone, of a job with `on_error="dead_letter"` (`semantics.md` 19)."""
        return self.records(DEAD_LETTERS) if DEAD_LETTERS in self._job.ports else []

    def keys(self) -> list[Key]:
        """The keys that have state or timers."""
        return self._group.keys()

    def state(self, spec: Any, key: Key) -> Any:
        """The state of a key: the value of a `ValueSpec`, a `dict` for a `MapSpec`.

        :param spec: the spec (`MyHandler.counts`) or its name
        """
        if isinstance(spec, str):
            if spec not in self._job.specs:
                raise ValueError(
                    f"no state spec {spec!r} (the handler's specs: {', '.join(self._job.specs) or 'none'})"
                )
            spec = self._job.specs[spec]
        return spec.state_for(self._subject(key))._shown()

    def timers(self, key: Key) -> list[Timer]:
        """The pending timers of a key, by timestamp and tag."""
        return self._subject(key).timers()

    def _subject(self, key: Key) -> Subject:
        group = self._group
        subject = Subject(
            Batch(type(self._job.handler).__name__, False, {}, None, group.columns, group.timers, touched=[key])
        )
        subject.key = key
        return subject


class _EmbeddedPlayer:
    def __init__(self, job: Job) -> None:
        self._trace = Trace()
        self._engine = Embedded(job, self._trace, scripted)

    def play(self, records: Mapping[str, list[Any]], watermark: int | None, now: int) -> Played:
        try:
            batch = self._engine.play(records, watermark, now)
        finally:
            trace = self._trace.take()
        return Played(batch.letters, trace, batch.newest, self._engine.state)

    def close(self) -> None:
        self._engine.close()


def scripted(key_event: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """A `key_event` that lets scripted events pass."""
    return lambda record: record.event if type(record) is ScriptedEvent else key_event(record)


def _for_test(job: Job) -> Job:
    return attrs.evolve(job, sinks={port: MemorySink() for port in job.ports})
