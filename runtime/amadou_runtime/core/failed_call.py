"""Repeats a component's failed call to a user-defined function, such as a window's `on_close`."""

from collections.abc import Callable
from typing import Any, NamedTuple

from amadou import Key, Subject
from amadou.components import Component
from amadou.engine import Batch, StateTable, pack
from amadou.errors import RunError
from amadou.event_time import from_micros
from amadou.text import shown_value


class FailedCall(NamedTuple):
    """A component's failed call to a user-defined function, with the state needed to repeat the call. A replay fires
    the component's timer with the component's old state, separate from the job's current state. The component then
    requests calls to user-defined functions, and the replay runs the call whose arguments equal those of the failed
    call.

    :param key: the subject's key
    :param micros: the time that the call saw, in microseconds
    :param component: the component's name
    :param callback: the name of the failed function
    :param arguments: the function's arguments, without the subject
    :param watermark: the watermark of the batch in which the call failed, in microseconds
    :param state: the component's packed state for the subject
    :param next_timer: the time of the component's timer, in microseconds; `None` if there is none
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
        """Return a function that takes a subject and repeats the call for this subject.

        :param batch: an empty batch with the watermark of the failed call
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
        subject: Subject = Subject(batch)
        subject.key = self.key
        calls: list[tuple[Callable[..., None], tuple[Any, ...]]] = []
        due: int | None = self.micros if self.next_timer is None else self.next_timer
        # an earlier version can have stored a time that is not the one at which the component makes the call today
        while due is not None and due <= self.watermark and not calls:
            batch.firing_micros, batch.fired = due, [self.component]
            subject.timestamp = from_micros(due)
            component.on_timer(
                subject, subject.timestamp, lambda _, function, *arguments: calls.append((function, arguments))
            )
            due = component.state_for(subject).next_timer
        for call in calls:
            # the packed arguments are also compared, because NaN does not equal itself
            if list(call[1]) == self.arguments or pack(list(call[1])) == pack(self.arguments):
                return call
        raise RunError(
            f"cannot replay {self.callback}{shown_value(tuple(self.arguments))}: {self.component} no longer makes this "
            f"call. Revert the settings or the aggregate of {self.component} to those of the failed run"
        )
