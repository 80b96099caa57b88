"""The command that writes and verifies savepoints: `amadou savepoint`."""

import sys
import time
from typing import TYPE_CHECKING, Annotated

import typer

from amadou.engine import shown_bytes
from amadou.paths import is_remote
from amadou_runtime.command.options import ConfOption, MasterOption, errors_as_messages, pairs
from amadou_runtime.command.printable import plain_console, printable

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

    from amadou_runtime.savepoint.job_savepoint import JobSavepoint
    from amadou_runtime.savepoint.manifest import Manifest

SAVEPOINT_EXAMPLES = """Examples:

amadou savepoint state/ savepoints/before-upgrade

amadou savepoint --verify savepoints/before-upgrade"""
_POLL = 0.2
_EVERY = 5.0


def savepoint(
    checkpoint: Annotated[
        str, typer.Argument(metavar="CHECKPOINT", help="The checkpoint; with --verify alone, the savepoint.")
    ],
    directory: Annotated[
        str | None, typer.Argument(metavar="[DIR]", help="New directory for the savepoint.", show_default=False)
    ] = None,
    verify: Annotated[bool, typer.Option("--verify", help="Read the entire savepoint and compare checksums.")] = False,
    as_stage: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="CHECKPOINT is a savepoint of a job with one handler: write one in which it is the stage NAME.",
        ),
    ] = None,
    master: MasterOption = None,
    conf: ConfOption = None,
) -> None:
    """Write a savepoint: a copy of a job's state and progress, from which the job can start again. If the job is
    running, its run writes the savepoint and continues.
    """
    from amadou_runtime.command.progress_bar import progress_bar
    from amadou_runtime.savepoint.job_savepoint import JobSavepoint, write_as_stage

    settings = pairs(conf, "--conf")
    if directory is None and (as_stage or not verify):
        raise typer.BadParameter("name the new directory for the savepoint, or use --verify", param_hint="DIR")
    with errors_as_messages():
        if directory is not None and as_stage:
            write_as_stage(JobSavepoint(checkpoint), as_stage, directory)
        elif directory is not None:
            _write(checkpoint, directory, master, settings)
        where = checkpoint if directory is None else directory
        written = _opened(where, master, settings)
        if verify:
            with progress_bar(f"verifying {where}", written.manifest.bytes, in_bytes=True) as advance:
                written.verify(advance)
        _show(written, "verified" if verify else "written")


def _opened(directory: str, master: str | None, settings: dict[str, str]) -> "JobSavepoint":
    from amadou_runtime.savepoint.job_savepoint import JobSavepoint

    if not is_remote(directory):
        return JobSavepoint(directory)
    from amadou_runtime.spark import session
    from amadou_runtime.spark.savepoints.remote import open_savepoint

    return open_savepoint(session("amadou savepoint", master=master, conf=settings), directory)


def _write(checkpoint: str, directory: str, master: str | None, settings: dict[str, str]) -> None:
    from amadou_runtime.runs.files import checkpoint_files, local_files
    from amadou_runtime.runs.lease import holder_of
    from amadou_runtime.savepoint.savepoint import check_new
    from amadou_runtime.spark import session
    from amadou_runtime.spark.checkpoint import absolute, read_metadata
    from amadou_runtime.spark.savepoints.service import Request
    from amadou_runtime.spark.savepoints.writing import write_savepoint

    if not is_remote(directory):
        check_new(directory)
    checkpoint = absolute(checkpoint)
    local = local_files(checkpoint)
    spark = None if local is not None else session("amadou savepoint", master=master, conf=settings)
    files = local or checkpoint_files(spark, checkpoint)
    metadata = read_metadata(files)
    holder = holder_of(files)
    if holder is None:
        spark = spark or session("amadou savepoint", master=master, conf=settings)
        write_savepoint(spark, checkpoint, directory)
        return
    print(printable(f"{metadata.job} is running ({holder}): its run takes the savepoint"), file=sys.stderr)
    request = Request(files, absolute(directory))
    try:
        began = shown = time.monotonic()
        while not request.is_answered():
            time.sleep(_POLL)
            if time.monotonic() - shown >= _EVERY:
                shown = time.monotonic()
                waiting = f"{metadata.job}: waiting for the savepoint since {shown - began:.0f} s"
                print(printable(waiting), file=sys.stderr)
    finally:
        request.end()


def _show(savepoint: "JobSavepoint", done: str) -> None:
    from amadou_runtime.savepoint.manifest import EMPTY, is_empty

    console = plain_console()
    manifest = savepoint.manifest
    batch = "no batch" if manifest.batch is None else f"batch {manifest.batch}"
    heading = f"{savepoint.directory}: {done}. Job {manifest.job}, {batch}"
    if is_empty(manifest):
        console.print(f"warning: {savepoint.directory} {EMPTY}")
    if "" in savepoint.stages:
        _show_stage(savepoint.stages[""].manifest, heading, console)
        return
    console.print(heading)
    for name, stage in savepoint.stages.items():
        _show_stage(stage.manifest, f"Stage {name}", console)


def _show_stage(manifest: "Manifest", heading: str, console: "Console") -> None:
    keys = f"{manifest.keys:,} keys, {manifest.timers:,} timers, {shown_bytes(manifest.bytes)}"
    console.print(f"{heading}, watermark {manifest.watermark or 'none'}; {keys}")
    if manifest.specs:
        console.print(_specs(manifest))
    for name, count in manifest.left_out.items():
        console.print(f"{name}: in-memory state of {count:,} keys is not part of the savepoint")


def _specs(manifest: "Manifest") -> "Table":
    from rich import box
    from rich.table import Table

    table = Table("state", "type", "keys", "size", box=box.SIMPLE_HEAD, header_style="dim")
    for column in table.columns[2:]:
        column.justify = "right"
    for name, figures in manifest.specs.items():
        table.add_row(name, figures.type, f"{figures.keys:,}", shown_bytes(figures.bytes))
    for source, number in manifest.held.items():
        table.add_row(f"held events from {source}", "", f"{number:,} events", "")
    return table
