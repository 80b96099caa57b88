"""Handlers that process many records or events in one call."""

from datetime import datetime
from typing import TYPE_CHECKING, Any

from amadou._event import K, Key
from amadou._handler import Handler

if TYPE_CHECKING:
    from amadou._job import Job


class VectorizedHandler(Handler[K]):
    """A handler whose events runs may process by columns, many in one call, such as the handlers of `windowed`.

    Test runs process each batch both ways, and fail if the results differ.
    """

    delegates_to: str | None = None
    """The name of the `Component` to which `on_event` passes every event, if it does nothing else. A run passes a
    vectorised component the events of many keys in one call, if the handler has no other state and no timers."""

    def for_job(self, job: "Job") -> "VectorizedHandler[K]":
        """Return the handler that a run of the job uses: itself, or a copy that depends on the job's settings."""
        return self

    def key_batch(self, records: list[Any]) -> tuple[list[Key], list[datetime], list[Any]] | None:
        """Return keys, timestamps and values of many records, each of which is one event. A run that processes events
        by columns calls it in place of `key_event`. If it raises, the run calls `key_event` to find the bad record.

        :returns: the results of `key_event` as columns; `None` to have `key_event` called
        """
        return None
