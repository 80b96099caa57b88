"""What a batch did, from a part of it in one task up to the whole batch."""

from collections.abc import Iterable, Mapping
from typing import Any

import attrs

from amadou.engine import sum_counts
from amadou.plugins import Counts
from amadou_runtime.core.dead_letter_limit import Failures, all_failures
from amadou_runtime.core.samples import Samples
from amadou_runtime.core.watermark import Newest


@attrs.define
class BatchTally:
    """What a part of a batch did in a stage of a job. For the times, see `BatchReport`."""

    outputs: dict[str, list[Any]] = attrs.field(factory=dict)
    """The encoded values that were collected, by port."""
    counts: Counts = attrs.field(factory=Counts)
    stage_seconds: dict[str, float] = attrs.field(factory=dict)
    callback_seconds: dict[str, float] = attrs.field(factory=dict)
    callback_calls: dict[str, int] = attrs.field(factory=dict)
    newest: Newest = attrs.field(factory=dict)
    """The newest event times, by source and partition."""
    oldest: dict[str, int] = attrs.field(factory=dict)
    """The oldest event times of the sources that depend on others."""
    failures: Failures = attrs.field(factory=dict)
    samples: Samples = attrs.field(factory=Samples)

    def merge(self, other: "BatchTally") -> None:
        """Add what another part of the same batch did, after this one."""
        self.outputs = together((self.outputs, other.outputs))
        self.counts = Counts.total((self.counts, other.counts))
        self.stage_seconds = sum_counts((self.stage_seconds, other.stage_seconds))
        self.callback_seconds = sum_counts((self.callback_seconds, other.callback_seconds))
        self.callback_calls = sum_counts((self.callback_calls, other.callback_calls))
        for source, by_partition in other.newest.items():
            newest = self.newest.setdefault(source, {})
            for partition, micros in by_partition.items():
                newest[partition] = max(micros, newest.get(partition, micros))
        for source, oldest in other.oldest.items():
            self.oldest[source] = min(oldest, self.oldest.get(source, oldest))
        self.failures = all_failures((self.failures, other.failures))
        self.samples.merge(other.samples)


def together(outputs: Iterable[Mapping[str, list[Any]]]) -> dict[str, list[Any]]:
    """Merge mappings of outputs by port into one. Each port's outputs stay in the order of the mappings."""
    given = [each for each in outputs if each]
    if len(given) == 1:
        return dict(given[0])
    merged: dict[str, list[Any]] = {}
    for each in given:
        for port, encoded_values in each.items():
            merged.setdefault(port, []).extend(encoded_values)
    return merged
