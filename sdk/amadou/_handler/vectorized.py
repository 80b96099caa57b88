"""Handlers that process many records or events in one call."""

from datetime import datetime
from typing import TYPE_CHECKING, Any

from amadou._handler.event import K, Key
from amadou._handler.handler import Handler

if TYPE_CHECKING:
    from amadou._jobs.job import Job


class VectorizedHandler(Handler[K]):
    """A handler that can process many events in one call, in columnar form. `windowed` returns such handlers.

    Test runs process each batch both in columnar form and event by event, and fail if the results differ.
    """

    delegates_to: str | None = None
    """The name of the `Component` to which `on_event` passes every event, if `on_event` does nothing else; otherwise
    `None`. With `on_error="fail"`, a run passes the events of many keys to the component in one call if the component
    is vectorised and the handler has no other state and no timers.
    """

    def for_job(self, job: "Job") -> "VectorizedHandler[K]":
        """Return the handler that a run of the job uses: this handler, or a copy adapted to the job's settings."""
        return self

    def key_batch(self, records: list[Any]) -> tuple[list[Key], list[datetime], list[Any]] | None:
        """Return the keys, timestamps and values for many records. Each record must become exactly one event. A run
        that processes events in columnar form calls this method instead of `key_event`. If the method raises an error,
        the run calls `key_event` for each record to find the record that fails.

        :returns: the results of `key_event` in columnar form; `None` to make the run call `key_event` for each record
        """
        return None
