"""Describes a job in tables: its handler, state, ports, sources, dependencies and parameters."""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from amadou import Job, Param
from amadou.engine import HIDDEN, MISSING, params_of, shown_bytes
from amadou.errors import CheckpointError
from amadou.paths import is_remote, local_path
from amadou.text import qualified
from amadou_runtime.command.drawn_stages import drawn_stages
from amadou_runtime.formats.documents import UNREADABLE
from amadou_runtime.jobs.given_path import check_given
from amadou_runtime.jobs.job_document import (
    connector_text,
    fetch_text,
    handler_name,
    handler_summary,
    job_settings,
    setting_text,
    spec_kind,
)
from amadou_runtime.jobs.stages import readers

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table


def describe(job: Job, given: Mapping[str, str], console: "Console", checkpoint: str | Path | None = None) -> None:
    """Print tables of a job's handler, state, ports, sources, dependencies and parameters. The parameters need not have
    values. For a job with several stages, print a picture of the stages, and then the tables of each stage.

    :param given: parameter values as strings, by name
    :param checkpoint: the job's checkpoint; if set, two more tables show the size of the stored state and the progress
        of each source partition
    :raises ParamError: `given` names a parameter that the job does not have, or a value does not fit its parameter's
        type
    :raises CheckpointError: the directory does not contain a run's checkpoint, or the checkpoint cannot be read
    """
    params = {param.name: param for param in job.params}
    if all(_is_given(param, given) for param in params.values()) or set(given) - set(params):
        job = job.with_params(given)
    if job.stages:
        from rich.text import Text

        console.print(Text(job.name, style="bold"), *drawn_stages(job), "", sep="\n", soft_wrap=True)
    for name, stage in job.by_stage.items():
        console.print(_job_table(stage), "")
        of_stage = (_state(stage), _lookups(stage), _ports(stage, readers(job, name)), _sources(stage))
        for table in (*of_stage, _dependencies(stage)):
            if table.row_count:
                console.print(table)
    if params:
        console.print(_params(params, given))
    if checkpoint is not None:
        for table in _progress(str(checkpoint)):
            console.print(table)


def _job_table(job: Job) -> "Table":
    table = _table(job.name, "", "", show_header=False)
    table.add_row("handler", handler_name(job))
    summary = handler_summary(job)
    if summary:
        table.add_row("", summary)
    table.add_row("timers", "yes" if job.has_timers else "no")
    for name, text in job_settings(job).items():
        table.add_row(name, text)
    if job.plugins:
        table.add_row("plugins", ", ".join(map(str, job.plugins)))
    return table


def _state(job: Job) -> "Table":
    table = _table("State", "name", "kind", "type", "ttl")
    for name, spec in job.specs.items():
        table.add_row(name, spec_kind(spec), spec.shown_type(), "" if spec.ttl is None else setting_text(spec.ttl))
    return table


def _lookups(job: Job) -> "Table":
    table = _table("Lookups", "name", "from", "type", "keys per call", "on failure")
    for name, lookup in job.lookups.items():
        table.add_row(
            name, fetch_text(lookup), lookup.shown_type(), f"{lookup.batch_size:,}", setting_text(lookup.on_failure)
        )
    return table


def _ports(job: Job, fed: Mapping[str, Sequence[str]]) -> "Table":
    """
    :param fed: the stages that each port feeds
    """
    table = _table("Ports", "port", "type", "sink", "guarantee")
    for name, spec in job.ports.items():
        label = [name, spec.shown_type()]
        for stage in fed.get(name, ()):
            table.add_row(*label, f"stage {stage}", "exactly-once")
            label = ["", ""]
        if name not in job.sinks and name not in fed:
            table.add_row(*label, "JSON lines in the checkpoint", "exactly-once")
        for sink in [sink for port, sink in job.all_sinks if port == name]:
            table.add_row(*label, connector_text(sink), sink.guarantee)
            label = ["", ""]
    return table


def _sources(job: Job) -> "Table":
    table = _table("Sources", "source", "from", "bounded", "events by")
    for name, source in job.sources.items():
        bounded = "?" if params_of([source]) else "yes" if source.bounded else "no"
        bounded = "" if name in job.fed_sources else bounded
        by = (
            "key_event of the handler" if source.key_event is None else getattr(source.key_event, "__name__", "its own")
        )
        table.add_row(name, connector_text(source), bounded, by)
    return table


