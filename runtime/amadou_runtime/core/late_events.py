"""Drops or diverts late events, for jobs that do not deliver them (`semantics.md` 13)."""

from datetime import datetime
from typing import Any

from amadou import Job, KeyedEvent, LateEvent
from amadou.engine import DEAD_LETTERS, LATE_EVENTS, Batch, Port
from amadou.event_time import to_micros
from amadou_runtime.core.callbacks import Callbacks
from amadou_runtime.core.events import Run
from amadou_runtime.formats.failure import callback_error


class LateEvents:
    """Removes late events from a batch, for jobs that do not deliver them.

    :param callbacks: the handler's callbacks
    """

    def __init__(self, job: Job, callbacks: Callbacks) -> None:
        self._job = job.name
        self._callbacks = callbacks
        self._diverts = job.late_events == "divert"

    def taken_out(self, runs: list[Run], watermark: datetime, batch: Batch) -> tuple[list[Run], int]:
        """Drop or divert the late events. Return the other events, and the number of late events."""
        late = 0
        left = []
        micros = to_micros(watermark)
        for run in runs:
            if min(run.micros) >= micros:
                left.append(run)
                continue
            on_time: list[Any] = []
            for event in zip(run.keys, run.timestamps, run.values, strict=True):
                if event[1] >= watermark:
                    on_time.append(event)
                    continue
                late += 1
                if not self._diverts:
                    batch.dropped += 1
                    batch.report_late("dropped", run.source, event)
                    self._not_delivered("dropped", run.source, event, watermark)
                    continue
                try:
                    encoded = batch.ports[LATE_EVENTS].encode(LateEvent(self._job, run.source, *event, watermark))
                except Exception as error:
                    self._bury_late(error, run.source, KeyedEvent(*event), watermark, batch.ports)
                    continue
                batch.ports[LATE_EVENTS].encoded_values.append(encoded)
                batch.report_late("diverted", run.source, event)
                self._not_delivered("diverted", run.source, event, watermark, encoded)
            if on_time:
                left.append(Run.of(run.source, on_time))
        return left, late

    def _not_delivered(self, outcome: str, source: str, event: Any, watermark: datetime, encoded: Any = None) -> None:
        if self._callbacks.observer is not None:
            self._callbacks.observer.not_delivered(outcome, source, event, watermark, encoded)

    def _bury_late(
        self, error: Exception, source: str, event: KeyedEvent[Any], watermark: datetime, ports: dict[str, Port]
    ) -> None:
        """Write a dead letter for a late event that the `late_events` sink cannot encode.

        :raises CallbackError: the job does not write dead letters
        """
        failed = callback_error(
            error,
            handler=self._callbacks.name,
            callback=LATE_EVENTS,
            source=source,
            key=event.key,
            record=event,
            watermark=watermark,
        )
        if self._callbacks.letters is None:
            raise failed
        encoded = self._callbacks.letters.of_late(source, event, watermark, failed)
        ports[DEAD_LETTERS].encoded_values.append(encoded)
        self._not_delivered("dropped", source, event, watermark)
        if self._callbacks.observer is not None:
            self._callbacks.observer.failed(failed.error, [(DEAD_LETTERS, encoded)])
