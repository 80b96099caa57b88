"""Results of a test run."""

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from amadou import Codec, DeadLetter, Job, Key, KeyedEvent, Subject, Timer
from amadou.engine import DEAD_LETTERS, Batch
from amadou.errors import PortError
from amadou.event_time import from_micros
from amadou_runtime.core.key_group import KeyGroup
from amadou_runtime.core.packed_group import PackedGroup
from amadou_runtime.testing.trace import RawEntry, TraceEntry, trace_entry


class TestResult:
    """Results of a test run since its start."""

    __test__ = False  # not a test class for pytest

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
    ) -> None:
        self._job = job
        self._codecs = dict(codecs)
        self._raw = list(raw)
        self._new_from = new_from
        self._group = KeyGroup(PackedGroup(state))
        self.watermark: datetime | None = None if watermark is None else from_micros(watermark)
        """The watermark after the last batch."""
        self.counters = dict(counters)
        """Counters of callbacks and components, by name."""
        self.dropped = dropped
        """Number of late events that the job, its windows and its joins dropped."""

    def records(self, port: str, *, new: bool = False) -> list[Any]:
        """Return the values that a port collected, in the order of the callbacks.

        :param new: `True` to return only the values collected since the previous `run()`
        :raises PortError: the handler has no such port
        """
        if port not in self._codecs:
            raise PortError(port, tuple(self._codecs))
        decode = self._codecs[port].decode
        raw = self._raw[self._new_from :] if new else self._raw
        return [decode(encoded) for entry in raw for name, encoded in entry.outputs if name == port]

    @property
    def trace(self) -> list[TraceEntry]:
        """The callbacks, in the order in which they ran. `print(*result.trace, sep="\\n")` prints them."""
        decoders = {port: codec.decode for port, codec in self._codecs.items()}
        return [trace_entry(raw, decoders, self._job.specs) for raw in self._raw]

    @property
    def late(self) -> list[KeyedEvent[Any]]:
        """Late events (behind their batch's watermark), including dropped and diverted events (`semantics.md` 13)."""
        return [entry.event for entry in self.trace if entry.is_late]

    @property
    def dead_letters(self) -> list[DeadLetter]:
        """Dead letters for callbacks that failed and were undone, with `on_error="dead_letter"` (`semantics.md` 19)."""
        return self.records(DEAD_LETTERS) if DEAD_LETTERS in self._codecs else []

    def held(self, source: str | None = None) -> list[KeyedEvent[Any]]:
        """Return the events from a dependent source (`DependsOn`) that are still held after the last batch, in
        source order.

        :param source: the source's name; by default the only dependent source (`DependsOn.dependent`)
        :raises ValueError: the job has no such source, or `source` is omitted and the job does not have exactly one
            dependent source
        """
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
        """Return the state of a key: the value of a `ValueSpec`, a `dict` for a `MapSpec`, a `list` for a `ListSpec`,
        or the readable form of a component's state (`Component.shown_value`).

        :param spec: the spec (`MyHandler.counts`) or its name
        """
        return named_spec(self._job, spec).shown(subject_of(self._group, key))

    def timers(self, key: Key) -> list[Timer]:
        """Return the pending timers of a key, by timestamp and tag."""
        return subject_of(self._group, key).timers()


def named_spec(job: Job, spec: Any) -> Any:
    """Return a state spec of a job's handler, given the spec or its name.

    :raises ValueError: the handler has no spec with that name
    """
    if not isinstance(spec, str):
        return spec
    if spec not in job.specs:
        raise ValueError(f"the handler has no state spec {spec!r} (available: {', '.join(job.specs) or 'none'})")
    return job.specs[spec]


def subject_of(group: KeyGroup, key: Key) -> Subject:
    """Return a subject for reading a key's state outside a batch."""
    subject = Subject(Batch(None, True, {}, None, group.tables, group.timers, touched=[key], keeper=group))
    subject.key = key
    return subject
