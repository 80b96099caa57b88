from datetime import timedelta
from typing import Any

from amadou import KeyedEvent, Subject, ValueSpec
from amadou_plugins.aggregates._aggregate import Aggregate
from amadou_plugins.aggregates._several import aggregate_of


class RunningSpec(ValueSpec[Any]):
    """What all events of a key come to so far, as a value of state: a running total, a moving average, a top ten.

    ::

        total = RunningSpec(Sum("cents"))
        lately = RunningSpec(MovingAverage("ms", 100), ttl=timedelta(days=1))

        def on_event(self, subject, event):
            self.balances.collect(subject, Balance(subject.key, self.total.add(subject, event)))

    `state_for(subject)` is the state of the accumulator: `clear()` begins anew.

    :param value: an aggregate, or several by name, which give a mapping
    :param ttl: after how long without an event, in event time, it is gone
    :param name: the name that it is stored under; the attribute's name without it
    """

    def __init__(
        self,
        value: Aggregate[Any, Any] | dict[str, Aggregate[Any, Any]],
        *,
        ttl: timedelta | None = None,
        name: str | None = None,
    ) -> None:
        self.aggregate = aggregate_of(value)
        super().__init__(object, ttl=ttl, name=name)

    def add(self, subject: Subject, event: KeyedEvent[Any]) -> Any:
        """Take an event in. Returns what they come to now."""
        state = self.state_for(subject)
        accumulator = state.value if state.exists else self.aggregate.create()
        state.value = accumulator = self.aggregate.add(accumulator, event)
        return self.aggregate.result(accumulator)

    def result(self, subject: Subject) -> Any:
        """What the events come to so far."""
        state = self.state_for(subject)
        return self.aggregate.result(state.value if state.exists else self.aggregate.create())

    def shown_type(self) -> str:
        return repr(self.aggregate)

    def __repr__(self) -> str:
        return f"RunningSpec({self.aggregate!r})"
