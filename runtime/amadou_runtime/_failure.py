"""How a failing callback becomes an error that shows the user's own traceback first."""

import traceback
from datetime import datetime
from types import TracebackType
from typing import Any

from amadou.errors import CallbackError

_RECORD_LIMIT = 500


def callback_error(
    error: BaseException,
    frames: TracebackType | None,
    *,
    handler: str,
    callback: str,
    source: str | None = None,
    key: Any = None,
    record: Any = None,
    watermark: datetime | None = None,
) -> CallbackError:
    """The error that tells which callback failed on what.

    :param error: what was raised
    :param frames: its traceback from the user's own frame on
    """
    shown = repr(record)
    return CallbackError(
        handler=handler,
        callback=callback,
        error=f"{type(error).__name__}: {error}",
        user_traceback="".join(traceback.format_exception(type(error), error, frames, chain=frames is not None)),
        source=source,
        key=key,
        record=None if record is None else shown if len(shown) <= _RECORD_LIMIT else f"{shown[:_RECORD_LIMIT]}…",
        watermark=None if watermark is None else watermark.isoformat(),
    )
