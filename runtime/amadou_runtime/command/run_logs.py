"""The logs of the command that runs a job: text or JSON lines."""

import logging
import sys
from collections.abc import Callable, Mapping
from copy import copy
from typing import Any

import attrs

from amadou import AmadouError
from amadou.plugins import RunSummary
from amadou.text import redacted
from amadou_runtime.command.printable import printable, printable_lines
from amadou_runtime.command.progress_display import progress_line
from amadou_runtime.formats.json_logs import EXECUTOR_LOG_FORMAT, error_fields, kept_context, log_as_json
from amadou_runtime.runs.progress import Progress

_logger = logging.getLogger("amadou")


@attrs.frozen
class RunLogs:
    """How the command logs what is not a log record; `None` for the default.

    :ivar settings: Spark settings that let the workers log in the same format
    """

    begin: Callable[[str], None]
    show_summary: Callable[[RunSummary], None]
    show_error: Callable[[AmadouError], None] | None = None
    log_progress: Callable[[Progress], None] | None = None
    settings: Mapping[str, str] = {}


class _PrintableFormatter(logging.Formatter):
    """Formats log records without characters that a terminal may obey: messages can contain text from data."""

    def format(self, record: logging.LogRecord) -> str:
        return printable_lines(super().format(record))


def run_logs(log_format: str, target: str) -> RunLogs:
    """Return the logs of a run, in a format.

    :param target: name of the job until it has been loaded
    """
    if log_format == "text":
        if logging.lastResort is not None:  # prints warnings, unless the job sets up logging
            logging.lastResort.setFormatter(_PrintableFormatter())
        return RunLogs(lambda job: None, print_summary)
    log_as_json(target)
    return RunLogs(log_as_json, _log_summary, _log_error, _log_progress, {EXECUTOR_LOG_FORMAT: "json"})


def print_summary(summary: object) -> None:
    """Print the summary of a run, without secrets, and without characters that a terminal may obey."""
    print(printable(redacted(str(summary))), file=sys.stderr)


def _log_progress(progress: Progress) -> None:
    _logger.info("%s", progress_line(progress), extra=_fields(progress, progress.events_per_second))


def _log_summary(summary: RunSummary) -> None:
    _logger.info("%s", summary, extra=_fields(summary))


def _log_error(error: AmadouError) -> None:
    shown = redacted((getattr(error, "user_traceback", None) or "").rstrip())
    fields = {**kept_context(error), "error": error_fields(error, shown)}
    _logger.error("%s", str(copy(error)).removeprefix(shown).lstrip(), extra={"fields": fields})


def _fields(of: Progress | RunSummary, events_per_second: float | None = None) -> dict[str, Any]:
    counts = {name: value for name, value in attrs.asdict(of.counts).items() if value}
    speed = {} if events_per_second is None else {"events_per_second": round(events_per_second, 1)}
    return {"fields": {"batches": of.batches, "watermark": of.watermark, **speed, "counts": counts}}
