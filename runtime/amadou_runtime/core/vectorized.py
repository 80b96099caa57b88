"""Vectorised handlers, which process many records or events in one call, in columnar form."""

import logging
from collections.abc import Callable
from datetime import datetime
from typing import Any, TypeVar

from amadou import Handler, Job, Key
from amadou.components import Component, VectorizedHandler
from amadou_runtime.formats.failure import shown_traceback

T = TypeVar("T")
_logger = logging.getLogger("amadou")


class Fallbacks:
    """Runs the vectorised path if possible, and otherwise the reference path, which processes records or events one by
    one.

    If only the vectorised path fails, that path has a bug. The run then uses the result of the reference path, and logs
    the first such failure.

    :param job: the job's name
    """

    def __init__(self, job: str) -> None:
        self._job = job
        self._has_logged = False

    def result(
        self, name: str, vectorized: Callable[[], T | None], reference: Callable[[], T]
    ) -> tuple[T, dict[str, int]]:
        """Return the result, and the number of fallbacks by name.

        :param name: the component's name, or ``key_event``
        :param vectorized: function that runs the vectorised path, or returns `None` if this path cannot be used
        :param reference: function that runs the reference path
        :raises Exception: the reference path failed because of a record or an event
        """
        failure = None
        try:
            result = vectorized()
        except Exception as error:
            failure = error
        else:
            if result is not None:
                return result, {}
        result = reference()
        if failure is None:
            return result, {}
        if not self._has_logged:
            self._has_logged = True
            message = "job %s: the vectorised path of %s failed, so amadou used the slower path. Report this bug:\n%s"
            _logger.warning(message, self._job, name, shown_traceback(failure))
        return result, {name: 1}


def handler_for(job: Job) -> Handler:
    """Return the handler to use in runs of a job (`VectorizedHandler.for_job`)."""
    handler = job.handler
    return handler.for_job(job) if isinstance(handler, VectorizedHandler) else handler


def vectorized_component(job: Job) -> Component | None:
    """Return the component that processes a key group's events in columnar form; `None` if the job processes events
    one by one. Columnar processing requires `on_error="fail"`, and a handler that has neither timers nor other state
    and only delegates its events to a vectorised component.
    """
    handler = job.handler
    if not isinstance(handler, VectorizedHandler) or not _stands_for(handler, "delegates_to", "on_event"):
        return None
    component = job.components.get(handler.delegates_to or "")
    alone = job.on_error == "fail" and not job.has_timers and job.specs.keys() == {handler.delegates_to}
    alone = alone and not job.lookups
    return component if component is not None and component.is_vectorized and alone else None


def batch_keying(
    job: Job, key_event: Callable[[Any], Any]
) -> Callable[[list[Any]], tuple[list[Key], list[datetime], list[Any]] | None] | None:
    """Return the handler's `key_batch` if it can replace a source's `key_event`; otherwise `None`. Without a vectorised
    component, `key_batch` is not faster (see the benchmarks), so it is not used.
    """
    handler = job.handler
    if not isinstance(handler, VectorizedHandler) or key_event != handler.key_event or not vectorized_component(job):
        return None
    return handler.key_batch if _stands_for(handler, "key_batch", "key_event") else None


def _stands_for(handler: Handler, many: str, one: str) -> bool:
    """Return `True` if a handler's batch attribute, such as `key_batch`, can replace its per-item method, such as
    `key_event`. This requires that the same class defines both, or that a subclass or the instance defines the
    attribute. If a subclass overrides only the method, the method must be called.
    """
    if many in vars(handler):
        return True
    classes = type(handler).__mro__
    defined = (next(at for at, cls in enumerate(classes) if name in vars(cls)) for name in (many, one))
    return next(defined) <= next(defined)
