"""The figures that `amadou top` shows, and where they come from."""

import math
from collections.abc import Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Any, TypeAlias

import attrs
from cattrs import BaseValidationError, Converter

from amadou import AmadouError
from amadou_runtime.formats.documents import exact

if TYPE_CHECKING:
    from amadou_plugins.console import StoredRun
    from amadou_runtime.command.console_client import ConsoleClient

Documents: TypeAlias = "ConsoleClient | StoredRun"
"""Where the documents about a run come from: its console, or its checkpoint."""


@attrs.frozen
class Batch:
    """The last batch of a run."""

    watermark: datetime | None
    stage_seconds: Mapping[str, float]


@attrs.frozen
class SourceProgress:
    """The progress of a source."""

    name: str
    newest: datetime | None
    lag: float | None
    age_seconds: float | None
    held: int
    holds_back: bool
    down: bool | None


@attrs.frozen
class StageProgress:
    """The current figures of a stage."""

    name: str
    watermark: datetime | None
    events_per_second: float
    keys: int
    timers_pending: int


@attrs.frozen
class Totals:
    """Counts of a run."""

    events: int


@attrs.frozen
class Overview:
    """A run's status and current figures."""

    job: str
    engine: str
    checkpoint: str | None
    trigger: str | None
    trigger_seconds: float | None
    status: str
    error: str | None
    started: datetime | None
    now: datetime
    batches: int
    figures: Mapping[str, float | None]
    totals: Totals
    last_batch: Batch | None
    sources: tuple[SourceProgress, ...]
    stages: tuple[StageProgress, ...] = ()


@attrs.frozen
class Chart:
    """A figure of the last hour: pairs of time and value."""

    title: str
    unit: str
    points: tuple[tuple[float, float | None], ...]

    @property
    def values(self) -> list[float | None]:
        return [value for _, value in self.points]


@attrs.frozen
class View:
    """A run at one moment."""

    overview: Overview
    charts: Mapping[str, Chart]


def read_view(documents: Documents) -> View:
    """Return the run's current figures.

    :raises AmadouError: a document cannot be read, or has a different form
    """
    try:
        return _converter.structure({"overview": documents.overview(), "charts": documents.charts()}, View)
    except BaseValidationError as error:
        raise AmadouError(
            "the answer is not that of a console: use the address that a run with --console printed, and the version "
            "of amadou that the run uses"
        ) from error


def _time(text: Any, _: Any) -> datetime:
    return datetime.fromisoformat(text)


def _number(value: Any, _: Any) -> float:
    number = float(value)
    if not math.isfinite(number):
        raise ValueError(f"{number} is not a finite number")
    return number


_converter = Converter()
_converter.register_structure_hook(datetime, _time)
_converter.register_structure_hook(float, _number)
_converter.register_structure_hook(int, exact)
