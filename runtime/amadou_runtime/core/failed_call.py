"""Replaying a failed function that a component called, such as a window's `on_close`."""

from collections.abc import Callable
from typing import Any, NamedTuple

from amadou import Component, Key, Subject
from amadou.engine import Batch, StateTable, pack
from amadou.errors import RunError
from amadou.event_time import from_micros
from amadou.text import shown_value


class FailedCall(NamedTuple):
    """A failed call, with the state to repeat it. A replay fires the component's timer with the component's state of
    that time, apart from the job's state. Of the functions that the component then calls, the one with the same
    arguments is the failed one.

    :param key: the subject's key
    :param micros: the time of the component's timer
    :param component: the component's name
    :param callback: the function's name
    :param arguments: the function's arguments after the subject
    :param watermark: the watermark of the batch, in microseconds
    :param state: the component's state of the subject, packed
    :param next_timer: the component's next timer
    """

    key: Key
    micros: int
    component: str
    callback: str
    arguments: list[Any]
    watermark: int
    state: bytes
    next_timer: int | None

    def again(self, component: Component, batch: Batch) -> Callable[..., Any]:
        """Return a function of the subject that repeats the call.

        :param batch: an empty batch, at the watermark of the failed call
        """

        def again(subject: Subject, *_: Any) -> Any:
            function, arguments = self._found(component, batch)
            return function(subject, *arguments)

        again.__name__ = self.callback
        return again

    def _found(self, component: Component, batch: Batch) -> tuple[Callable[..., None], tuple[Any, ...]]:
        table = batch.tables[self.component] = StateTable({self.key: self.state})
        if self.next_timer is not None:
            table.next_timers[self.key] = self.next_timer
        batch.firing_micros, batch.fired = self.micros, [self.component]
        subject: Subject = Subject(batch)
        subject.key, subject.timestamp = self.key, from_micros(self.micros)
        calls: list[tuple[Callable[..., None], tuple[Any, ...]]] = []
        component.on_timer(
            subject, subject.timestamp, lambda _, function, *arguments: calls.append((function, arguments))
        )
        for call in calls:
            # NaN is unequal to itself
            if list(call[1]) == self.arguments or pack(list(call[1])) == pack(self.arguments):
                return call
        raise RunError(
            f"{self.component} does not call {self.callback} with {shown_value(tuple(self.arguments))} any more, with "
            "what it had when that failed: its settings, or the code of its aggregate, are others now"
        )