def _progress(checkpoint: str) -> list["Table"]:
    from amadou_runtime.runs.files import LocalFiles
    from amadou_runtime.spark.checkpoint import read_metadata
    from amadou_runtime.spark.clock import CLOCK_DIRECTORY, read_clock

    check_given(checkpoint, CheckpointError)
    if is_remote(checkpoint):
        why = f"amadou describe reads local checkpoints only: run amadou console {checkpoint}, which starts Spark"
        raise CheckpointError(checkpoint, why)
    files = LocalFiles(checkpoint, Path(local_path(checkpoint)))
    directory = files.directory / CLOCK_DIRECTORY
    try:
        done = max((int(path.name) for path in directory.iterdir() if path.name.isdecimal()), default=None)
        if done is None:
            return []
        stages = read_clock(files.read(f"{CLOCK_DIRECTORY}/{done}") or "")
        batch = done + read_metadata(files).batches_before
        partitions = [
            {**each, "source": qualified(name, each["source"])}
            for name, of in stages.items()
            for each in of["partitions"]
        ]
        ranges = {name: of["ranges"] for name, of in stages.items()}
        return [_stored_state(batch, ranges), _partitions(batch, partitions)]
    except FileNotFoundError:
        why = "this directory does not contain a run's checkpoint: check that the path is correct"
        raise CheckpointError(checkpoint, why) from None
    except (OSError, *UNREADABLE) as error:
        raise CheckpointError(checkpoint, f"its progress cannot be read: check the files ({error})") from error


def _stored_state(batch: int, stored: Mapping[str, Mapping[str, Sequence[Any]]]) -> "Table":
    """
    :param stored: the statuses of the key ranges, by stage
    """
    from amadou_runtime.core.key_range import RangeStatus

    columns = ([] if "" in stored else ["stage"]) + ["keys", "entries", "size", "timers pending"]
    table = _table(f"Stored state after batch {batch}", *columns)
    for stage, statuses in stored.items():
        ranges = [RangeStatus(*status) for status in statuses.values()]
        table.add_row(
            *([stage] if stage else []),
            f"{sum(each.keys for each in ranges):,}",
            f"{sum(each.entries for each in ranges):,}",
            shown_bytes(sum(each.state_bytes for each in ranges)),
            f"{sum(each.timers_pending for each in ranges):,}",
        )
    return table


def _partitions(batch: int, partitions: Iterable[Mapping[str, Any]]) -> "Table":
    table = _table(f"Sources after batch {batch}", "source", "partition", "newest event", "records behind", "age", "")
    for each in partitions:
        cells = (each[name] for name in ("source", "partition", "newest", "lag", "age"))
        table.add_row(
            *("" if cell is None else str(cell) for cell in cells),
            _hold(each),
        )
    return table


def _hold(partition: Mapping[str, Any]) -> str:
    if not partition["holds_back"]:
        return ""
    return "the watermark waits for its first event" if partition["newest"] is None else "holds the watermark back"


def _dependencies(job: Job) -> "Table":
    table = _table("Dependencies", "source", "needs", "threshold", "max held")
    for each in job.dependencies:
        most = f"{each.max_held:,} events" if isinstance(each.max_held, int) else setting_text(each.max_held)
        table.add_row(each.dependent, each.on, setting_text(each.threshold), most)
    return table


def _params(params: Mapping[str, Param], given: Mapping[str, str]) -> "Table":
    table = _table("Parameters", "name", "type", "default", "value")
    for name, param in params.items():
        default = "" if param.default is MISSING else HIDDEN if param.secret else repr(param.default)
        table.add_row(name, getattr(param.type, "__name__", repr(param.type)), default, _value(param, given))
    return table


def _value(param: Param, given: Mapping[str, str]) -> str:
    if not _is_given(param, given):
        return f"missing: -p {param.name}=…"
    place = param.place(given)
    origin = "default" if place is None else place.origin if place.name == param.name else place.name
    return f"{param.value(given)!r} ({origin})"


def _is_given(param: Param, given: Mapping[str, str]) -> bool:
    return param.place(given) is not None or param.default is not MISSING


def _table(title: str, *columns: str, show_header: bool = True) -> "Table":
    from rich import box
    from rich.table import Table

    table = Table(
        title=title,
        title_justify="left",
        title_style="bold",
        box=box.SIMPLE_HEAD if show_header else None,
        show_header=show_header,
        header_style="dim",
        padding=(0, 2, 0, 0) if not show_header else (0, 1),
    )
    for column in columns:
        table.add_column(column, overflow="fold")
    return table
