"""Merges the results of a batch's parts for the driver."""

from collections.abc import Iterable
from typing import Any

import attrs

from amadou import Counts
from amadou.engine import sum_counts
from amadou.errors import AmadouError, CallbackError, RunError
from amadou_runtime.core.dead_letter_limit import Failures, all_failures
from amadou_runtime.core.key_range import RangeStatus, StoreResult
from amadou_runtime.core.samples import Samples
from amadou_runtime.core.watermark import Newest
from amadou_runtime.formats.compressed import pack_compressed, unpack_compressed


@attrs.define
class Summary:
    """Results of a stage in a part of a batch, or in the entire batch."""

    outputs: dict[str, list[Any]] = attrs.field(factory=dict)
    """Encoded values by port, for the output stage."""
    parts: dict[str, list[Any]] = attrs.field(factory=dict)
    """Results of the writers' `finish` by port. Each result is a pair of the part's name and the returned value."""
    counts: Counts = attrs.field(factory=Counts)
    """The batch's counts. Current totals, such as the number of keys, are in `ranges` instead."""
    stage_seconds: dict[str, float] = attrs.field(factory=dict)
    callback_seconds: dict[str, float] = attrs.field(factory=dict)
    callback_calls: dict[str, int] = attrs.field(factory=dict)
    ranges: dict[int, RangeStatus] = attrs.field(factory=dict)
    """Status of each processed key range after the batch."""
    error: dict[str, Any] | None = None
    newest: Newest = attrs.field(factory=dict)
    oldest: dict[str, int] = attrs.field(factory=dict)
    failures: Failures = attrs.field(factory=dict)
    samples: Samples = attrs.field(factory=Samples)
    updates: list[Any] = attrs.field(factory=list)
    """Updates of references, as the fields of chunks."""
    letters: list[Any] = attrs.field(factory=list)
    """Dead letters for records on which `key_event` failed, for test runs."""
    trace: list[Any] = attrs.field(factory=list)
    """Raw trace entries as lists, for test runs."""
    states: dict[int, bytes | None] = attrs.field(factory=dict)
    stage: str = ""
    """The stage's name; empty in a job with one handler. Set when the outputs have been written."""

    def pack(self) -> bytes:
        """Pack the summary into a result row."""
        fields = attrs.asdict(self, recurse=False)
        fields["counts"] = attrs.astuple(self.counts, recurse=False)
        fields["ranges"] = {number: attrs.astuple(status, recurse=False) for number, status in self.ranges.items()}
        fields["samples"] = self.samples.to_rows() if self.samples else None
        return pack_compressed({name: value for name, value in fields.items() if value})

    @classmethod
    def unpack(cls, row: bytes) -> "Summary":
        """Unpack a summary from a result row."""
        fields = unpack_compressed(row)
        counts = Counts(*fields.pop("counts"))
        ranges = {number: RangeStatus(*status) for number, status in fields.pop("ranges", {}).items()}
        samples = Samples.from_rows(fields.pop("samples")) if "samples" in fields else Samples()
        return cls(counts=counts, ranges=ranges, samples=samples, **fields)

    def add_stored(self, number: int, result: StoreResult) -> None:
        """Add the result of storing a key range."""
        self.ranges[number] = result.status
        self.counts = Counts.total((self.counts, result.counts))
        if result.rebuild_seconds:
            self.stage_seconds["rebuilding"] = result.rebuild_seconds

    def merge(self, other: "Summary") -> None:
        """Add other results of the same batch to this summary. Outputs are not added."""
        for port, parts in other.parts.items():
            self.parts[port] = sorted([*self.parts.get(port, []), *parts])
        self.counts = Counts.total((self.counts, other.counts))
        self.stage_seconds = sum_counts((self.stage_seconds, other.stage_seconds))
        self.callback_seconds = sum_counts((self.callback_seconds, other.callback_seconds))
        self.callback_calls = sum_counts((self.callback_calls, other.callback_calls))
        self.ranges |= other.ranges
        self.error = self.error or other.error
        for source, by_partition in other.newest.items():
            newest = self.newest.setdefault(source, {})
            for partition, micros in by_partition.items():
                newest[partition] = max(micros, newest.get(partition, micros))
        for source, oldest in other.oldest.items():
            self.oldest[source] = min(oldest, self.oldest.get(source, oldest))
        self.failures = all_failures((self.failures, other.failures))
        self.samples.merge(other.samples)
        self.updates += other.updates
        self.letters += other.letters
        self.trace += other.trace
        self.states |= other.states


def error_fields(error: AmadouError) -> dict[str, Any]:
    """Return the fields of an error in a form that msgpack can pack."""
    if isinstance(error, CallbackError):
        return {"callback": error.fields()}
    return {"message": str(error) if type(error) is RunError else f"{type(error).__name__}: {error}"}


def by_stage(rows: Iterable[bytes], stages: Iterable[str]) -> dict[str, Summary]:
    """Merge packed summaries.

    :returns: the results by stage
    """
    results = {stage: Summary(stage=stage) for stage in stages}
    for row in rows:
        summary = Summary.unpack(row)
        results[summary.stage].merge(summary)
    return results


def packed_error(error: AmadouError) -> bytes:
    """Pack an error into a result row."""
    return Summary(error=error_fields(error)).pack()


def error_from(fields: dict[str, Any]) -> AmadouError:
    """Create the error from its fields; see `error_fields`."""
    return CallbackError(**fields["callback"]) if "callback" in fields else RunError(fields["message"])
