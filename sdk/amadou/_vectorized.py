"""Handlers that take many records or events in one call."""

from datetime import datetime
from typing import TYPE_CHECKING, Any

from amadou._event import K, Key
from amadou._handler import Handler

if TYPE_CHECKING:
    from amadou._job import Job


class VectorizedHandler(Handler[K]):
    """A handler that runs may process by columns, many records or events in one call, as `windowed` makes them.

    Test runs process each batch both ways, and fail where the results differ.
    """

    delegates_to: str | None = None
    """The name of the `Component` that `on_event` gives every event to, where it does nothing else. A run then gives it
    the events of many keys in one call, where the handler has no other state and no timers and the component can."""

    def for_job(self, job: "Job") -> "VectorizedHandler[K]":
        """Return the handler that a run of the job uses: itself, or a copy that depends on the job's settings."""
        return self

    def key_batch(self, records: list[Any]) -> tuple[list[Key], list[datetime], list[Any]] | None:
        """Return keys, timestamps and values of many records, of which each is one event. A run that processes events
        by columns calls it in the place of `key_event`. Where it raises, `key_event` tells which record is to blame.

        :returns: columns of what `key_event` would give; `None` to have that called
        """
        return None
