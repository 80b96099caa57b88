"""Results of a test run."""

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from types import MappingProxyType
from typing import Any

from amadou import DeadLetter, Job, Key, KeyedEvent, Subject, Timer
from amadou.engine import DEAD_LETTERS, Batch
from amadou.errors import PortError
from amadou.event_time import FIRST_TIME, from_micros, to_micros
from amadou.plugins import Codec
from amadou.text import qualified
from amadou_runtime.core.key_group import KeyGroup
from amadou_runtime.core.references import ReferenceTable
from amadou_runtime.store.packed_group import PackedGroup
from amadou_runtime.testing.trace import RawEntry, TraceEntry, trace_entry


class StageResult:
    """Results of a stage of a test run since its start; see `TestResult`.

    :param job: the stage as a job
    :param raw: the stage's part of the trace
    :param new_from: number of entries in `raw` that the previous `run` returned
    """

    def __init__(
        self,
        job: Job,
        codecs: Mapping[str, Codec[Any]],
        raw: list[RawEntry],
        state: bytes | None,
        watermark: int | None,
        counters: Mapping[str, int],
        dropped: int = 0,
        new_from: int = 0,
        references: Mapping[str, bytes] = MappingProxyType({}),
        held_back_by: str | None = None,
    ) -> None:
        self._job = job
        self._codecs = dict(codecs)
        self._raw = list(raw)
        self._new_from = new_from
        self._references = references
        self._group = KeyGroup(PackedGroup(state))
        self.watermark: datetime | None = None if watermark is None else from_micros(watermark)
        """The watermark after the last batch."""
        self.held_back_by = held_back_by
        """The source or partition that holds the watermark back."""
        self.counters = dict(counters)
        """Counters of callbacks and components, by name."""
        self.dropped = dropped
        """Number of late events that the job, its windows and its joins dropped."""

    def records(self, port: str, *, new: bool = False) -> list[Any]:
        """Return the values that a port collected; see `TestResult.records`."""
        if port not in self._codecs:
            raise PortError(port, tuple(self._codecs))
        decode = self._codecs[port].decode
        raw = self._raw[self._new_from :] if new else self._raw
        return [decode(encoded) for entry in raw for name, encoded in entry.outputs if name == port]

    def has_port(self, port: str) -> bool:
        """Return `True` if the handler has a port."""
        return port in self._codecs

    def reference(self, spec: Any) -> dict[Any, Any]:
        """Return the entries of a reference; see `TestResult.reference`."""
        name = spec if isinstance(spec, str) else spec.name
        if name not in self._job.references:
            known = ", ".join(self._job.references) or "none"
            raise ValueError(f"the handler has no reference {name!r} (available: {known})")
        table = ReferenceTable.of_bytes(self._references.get(name))
        return self._job.references[name].shown(dict(table.items()))

    def has_spec(self, spec: Any) -> bool:
        """Return `True` if the handler has a state spec, given the spec or its name."""
        return has_spec({**self._job.specs, **self._job.references}, spec)

    def entry(self, raw: RawEntry, stage: str) -> TraceEntry:
        """Decode an entry of the trace."""
        decoders = {port: codec.decode for port, codec in self._codecs.items()}
        return trace_entry(raw, decoders, self._job.specs, stage)

    def held(self, source: str | None = None) -> list[KeyedEvent[Any]]:
        """Return the events that are still held; see `TestResult.held`."""
        if source is None:
            dependents = {each.dependent for each in self._job.dependencies}
            if len(dependents) != 1:
                raise ValueError(f"source= is required (dependent sources: {', '.join(sorted(dependents)) or 'none'})")
            (source,) = dependents
        if source not in self._job.sources:
            raise ValueError(f"the job has no source {source!r}: use one of {', '.join(self._job.sources)}")
        return self._group.held_events(source)

    def keys(self) -> list[Key]:
        """Return the keys that have state or timers."""
        return self._group.keys()

    def state(self, spec: Any, key: Key) -> Any:
        """Return the state of a key; see `TestResult.state`."""
        return named_spec(self._job, spec).shown(subject_of(self._group, key, self.watermark))

    def timers(self, key: Key) -> list[Timer]:
        """Return the pending timers of a key, by timestamp and tag."""
        return subject_of(self._group, key).timers()

    def has_dependent(self, source: str | None) -> bool:
        """Return `True` if a source depends on others; for `None`, if any source does."""
        dependents = {each.dependent for each in self._job.dependencies}
        return bool(dependents) if source is None else source in dependents


