"""The newest dead letters and late events of a run."""

from collections import deque
from typing import Any, Final

import attrs

from amadou.plugins import BatchReport, DeadLetterReport
from amadou_plugins.console._documents import late_document, letter_document

MOST_LETTERS: Final = 100
"""Number of dead letters, and of late events, that are kept. Older ones are dropped."""


@attrs.frozen
class Letters:
    """The newest dead letters and late events of a run, in bounded memory."""

    _dead: deque[tuple[dict[str, Any], DeadLetterReport]] = attrs.field(factory=lambda: deque(maxlen=MOST_LETTERS))
    _late: deque[dict[str, Any]] = attrs.field(factory=lambda: deque(maxlen=MOST_LETTERS))

    def add(self, batch: BatchReport) -> None:
        """Add the dead letters and late events of a batch."""
        for at, letter in enumerate(batch.dead_letters):
            self._dead.append((letter_document(f"{batch.number}-{at}", batch, letter), letter))
        self._late.extend(late_document(batch, event) for event in batch.late_events)

    def document(self) -> dict[str, Any]:
        """Return all as a document of the API, newest first."""
        return {
            "dead_letters": [document for document, _ in reversed(self._dead)],
            "late_events": list(reversed(self._late)),
        }

    def find(self, id_: str) -> tuple[dict[str, Any], DeadLetterReport] | None:
        """Return a dead letter as a document and as a report; `None` if it is not kept.

        :param id_: the field `id` of its document
        """
        return next((each for each in reversed(self._dead) if each[0]["id"] == id_), None)
