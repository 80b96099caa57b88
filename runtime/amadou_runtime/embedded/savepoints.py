"""Savepoints of the embedded engine."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

from amadou import AmadouError, Job
from amadou.errors import SourceError
from amadou.plugins import Source
from amadou_runtime.core.references import ReferenceTable, saved_name
from amadou_runtime.core.watermark import Watermark
from amadou_runtime.embedded.engine import Embedded
from amadou_runtime.formats.documents import UNREADABLE
from amadou_runtime.jobs.state_schema import Known, described, with_structures
from amadou_runtime.savepoint.manifest import Manifest
from amadou_runtime.savepoint.savepoint import (
    SavedProgress,
    Savepoint,
    clock_fields,
    newest_times,
    write_group,
)
from amadou_runtime.store.memory import EmbeddedState


class JobProgress:
    """The progress of a job: watermark, state of dependencies, and the positions of sources.

    :ivar watermark: the watermark
    :ivar dependency_state: see `Decision.state`
    :ivar positions: the positions of sources after the records that have been read; see `Source.read_from`
    :ivar ever_read: the names of all sources that the job has read
    :ivar known: all structures of the job's state; see `jobs.state_schema`
    """

    def __init__(self, job: Job) -> None:
        self.watermark = Watermark(job)
        self.dependency_state: bytes | None = None
        self.positions: dict[str, Any] = {}
        self.ever_read = set(job.stream_sources)
        self.known: Known = with_structures({}, described(job))

    def read(self, job: Job, *, keeps_position: bool) -> dict[str, Iterable[tuple[str, Iterable[Any]]]]:
        """Return the records after the positions, by source, and advance the positions.

        :param keeps_position: `False` if the positions are not needed
        """
        if not keeps_position:
            return {name: source.records_by_partition() for name, source in job.stream_sources.items()}
        records = {}
        for name, source in job.stream_sources.items():
            position = self.positions.get(name)
            with nullcontext() if position is None else _continuing(name, source):
                records[name], self.positions[name] = source.read_from(position)
        return records


def load_savepoint(job: Job, savepoint: Savepoint, engine: Embedded) -> JobProgress:
    """Load a savepoint into an engine, and return the job's progress.

    :param job: a job with one handler, or a stage
    :raises SavepointError: the savepoint cannot be read
    :raises SourceError: a source cannot continue at its position in the savepoint
    """
    manifest, progress = savepoint.manifest, JobProgress(job)
    engine.state = state_of(savepoint, job)
    engine.letters = savepoint.letters
    engine.references |= saved_tables(savepoint, job)
    progress.watermark.load(savepoint.clock["watermark"])
    progress.dependency_state = savepoint.dependency_state
    progress.known = with_structures(manifest.structures, described(job))
    progress.ever_read |= set(manifest.ever_read)
    for name, source in job.stream_sources.items():
        of = manifest.sources.get(name, {})
        if of.get("position") is not None:
            progress.positions[name] = of["position"]
        elif of.get("offset") is not None:
            with _continuing(name, source):
                progress.positions[name] = source.position_at(of["offset"], savepoint.source_files(name))
    return progress


@contextmanager
def _continuing(name: str, source: Source) -> Iterator[None]:
    """Raise a `SourceError` if a source cannot read the position at which it should continue."""
    try:
        yield
    except AmadouError:
        raise
    except UNREADABLE as error:
        why = f"{type(error).__name__}: {error}"
        raise SourceError(
            f"the source {name!r} ({type(source).__name__}) cannot continue at its position in the savepoint ({why}): "
            f"use the kind of source with which the savepoint was written, or another savepoint"
        ) from error


def saved_tables(savepoint: Savepoint, job: Job) -> dict[str, ReferenceTable]:
    """Return the references that a savepoint contains, without those that the job drops, by name."""
    return {name: table for name, table in savepoint.references() if job.retired.get(name) != "drop"}


def state_of(savepoint: Savepoint, job: Job) -> EmbeddedState:
    """Return the state in a savepoint."""
    state = EmbeddedState()
    for _, group in savepoint.groups_for(job, 1, range(1), by_key=True):
        state = EmbeddedState.of_group(group)
    return state


def save(job: Job, run: str, batch: int, engine: Embedded, progress: JobProgress, directory: Path) -> Manifest:
    """Write a savepoint of a stage of a run.

    :param batch: number of the last batch
    :param directory: see `write_group`
    """
    sources = {
        name: {
            "newest": newest_times(progress.watermark.newest_times(name)),
            "position": progress.positions.get(name),
        }
        for name in job.stream_sources
    }
    saved = SavedProgress(
        engine="embedded",
        job=job.name,
        run=run,
        batch=batch,
        sources=sources,
        clock=clock_fields(progress.watermark, progress.dependency_state, engine.letters),
        structures=progress.known,
        ever_read=sorted(progress.ever_read),
        files={saved_name(name): table.to_text() for name, table in engine.references.items()},
    )
    return write_group(engine.state.whole(), saved, directory)
