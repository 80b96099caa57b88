"""Merges the results of a batch's parts for the driver."""

from collections.abc import Iterable
from typing import Any

import attrs

from amadou.errors import AmadouError, CallbackError, RunError
from amadou.plugins import Counts
from amadou_runtime.core.key_range import RangeStatus, StoreResult
from amadou_runtime.core.samples import Samples
from amadou_runtime.core.tally import BatchTally
from amadou_runtime.formats.compressed import pack_compressed, unpack_compressed
from amadou_runtime.spark.rows import done_in


@attrs.define
class Summary(BatchTally):
    """Results of a stage in a part of a batch, or in the entire batch. In `counts`, current totals, such as the number
    of keys, are missing: they are in `ranges`.
    """

    parts: dict[str, list[Any]] = attrs.field(factory=dict)
    """Results of the writers' `finish` by port. Each result is a pair of the part's name and the returned value."""
    ranges: dict[int, RangeStatus] = attrs.field(factory=dict)
    """Status of each processed key range after the batch."""
    error: dict[str, Any] | None = None
    updates: list[Any] = attrs.field(factory=list)
    """Updates of references, as the fields of chunks."""
    letters: list[Any] = attrs.field(factory=list)
    """Dead letters for records on which `key_event` failed, for test runs."""
    trace: list[Any] = attrs.field(factory=list)
    """Raw trace entries as lists, for test runs."""
    states: dict[int, bytes | None] = attrs.field(factory=dict)
    stage: str = ""
    """The stage's name; empty in a job with one handler. Set when the outputs have been written."""

    @classmethod
    def of(cls, tally: BatchTally, **more: Any) -> "Summary":
        """Return a summary of what a part of a batch did."""
        return cls(**attrs.asdict(tally, recurse=False), **more)

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

    def merge(self, other: BatchTally) -> None:
        """Add other results of the same batch."""
        BatchTally.merge(self, other)
        if not isinstance(other, Summary):
            return
        for port, parts in other.parts.items():
            self.parts[port] = sorted([*self.parts.get(port, []), *parts])
        self.ranges |= other.ranges
        self.error = self.error or other.error
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
    """Merge the summaries in rows for the driver.

    :returns: the results by stage
    """
    results = {stage: Summary(stage=stage) for stage in stages}
    for row in rows:
        summary = Summary.unpack(done_in(row))
        results[summary.stage].merge(summary)
    return results


def packed_error(error: AmadouError) -> bytes:
    """Pack an error into a result row."""
    return Summary(error=error_fields(error)).pack()


def error_from(fields: dict[str, Any]) -> AmadouError:
    """Create the error from its fields; see `error_fields`."""
    return CallbackError(**fields["callback"]) if "callback" in fields else RunError(fields["message"])
