"""Sums up what the parts of a batch gave, for the driver."""

from typing import Any

import attrs

from amadou.engine import added
from amadou.errors import AmadouError, CallbackError, RunError
from amadou_runtime.core.dead_letter_limit import Failures, all_failures
from amadou_runtime.core.watermark import Newest
from amadou_runtime.spark.compressed import pack_compressed

_ADDED = ("records", "counts", "stage_seconds", "callback_seconds", "callback_calls", "vectorized_fallbacks")
"""Numbers by name, of which a summary has the sums."""
_TOLD = (
    "events",
    "failures",
    "late",
    "dropped",
    "timers_set",
    "fired",
    "error",
    "newest",
    "oldest",
    "letters",
    "trace",
    "states",
    *_ADDED,
)
"""What a row of results says in the terms of a summary."""


@attrs.define
class Summary:
    """What a part of a batch, or a whole one, gave."""

    parts: dict[str, list[Any]] = attrs.field(factory=dict)
    """What writers finished with, as pairs of part and message, by port."""
    outputs: dict[str, int] = attrs.field(factory=dict)
    records: dict[str, int] = attrs.field(factory=dict)
    events: int = 0
    late: int = 0
    dropped: int = 0
    timers_set: int = 0
    fired: int = 0
    counts: dict[str, int] = attrs.field(factory=dict)
    stage_seconds: dict[str, float] = attrs.field(factory=dict)
    callback_seconds: dict[str, float] = attrs.field(factory=dict)
    callback_calls: dict[str, int] = attrs.field(factory=dict)
    vectorized_fallbacks: dict[str, int] = attrs.field(factory=dict)
    ranges: dict[int, list[Any]] = attrs.field(factory=dict)
    """What `Clock.ranges` says, of each key range that was called."""
    error: dict[str, Any] | None = None
    newest: Newest = attrs.field(factory=dict)
    oldest: dict[str, int] = attrs.field(factory=dict)
    failures: Failures = attrs.field(factory=dict)
    letters: list[Any] = attrs.field(factory=list)
    """Dead letters of records that could not be keyed, for test runs."""
    trace: list[Any] = attrs.field(factory=list)
    """Parts of raw entries, for test runs."""
    states: dict[int, bytes | None] = attrs.field(factory=dict)

    @classmethod
    def of(cls, result: dict[str, Any]) -> "Summary":
        """What one row of results says."""
        outputs = {port: len(wires) for port, wires in result.get("outputs", {}).items()}
        ranges = {result["range"]: result["kept"]} if "range" in result else {}
        told = {name: result[name] for name in _TOLD if name in result}
        return cls(outputs=outputs, ranges=ranges, **told)

    def merge(self, other: "Summary") -> None:
        """Add what else the same batch gave."""
        for port, parts in other.parts.items():
            self.parts[port] = sorted([*self.parts.get(port, []), *parts])
        self.outputs = added((self.outputs, other.outputs))
        self.events += other.events
        self.late += other.late
        self.dropped += other.dropped
        self.timers_set += other.timers_set
        self.fired += other.fired
        for name in _ADDED:
            setattr(self, name, added((getattr(self, name), getattr(other, name))))
        self.ranges |= other.ranges
        self.error = self.error or other.error
        for source, by_partition in other.newest.items():
            newest = self.newest.setdefault(source, {})
            for partition, micros in by_partition.items():
                newest[partition] = max(micros, newest.get(partition, micros))
        for source, oldest in other.oldest.items():
            self.oldest[source] = min(oldest, self.oldest.get(source, oldest))
        self.failures = all_failures((self.failures, other.failures))
        self.letters += other.letters
        self.trace += other.trace
        self.states |= other.states


def error_fields(error: AmadouError) -> dict[str, Any]:
    """An error in terms of msgpack."""
    if isinstance(error, CallbackError):
        return {"callback": error.fields()}
    return {"message": f"{type(error).__name__}: {error}"}


def packed_error(error: AmadouError) -> bytes:
    """Return an error as a row of results."""
    return pack_compressed({"error": error_fields(error)})


def error_from(fields: dict[str, Any]) -> AmadouError:
    """The error of some fields."""
    return CallbackError(**fields["callback"]) if "callback" in fields else RunError(fields["message"])
