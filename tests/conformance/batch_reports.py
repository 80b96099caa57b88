"""A plugin that collects the reports of batches."""

from collections import Counter
from typing import Any

import attrs

from amadou.plugins import BatchReport, Counts, DeadLetterReport, hookimpl


class BatchReports:
    """Collects the reports of all batches."""

    def __init__(self) -> None:
        self.batches: list[BatchReport] = []

    @hookimpl
    def amadou_batch_completed(self, batch: BatchReport) -> None:
        self.batches.append(batch)

    @property
    def dead_letters(self) -> list[DeadLetterReport]:
        return [dead_letter for batch in self.batches for dead_letter in batch.dead_letters]

    @property
    def late_events(self) -> list[Any]:
        return [event for batch in self.batches for event in batch.late_events]

    @property
    def counts(self) -> Counts:
        """Counts of all batches, without the sizes of stored state, which depend on the store."""
        whole = Counts()
        for batch in self.batches:
            whole = whole.then(batch.counts)
        assert min(whole.state_entries, whole.state_bytes, whole.state_bytes_written) > 0
        stored = [field.name for field in attrs.fields(Counts) if field.name.startswith("state_")]
        return attrs.evolve(whole, **dict.fromkeys(stored, 0))

    def added(self, field: str) -> dict[str, float]:
        """Return the sums of a field that has numbers by name."""
        whole: Counter[str] = Counter()
        for batch in self.batches:
            whole.update(getattr(batch, field))
        return dict(whole)
