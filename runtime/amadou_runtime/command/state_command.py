"""The commands that look into stored state: `amadou state`. Each imports what it needs, so that looking for a key in a
savepoint takes as little time as possible.
"""

import sys
from datetime import datetime
from pathlib import Path
from typing import Annotated

import typer

from amadou_runtime.command.options import ConfOption, MasterOption, ParamOption, StageOption, errors_as_messages, pairs

state_app = typer.Typer(help="Look into the state of a checkpoint or savepoint.", no_args_is_help=True)

PlaceArgument = Annotated[
    str, typer.Argument(metavar="PLACE", help="A checkpoint or a savepoint. A run may use it.", show_default=False)
]
KeyArgument = Annotated[
    str,
    typer.Argument(
        metavar="KEY",
        help="The key. If it is not a string, write it as in Python: 17, b'x' or (1, 'a').",
        show_default=False,
    ),
]
JobOption = Annotated[
    str | None,
    typer.Option(metavar="TARGET", help="The job, to show values with its classes, and the state of its windows."),
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON.")]


@state_app.command("keys", epilog="Example: amadou state keys state/ --biggest 10")
def keys(
    place: PlaceArgument,
    prefix: Annotated[
        str | None, typer.Option(metavar="TEXT", help="Only keys that are strings and begin with this text.")
    ] = None,
    count: Annotated[bool, typer.Option("--count", help="Print only the number of keys.")] = False,
    biggest: Annotated[
        int | None, typer.Option(metavar="N", min=1, help="The N keys with the most state, biggest first.")
    ] = None,
    oldest: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            min=1,
            help="The N keys for which something is due first: a timer, the expiry of state, or a held event.",
        ),
    ] = None,
    limit: Annotated[int | None, typer.Option(metavar="N", min=1, help="At most N keys. Default: all.")] = None,
    as_json: JsonOption = False,
    stage: StageOption = None,
    master: MasterOption = None,
    conf: ConfOption = None,
) -> None:
    """List the keys with state or timers, with their sizes."""
    if biggest is not None and oldest is not None:
        raise typer.BadParameter("--biggest and --oldest are mutually exclusive: use only one of them")
    from amadou_runtime.command.opened_state import open_state
    from amadou_runtime.command.state_output import print_keys

    with errors_as_messages():
        state = open_state(place, stage, master, pairs(conf, "--conf"))
        print_keys(state, prefix, limit, count=count, biggest=biggest, oldest=oldest, as_json=as_json)


@state_app.command("show", epilog="Example: amadou state show state/ news --job views.py")
def show(
    place: PlaceArgument,
    key: KeyArgument,
    as_json: JsonOption = False,
    job: JobOption = None,
    param: ParamOption = None,
    stage: StageOption = None,
    master: MasterOption = None,
    conf: ConfOption = None,
) -> None:
    """Show a key's state, timers and held events."""
    from amadou_runtime.command.opened_state import job_for, open_state
    from amadou_runtime.command.state_output import print_key

    with errors_as_messages():
        state = open_state(place, stage, master, pairs(conf, "--conf"))
        if not print_key(state, key, job_for(job, pairs(param, "-p"), state.job), as_json=as_json):
            print(f"{place} has no state for the key {key!r}", file=sys.stderr)
            raise typer.Exit(1)


@state_app.command("history", epilog="Example: amadou state history state/ news")
def history(
    checkpoint: PlaceArgument,
    key: KeyArgument,
    as_json: JsonOption = False,
    job: JobOption = None,
    param: ParamOption = None,
    stage: StageOption = None,
    master: MasterOption = None,
    conf: ConfOption = None,
) -> None:
    """Show how a key's state changed in the batches that Spark retains, a hundred at most."""
    from amadou_runtime.command.opened_state import job_for, open_state
    from amadou_runtime.command.state_output import print_history
    from amadou_runtime.savepoint.savepoint import Savepoint

    with errors_as_messages():
        state = open_state(checkpoint, stage, master, pairs(conf, "--conf"))
        if isinstance(state, Savepoint):
            raise typer.BadParameter("a savepoint has no history: use the checkpoint", param_hint="PLACE")
        if not print_history(state, key, job_for(job, pairs(param, "-p"), state.job), as_json=as_json):
            print(f"{checkpoint} has no state for the key {key!r} in the retained batches", file=sys.stderr)
            raise typer.Exit(1)


@state_app.command("export", epilog="Example: amadou state export savepoints/today state.jsonl")
def export(
    place: PlaceArgument,
    file: Annotated[Path, typer.Argument(metavar="FILE", help="The new file: .jsonl, or .parquet.")],
    key: Annotated[list[str] | None, typer.Option(metavar="KEY", help="Only this key. Can be repeated.")] = None,
    prefix: Annotated[
        str | None, typer.Option(metavar="TEXT", help="Only keys that are strings and begin with this text.")
    ] = None,
    spec: Annotated[list[str] | None, typer.Option(metavar="NAME", help="Only this state. Can be repeated.")] = None,
    job: JobOption = None,
    param: ParamOption = None,
    stage: StageOption = None,
    master: MasterOption = None,
    conf: ConfOption = None,
) -> None:
    """Write state to a file: a row for each key and spec, and a row for each key's timers."""
    from amadou_runtime.command.opened_state import job_for, open_state
    from amadou_runtime.command.state_rows import export_rows

    with errors_as_messages():
        state = open_state(place, stage, master, pairs(conf, "--conf"))
        number = export_rows(state, place, file, key, prefix, spec, job_for(job, pairs(param, "-p"), state.job))
    print(f"{file}: {number:,} rows")


@state_app.command("import", epilog="Example: amadou state import mended.jsonl mended --into savepoints/today")
def import_(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A file with rows, as export writes it.")],
    directory: Annotated[Path, typer.Argument(metavar="DIR", help="New directory for the savepoint.")],
    into: Annotated[
        Path | None,
        typer.Option(metavar="SAVEPOINT", help="The savepoint that the rows change. It stays as it is."),
    ] = None,
    job: Annotated[
        str | None, typer.Option(metavar="TARGET", help="The job. Needed without --into: the savepoint is then new.")
    ] = None,
    watermark: Annotated[
        str | None, typer.Option(metavar="TIME", help="The watermark, in ISO format. Default: that of the savepoint.")
    ] = None,
    stage: StageOption = None,
    param: ParamOption = None,
) -> None:
    """Write a savepoint with the state in a file: to seed a job from history, or to mend entries of a savepoint. A row
    replaces the state of its key and spec; a row with the value null removes it.
    """
    if into is None and job is None:
        raise typer.BadParameter("name the savepoint to change with --into, or the job with --job")
    try:
        time = None if watermark is None else datetime.fromisoformat(watermark)
    except ValueError as error:
        raise typer.BadParameter(f"{watermark!r} is not a time in ISO format", param_hint="--watermark") from error
    if time is not None and time.tzinfo is None:
        raise typer.BadParameter(f"{watermark!r} has no time zone", param_hint="--watermark")
    from amadou_runtime.command.state_rows import import_rows
    from amadou_runtime.jobs.load_job import load_job
    from amadou_runtime.savepoint.job_savepoint import JobSavepoint

    with errors_as_messages():
        base = None if into is None else JobSavepoint(into)
        loaded = None if job is None else load_job(job).with_params(pairs(param, "-p"), connectors=False)
        manifest = import_rows(file, directory, base, loaded, job or "", stage, time)
    print(f"{directory}: {manifest.keys:,} keys, {manifest.timers:,} timers")