class TestResult:
    """Results of a test run since its start.

    In a test run of a job with several stages, `stage=` names a stage. It can be omitted if only one stage has the
    port, spec or source.
    """

    __test__ = False  # not a test class for pytest

    def __init__(self, stages: Mapping[str, StageResult], raw: Sequence[tuple[str, RawEntry]]) -> None:
        self._stages = dict(stages)
        self._raw = list(raw)
        watermarks = [each.watermark for each in stages.values() if each.watermark is not None]
        self.watermark: datetime | None = min(watermarks) if len(watermarks) == len(stages) else None
        """The watermark after the last batch. Of several stages, the watermark of the stage that is furthest behind."""
        holders = [(stage, each) for stage, each in stages.items() if each.watermark == self.watermark]
        self.held_back_by: str | None = next(
            (qualified(stage, each.held_back_by) for stage, each in holders if each.held_back_by is not None), None
        )
        """The source that holds the watermark back, as ``source`` or ``source/partition``: one that has delivered
        neither an event nor a time yet, or the one that is furthest behind. `None` if there is none, or if all sources
        are idle. In a job with several stages, the name begins with that of the stage."""
        self.counters = {
            qualified(stage, name): count for stage, each in stages.items() for name, count in each.counters.items()
        }
        """Counters of callbacks and components, by name; ``<stage>.<name>`` in a job with several stages."""
        self.dropped = sum(each.dropped for each in stages.values())
        """Number of late events that the job, its windows and its joins dropped."""

    def stage(self, name: str) -> "TestResult":
        """Return the results of one stage.

        :raises ValueError: the job has no such stage
        """
        return TestResult({name: self._stage(name)}, [(stage, raw) for stage, raw in self._raw if stage == name])

    def records(self, port: str, *, new: bool = False, stage: str | None = None) -> list[Any]:
        """Return the values that a port collected, in the order of the callbacks.

        :param new: `True` to return only the values collected since the previous `run()`
        :raises PortError: the handler has no such port
        """
        return self._stage(stage, lambda each: each.has_port(port)).records(port, new=new)

    def events(self, source: str | None = None, *, stage: str | None = None) -> list[KeyedEvent[Any]]:
        """Return the events that `on_event` received, in the order of the calls.

        :param source: the source's name; by default, all sources
        """
        received = (raw for of, raw in self._raw if raw.callback == "on_event" and stage in (None, of))
        return [raw.event for raw in received if source in (None, raw.source)]

    @property
    def trace(self) -> list[TraceEntry]:
        """The callbacks, in the order in which they ran, stage by stage in each batch.
        `print(*result.trace, sep="\\n")` prints them.
        """
        return [self._stages[stage].entry(raw, stage) for stage, raw in self._raw]

    @property
    def late(self) -> list[KeyedEvent[Any]]:
        """Late events (behind their batch's watermark), including dropped and diverted events (`semantics.md` 13)."""
        return [raw.event for _, raw in self._raw if raw.is_late]

    @property
    def dead_letters(self) -> list[DeadLetter]:
        """Dead letters for callbacks that failed and were undone, with `on_error="dead_letter"` (`semantics.md` 19)."""
        found = (each.records(DEAD_LETTERS) for each in self._stages.values() if each.has_port(DEAD_LETTERS))
        return [letter for letters in found for letter in letters]

    def held(self, source: str | None = None, *, stage: str | None = None) -> list[KeyedEvent[Any]]:
        """Return the events from a dependent source (`DependsOn`) that are still held after the last batch, in
        source order.

        :param source: the source's name; by default the only dependent source (`DependsOn.dependent`)
        :raises ValueError: the job has no such source, or `source` is omitted and the job does not have exactly one
            dependent source
        """
        return self._stage(stage, lambda each: each.has_dependent(source)).held(source)

    def keys(self, *, stage: str | None = None) -> list[Key]:
        """Return the keys that have state or timers."""
        return self._stage(stage).keys()

    def state(self, spec: Any, key: Key, *, stage: str | None = None) -> Any:
        """Return the state of a key: the value of a `ValueSpec`, a `dict` for a `MapSpec`, a `list` for a `ListSpec`,
        or the readable form of a component's state (`Component.shown_value`).

        :param spec: the spec (`MyHandler.counts`) or its name
        """
        return self._stage(stage, lambda each: each.has_spec(spec)).state(spec, key)

    def reference(self, spec: Any, *, stage: str | None = None) -> dict[Any, Any]:
        """Return the entries of a reference after the last batch, by key.

        :param spec: the spec (`MyHandler.rules`) or its name
        """
        return self._stage(stage, lambda each: each.has_spec(spec)).reference(spec)

    def timers(self, key: Key, *, stage: str | None = None) -> list[Timer]:
        """Return the pending timers of a key, by timestamp and tag."""
        return self._stage(stage).timers(key)

    def _stage(self, name: str | None, is_meant: Callable[[StageResult], bool] = lambda _: True) -> StageResult:
        """Return the results of a stage.

        :param name: the stage's name; `None` for the only stage that is meant
        """
        return self._stages[only_stage(name, {each: is_meant(result) for each, result in self._stages.items()})]


def only_stage(name: str | None, stages: Mapping[str, bool]) -> str:
    """Return the name of a stage.

    :param name: the given name; `None` for the only stage that is meant
    :param stages: the stages by name, with `True` for those that are meant
    :raises ValueError: there is no such stage, or the name is omitted and several are meant
    """
    known = ", ".join(stages)
    if name is not None:
        if name not in stages:
            raise ValueError(f"the job has no stage {name!r}: use one of {known}" if known else "the job has no stages")
        return name
    meant = [each for each, is_meant in stages.items() if is_meant] or list(stages)
    if len(meant) > 1:
        raise ValueError(f"several stages are possible: pass stage= ({', '.join(meant)})")
    return meant[0]


def has_spec(specs: Mapping[str, Any], spec: Any) -> bool:
    """Return `True` if a spec, or its name, is among specs."""
    return spec in (specs if isinstance(spec, str) else specs.values())


def named_spec(job: Job, spec: Any) -> Any:
    """Return a state spec of a job's handler, given the spec or its name.

    :raises ValueError: the handler has no spec with that name
    """
    if not isinstance(spec, str):
        return spec
    if spec not in job.specs:
        raise ValueError(f"the handler has no state spec {spec!r} (available: {', '.join(job.specs) or 'none'})")
    return job.specs[spec]


def subject_of(group: KeyGroup, key: Key, watermark: datetime | None = None) -> Subject:
    """Return a subject for reading a key's state outside a batch.

    :param watermark: the time as of which state is read; `None` for state that has not expired at any time
    """
    micros = None if watermark is None else to_micros(watermark)
    subject = Subject(Batch(None, True, {}, micros, group.tables, group.timers, touched=[key], keeper=group))
    subject.key, subject.timestamp = key, watermark or FIRST_TIME
    return subject
