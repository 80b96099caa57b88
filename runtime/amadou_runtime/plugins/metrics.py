import logging
from collections.abc import Mapping
from numbers import Real
from typing import Any

import attrs

from amadou.engine import redacted
from amadou.plugins import BatchReport, Metric
from amadou_runtime.formats.failure import shown_traceback

_logger = logging.getLogger("amadou")


def guarded(metric: Metric, plugin: str) -> Metric:
    """Return the metric with a `read` function that never raises an error. This function logs the first failure, and
    then always returns `None`.

    :param plugin: name of the plugin that registered the metric
    """
    has_failed = False

    def read(batch: BatchReport) -> float | Mapping[str, float] | None:
        nonlocal has_failed
        if has_failed:
            return None
        try:
            given = metric.read(batch)
            _check(metric, given)
            return given
        except Exception as error:
            has_failed = True
            message = f"the metric {metric.name} of the plugin {plugin} failed and is omitted for the rest of the run"
            why = redacted(f"{type(error).__name__}: {error}")
            _logger.warning("%s: %s\n%s", message, why, shown_traceback(error))
            return None

    return attrs.evolve(metric, read=read)


def _check(metric: Metric, given: Any) -> None:
    if given is None:
        return
    if metric.label is None:
        if not isinstance(given, Real):
            raise TypeError(f"it returned {given!r}, not a number")
    elif not isinstance(given, Mapping) or not all(isinstance(number, Real) for number in given.values()):
        raise TypeError(f"it returned {given!r}, not a mapping from values of the label {metric.label} to numbers")
