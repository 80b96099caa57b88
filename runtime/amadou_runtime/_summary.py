"""What a run did, in numbers."""

from collections.abc import Iterable, Mapping
from typing import Any

import attrs

from amadou._letters import DEAD_LETTERS, LATE_EVENTS
from amadou._time import from_micros
from amadou_runtime._operator import Processed


def added(counts: Iterable[Mapping[str, int]]) -> dict[str, int]:
    """Several counts by name as one."""
    whole: dict[str, int] = {}
    for part in counts:
        for name, count in part.items():
            whole[name] = whole.get(name, 0) + count
    return whole


@attrs.define
class Counts:
    """Counts of a run so far."""

    events: int = 0
    late: int = 0
    timers_fired: int = 0
    outputs: dict[str, int] = attrs.field(factory=dict)
    """Values collected, by port."""
    counters: dict[str, int] = attrs.field(factory=dict)
    """What callbacks and components counted (`Subject.count`), by name."""
    keys: int = 0
    """Keys that have state or timers now."""
    timers_pending: int = 0
    state_bytes: int = 0

    def add(self, processed: Processed, outputs: Mapping[str, list[Any]]) -> None:
        """Count a batch that was processed as one key group, and what went to each port."""
        self.events += processed.events
        self.late += processed.late
        self.timers_fired += processed.fired
        self.outputs = added((self.outputs, {port: len(wires) for port, wires in outputs.items()}))
        self.counters = added((self.counters, processed.counts))
        self.keys = processed.keys
        self.timers_pending = processed.pending
        self.state_bytes = len(processed.state or b"")


@attrs.frozen
class Progress:
    """Where a run stands.

    :param job: the job's name
    :param batches: how many batches were completed
    :param events: how many events were processed
    :param events_per_second: lately
    :param watermark: in microseconds
    :param state_bytes: stored, over all key groups
    :param keys: keys that have state or timers
    :param late: late events so far
    :param timers_pending: timers that are set and not due
    :param seconds: since the start of the run
    """

    job: str
    batches: int
    events: int
    events_per_second: float
    watermark: int | None
    state_bytes: int
    keys: int
    late: int
    timers_pending: int
    seconds: float


@attrs.frozen
class RunSummary:
    """How a run ended.

    :param job: the job's name
    :param batches: how many batches were completed
    :param counts: what was counted
    :param watermark: the last watermark, in microseconds
    """

    job: str
    batches: int
    counts: Counts
    watermark: int | None

    def then(self, other: "RunSummary") -> "RunSummary":
        """This run and one that went on from it, as one."""
        before, after = self.counts, other.counts
        counts = attrs.evolve(
            after,
            events=before.events + after.events,
            late=before.late + after.late,
            timers_fired=before.timers_fired + after.timers_fired,
            outputs=added((before.outputs, after.outputs)),
            counters=added((before.counters, after.counters)),
        )
        return RunSummary(self.job, self.batches + other.batches, counts, other.watermark)

    def __str__(self) -> str:
        counts = self.counts
        own = (LATE_EVENTS, DEAD_LETTERS)
        outputs = ", ".join(f"{count:,} {port}" for port, count in sorted(counts.outputs.items()) if port not in own)
        diverted = f" ({counts.outputs[LATE_EVENTS]:,} diverted)" if LATE_EVENTS in counts.outputs else ""
        letters = f"dead letters: {counts.outputs[DEAD_LETTERS]:,}; " if DEAD_LETTERS in counts.outputs else ""
        counters = "".join(f"{name}: {count:,}; " for name, count in sorted(counts.counters.items()))
        return (
            f"{self.job}: {counts.events:,} events in {self.batches:,} batches; outputs: {outputs or 'none'}; "
            f"late: {counts.late:,}{diverted}; {letters}{counters}timers fired: {counts.timers_fired:,}, "
            f"pending: {counts.timers_pending:,}; keys: {counts.keys:,}; watermark: {shown_watermark(self.watermark)}"
        )


def shown_watermark(micros: int | None) -> str:
    """A watermark for people."""
    return "none" if micros is None else from_micros(micros).isoformat().replace("+00:00", "Z")


def shown_bytes(count: float) -> str:
    """A size for people."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if count < 1024 or unit == "GiB":
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1024
    raise AssertionError
