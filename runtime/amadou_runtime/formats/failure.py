"""Converts a callback's failure into an error that shows the user's own traceback first."""

import time
import traceback
from copy import copy
from datetime import datetime
from pathlib import Path
from types import TracebackType
from typing import Any

import amadou
from amadou import Job, Subject, Timer
from amadou.engine import clock_time, pack, redacted, unpack
from amadou.errors import AmadouError, CallbackError, JobError
from amadou.event_time import from_micros
from amadou.plugins import FailedBatch
from amadou.text import shortened, shown_error, shown_value, valid

_RECORD_LIMIT = 500
_ERROR_LIMIT = 20_000
_OURS = tuple(map(str, (Path(amadou.__file__).parent, Path(__file__).parents[1])))


def callback_error(
    error: Exception,
    *,
    handler: str,
    callback: str,
    source: str | None = None,
    key: Any = None,
    record: Any = None,
    watermark: datetime | None = None,
    advice: str | None = None,
) -> CallbackError:
    """Return an error that names the failed callback and its input. The error's cause is already set: raise the error
    without `from`.

    The cause is the original error, with a traceback that starts at the user's own code. If this traceback contains a
    secret, the returned error has no cause.

    :param error: the original error
    """
    shown = user_traceback(error)
    failed = CallbackError(
        handler=handler,
        callback=callback,
        error=redacted(shown_error(error)),
        user_traceback=redacted(shown),
        source=source,
        key=_carried_key(key),
        record=None if record is None else redacted(_shown_record(record)),
        watermark=None if watermark is None else watermark.isoformat(),
        advice=advice,
    )
    if isinstance(error, AmadouError):
        error.__cause__, error.__suppress_context__ = None, True  # amadou's own causes do not help the user
    # Python would print the cause, including its secrets.
    is_open = redacted(shown) == shown
    failed.__cause__ = error.with_traceback(_from_user_frame(error.__traceback__)) if is_open else None
    return failed


def failed_batch(number: int, error: AmadouError, began: float) -> FailedBatch:
    """Return the report of a failed batch.

    :param began: result of `time.monotonic` at the beginning of the batch
    """
    line = shown_error(error)
    if isinstance(error, CallbackError):
        line = f"{error.handler}.{error.callback} failed: {error.error}"
        line = line if error.stage is None else f"stage {error.stage}: {line}"
    return FailedBatch(
        number,
        shortened(line.splitlines()[0], _RECORD_LIMIT),
        shortened(valid(str(copy(error))), _ERROR_LIMIT),  # a copy has no cause, and shows the traceback itself
        time.monotonic() - began,
        from_micros(clock_time()),
    )


def cannot_travel(job: Job, error: Exception) -> JobError:
    """Return the error for a job that cannot be sent to the workers.

    :param error: the original error
    """
    return JobError(
        job.name,
        (
            "the job cannot be sent to the workers. Create connections, locks and similar objects in "
            f"{type(job.handler).__name__}.open(), not earlier ({type(error).__name__}: {error})",
        ),
    )


def shown_traceback(error: BaseException) -> str:
    """Return an error's traceback with secrets redacted. With `exc_info`, `logging` would show the secrets."""
    return redacted("".join(traceback.format_exception(error))).rstrip()


def called(function: Any) -> str:
    """Return a function's name for error messages."""
    return str(getattr(function, "__name__", type(function).__name__))


def user_traceback(error: Exception) -> str:
    """Return an error's traceback as a string, without amadou's own frames."""
    cut = traceback.TracebackException.from_exception(error, capture_locals=False)
    if isinstance(error, AmadouError):
        cut.__cause__ = cut.__context__ = None
    cut.stack = traceback.StackSummary.from_list(frame for frame in cut.stack if not frame.filename.startswith(_OURS))
    return valid("".join(cut.format()))


def _from_user_frame(frames: TracebackType | None) -> TracebackType | None:
    while frames is not None and frames.tb_frame.f_code.co_filename.startswith(_OURS):
        frames = frames.tb_next
    return frames


def shown_state(spec: Any, key: Any, packed: bytes, subject: Subject | None = None) -> Any:
    """Return packed state in readable form, as its spec shows it. If the conversion fails, return the state as stored.

    :param spec: the state's spec; `None` if the job no longer has this spec
    :param subject: the subject of a callback, to show what the callback sees; `None` to show expired parts, too
    """
    stored: Any = packed
    try:
        stored = unpack(packed)
        return stored if spec is None else spec.shown_stored(key, stored, subject)
    except Exception:  # the user's codec can fail; this failure may be the very error to report
        return stored


def _shown_record(record: Any) -> str:
    return valid(str(record)) if type(record) is Timer else shown_value(record, _RECORD_LIMIT)


def _carried_key(key: Any) -> Any:
    """Return a key in a form that can be sent to another process. A key that cannot be packed becomes a string."""
    try:
        pack(key)
    except AmadouError:
        return valid(key) if type(key) is str else shown_value(key)
    return key
