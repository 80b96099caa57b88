"""Combines events before the shuffle, for components that can (`Component.is_combinable`).

If a stage has few keys, most of its events would go to a few tasks. A window whose aggregates can be merged needs only
their accumulators: each task that keys records adds the events to windows of its own, and sends these.
"""

from collections.abc import Callable
from typing import Any, Final

import attrs

from amadou import Job
from amadou.components import Component, EventColumns
from amadou.engine import FedSource, pack
from amadou.event_time import to_micros
from amadou_runtime.core.vectorized import vectorized_component

COMBINED: Final = b"combined"
"""The order of chunks that contain the result of `Component.combine` instead of events."""
_LEAST: Final = 8
"""Number of events per key from which on combining them takes less time than sending them."""


@attrs.frozen
class Combiner:
    """Combines the events of a key group.

    :param value_of: function that returns the value of an event, given the value that is sent
    """

    component: Component
    value_of: Callable[[Any], Any]

    def combine(self, events: list[Any], watermark: int | None) -> tuple[list[Any], bytes | None]:
        """Return the events that have to be sent, and the others in combined form; `None` if no event was combined.
        Late events are not combined.

        :param events: a flat list with the key, timestamp and value of each event
        :param watermark: the batch's watermark in microseconds
        """
        keys = events[0::3]
        if len(set(keys)) * _LEAST > len(keys):
            return events, None
        micros = [to_micros(timestamp) for timestamp in events[1::3]]
        if watermark is not None and min(micros) < watermark:
            late = [time < watermark for time in micros]
            rest = [part for at, is_late in enumerate(late) if is_late for part in events[3 * at : 3 * at + 3]]
        else:
            late, rest = [], []
        columns = EventColumns(keys, [self.value_of(value) for value in events[2::3]], micros)
        if late:
            columns = columns.where(not is_late for is_late in late)
        if not columns:
            return events, None
        try:
            return rest, pack(self.component.combine(columns))
        except Exception:  # an event does not fit the aggregate: its callback reports it
            return events, None


def combiner_for(job: Job, source: str) -> Combiner | None:
    """Return the combiner for the events from a source; `None` if they cannot be combined."""
    component = vectorized_component(job)
    if component is None or not component.is_combinable or job.dependencies:
        return None
    is_fed = isinstance(job.sources[source], FedSource)
    return Combiner(component, _last if is_fed else _same)


def _last(value: list[Any]) -> Any:
    return value[-1]


def _same(value: Any) -> Any:
    return value
