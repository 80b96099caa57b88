"""Logs as JSON lines, for systems that collect the logs of processes."""

import logging
import os
import socketserver
import sys
import threading
import traceback
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from datetime import datetime, timezone
from types import MappingProxyType, TracebackType
from typing import Any, Final

import orjson

from amadou.text import redacted, shown_error, shown_value, valid

LOG_FORMAT: Final = "AMADOU_LOG_FORMAT"
"""Environment variable with the format of logs, `text` or `json`, also in workers."""
EXECUTOR_LOG_FORMAT: Final = f"spark.executorEnv.{LOG_FORMAT}"
"""The Spark setting that sets this variable in workers."""
_context: ContextVar[Mapping[str, Any]] = ContextVar("amadou_log_context", default=MappingProxyType({}))
_KEPT = "_amadou_log_context"
_logger = logging.getLogger("amadou")


@contextmanager
def log_context(**fields: Any) -> Iterator[None]:
    """Within the context, add fields to the JSON lines that this thread logs. An error that leaves the context keeps
    the fields; see `keep_context`.
    """
    before = _context.get()
    _context.set({**before, **fields})
    try:
        yield
    except Exception as error:
        keep_context(error)
        raise
    finally:
        _context.set(before)


def keep_context(error: Exception) -> None:
    """Let the JSON line that shows an error have the fields of this context, also if it is logged elsewhere."""
    vars(error)[_KEPT] = {**_context.get(), **kept_context(error)}


def kept_context(error: BaseException) -> Mapping[str, Any]:
    """Return the fields of the contexts in which an error was raised."""
    fields: Mapping[str, Any] = vars(error).get(_KEPT, {})
    return fields


def log_batch(number: int) -> None:
    """Add the number of a batch to the JSON lines that this worker logs, until the worker's next batch."""
    _context.set({**_context.get(), "batch": number})


def log_as_json(job: str) -> None:
    """Let this process log to standard error as JSON lines. Uncaught errors, also of threads, of `__del__` and of
    requests to servers in this process, and Python's warnings are also logged.

    :param job: the job's name, which each line shows
    """
    handler = logging.StreamHandler()
    handler.setFormatter(JsonFormatter(job))
    logging.basicConfig(handlers=[handler], force=True)
    _logger.setLevel(logging.INFO)
    logging.getLogger("py4j").propagate = False  # its errors are part of the run's error
    logging.captureWarnings(True)
    sys.excepthook = _log_uncaught
    threading.excepthook = _log_uncaught_of_thread
    sys.unraisablehook = _log_ignored
    socketserver.BaseServer.handle_error = _log_failed_request  # type: ignore[assignment, method-assign]


def json_formatter() -> "JsonFormatter | None":
    """Return the formatter of this process's JSON lines; `None` if it logs text."""
    formatters = [handler.formatter for handler in logging.getLogger().handlers]
    return next((each for each in formatters if isinstance(each, JsonFormatter)), None)


def log_worker(job: str) -> None:
    """Let this worker log in the format of the run.

    :param job: the job's name
    """
    if os.environ.get(LOG_FORMAT) == "json":
        log_as_json(job)


class JsonFormatter(logging.Formatter):
    """Formats log records as JSON objects.

    :param job: the job's name
    """

    def __init__(self, job: str) -> None:
        super().__init__()
        self._job = job

    def format(self, record: logging.LogRecord) -> str:
        """Return a record as one line. The attribute `fields` of the record can contain more fields. Values that
        JSON cannot contain become text, so this method never fails.
        """
        time = datetime.fromtimestamp(record.created, timezone.utc).isoformat(timespec="milliseconds")
        own = {"time": time.replace("+00:00", "Z"), "level": valid(record.levelname), "logger": valid(record.name)}
        fields = {
            **own,
            **_message(record),
            "job": self._job,
            **_context.get(),
        }
        more = getattr(record, "fields", None)
        if isinstance(more, Mapping):
            fields.update(more)
        if record.exc_info and record.exc_info[1] is not None:
            error = record.exc_info[1]
            fields.update(kept_context(error), error=error_fields(error))
        shown = {  # whatever the secrets are, these texts stay
            _name(name): value if own.get(name) is value else orjson.Fragment(_encoded(value))
            for name, value in fields.items()
        }
        return orjson.dumps(shown).decode()


def error_fields(error: BaseException, shown: str = "") -> dict[str, str]:
    """Return the fields of an error.

    :param shown: the traceback; by default, that of the error and its causes
    """
    shown = shown or "".join(traceback.format_exception(error))
    return {"type": type(error).__name__, "traceback": _text(shown)}


def _message(record: logging.LogRecord) -> dict[str, str]:
    """Return the message of a record. If its arguments do not fit, return the text without them, and the reason."""
    try:
        return {"message": record.getMessage()}
    except Exception as error:
        reason = f"{record.pathname}:{record.lineno}: {shown_error(error)}"
        return {"message": _text(record.msg), "format_error": reason}


def _encoded(value: Any) -> bytes:
    try:
        return orjson.dumps(_without_secrets(value), default=_text, option=orjson.OPT_NON_STR_KEYS)
    except (orjson.JSONEncodeError, RecursionError):  # such as a key of a type that JSON does not have
        return orjson.dumps(_text(value))


def _without_secrets(value: Any) -> Any:
    """Return a value with all its texts changed as by `_text`, also those in mappings and sequences."""
    if isinstance(value, str):
        return _text(value)
    if isinstance(value, Mapping):
        return {_text(key) if isinstance(key, str) else key: _without_secrets(of) for key, of in value.items()}
    if isinstance(value, (list, tuple)):
        return [_without_secrets(each) for each in value]
    return value


def _name(name: Any) -> str:
    """Return the name of a field. A name that may be one of amadou's stays as it is."""
    return name if isinstance(name, str) and name.isidentifier() else _text(name)


def _text(value: Any) -> str:
    return valid(redacted(value)) if isinstance(value, str) else redacted(shown_value(value))


def _log_uncaught(kind: type[BaseException], error: BaseException, frames: TracebackType | None) -> None:
    _logger.critical("%s", shown_error(error), exc_info=(kind, error, frames))


def _log_uncaught_of_thread(uncaught: threading.ExceptHookArgs) -> None:
    kind, error, frames, thread = uncaught
    if error is not None and not isinstance(error, SystemExit):
        name = "a thread" if thread is None else f"the thread {thread.name}"
        _logger.error("%s in %s", shown_error(error), name, exc_info=(kind, error, frames))


def _log_failed_request(server: socketserver.BaseServer, request: Any, client_address: Any) -> None:
    error = sys.exc_info()[1]
    if error is not None:
        _logger.error("%s in a request to %s", shown_error(error), type(server).__name__, exc_info=error)


def _log_ignored(ignored: "sys.UnraisableHookArgs") -> None:
    """Log an error that Python cannot raise, such as one of `__del__`."""
    error = ignored.exc_value
    if error is not None:
        place = ignored.err_msg or "Exception ignored in"
        if ignored.object is not None:  # from Python 3.14 on, the message may name it
            place = f"{place}: {shown_value(ignored.object)}"
        _logger.error("%s (%s)", shown_error(error), place, exc_info=(type(error), error, ignored.exc_traceback))
