"""Turning a callback's failure into an error that shows the user's own traceback first."""

import traceback
from datetime import datetime
from pathlib import Path
from types import TracebackType
from typing import Any

import amadou
from amadou import Job, Timer
from amadou.engine import pack, redacted, unpack
from amadou.errors import AmadouError, CallbackError, JobError
from amadou.text import shown_error, shown_value, valid

_RECORD_LIMIT = 500
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
) -> CallbackError:
    """Return the error that names the failed callback and its input. The error has its cause: raise it without `from`.

    The original error becomes the cause, with its traceback cut down to the user's own frames.

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
    )
    if isinstance(error, AmadouError):
        error.__cause__, error.__suppress_context__ = None, True  # amadou's own causes do not help the user
    # Python shows a cause unredacted, with its secrets.
    is_open = redacted(shown) == shown
    failed.__cause__ = error.with_traceback(_from_user_frame(error.__traceback__)) if is_open else None
    return failed


def cannot_travel(job: Job, error: Exception) -> JobError:
    """Return the error of a job that cannot be copied to its workers.

    :param error: the original error
    """
    return JobError(
        job.name,
        (
            f"it cannot be sent to the workers: {type(error).__name__}: {error}. Open connections, locks and the "
            f"like in {type(job.handler).__name__}.open(), not in its attributes",
        ),
    )


def shown_traceback(error: BaseException) -> str:
    """Return the traceback of an error with its secrets redacted, which logging's own `exc_info` would show."""
    return redacted("".join(traceback.format_exception(error))).rstrip()


def called(function: Any) -> str:
    """Return a function's name for errors."""
    return str(getattr(function, "__name__", type(function).__name__))


def user_traceback(error: Exception) -> str:
    """Return the traceback of an error as text, cut down to the user's own frames."""
    cut = traceback.TracebackException.from_exception(error, capture_locals=False)
    if isinstance(error, AmadouError):
        cut.__cause__ = cut.__context__ = None
    cut.stack = traceback.StackSummary.from_list(frame for frame in cut.stack if not frame.filename.startswith(_OURS))
    return valid("".join(cut.format()))


def _from_user_frame(frames: TracebackType | None) -> TracebackType | None:
    while frames is not None and frames.tb_frame.f_code.co_filename.startswith(_OURS):
        frames = frames.tb_next
    return frames


def shown_state(spec: Any, key: Any, packed: bytes) -> Any:
    """Return packed state as its spec shows it, or as it is stored if that fails.

    :param spec: the spec, `None` if the job no longer has one
    """
    stored: Any = packed
    try:
        stored = unpack(packed)
        return stored if spec is None else spec.shown_stored(key, stored)
    except Exception:  # this may be the error being reported, and a codec may be the user's
        return stored


def _shown_record(record: Any) -> str:
    return valid(str(record)) if type(record) is Timer else shown_value(record, _RECORD_LIMIT)


def _carried_key(key: Any) -> Any:
    """Return a key as errors carry it between processes: a value that cannot be a key becomes text."""
    try:
        pack(key)
    except AmadouError:
        return valid(key) if type(key) is str else shown_value(key)
    return key
