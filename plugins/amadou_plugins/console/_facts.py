"""What the console shows about a run apart from its batches."""

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

import attrs

from amadou.plugins import BatchReport, DeadLetterReport, FailedBatch, Run, RunControl, StateReader
from amadou.text import qualified


def _no_batches() -> Sequence[BatchReport | FailedBatch]:
    return ()


@attrs.frozen
class RunFacts:
    """What the console shows about a run apart from its batches. See `Run` for the fields that a `Run` also has.

    :param job: the job's name
    :param sources: the names of the job's sources, with their stages if there are several: ``views.clicks``
    :param interval: the trigger's interval; `None` if it has none
    :param started: the time at which the run started; `None` for a job that is not running
    """

    job: str
    sources: Sequence[str]
    id: str
    engine: str
    checkpoint: str | None
    started: datetime | None = None
    trigger: str | None = None
    interval: timedelta | None = None
    description: Mapping[str, Any] = attrs.field(factory=dict)
    state: StateReader | None = None
    control: RunControl | None = None
    history: Callable[[], Sequence[BatchReport | FailedBatch]] = _no_batches
    reproduce: Callable[[DeadLetterReport], str] | None = None

    @classmethod
    def of(cls, run: Run, started: datetime) -> "RunFacts":
        """Return the facts about a run that starts."""
        return cls(
            run.job.name,
            [qualified(name, source) for name, stage in run.job.by_stage.items() for source in stage.external_sources],
            run.id,
            run.engine,
            run.checkpoint,
            started,
            run.trigger,
            run.interval,
            run.description,
            run.state,
            run.control,
            run.history,
            run.reproduce,
        )
