"""The command that tries new code on the state in a savepoint: `amadou rehearse`."""

import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from amadou import Job
from amadou.errors import LoadError
from amadou_runtime.command.options import ParamOption, TargetArgument, errors_as_messages, pairs
from amadou_runtime.command.printable import plain_console

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

    from amadou_runtime.savepoint.job_savepoint import JobSavepoint
    from amadou_runtime.testing.rehearsal import Difference, Rehearsal

REHEARSE_EXAMPLES = """Examples:

amadou rehearse savepoints/today views.py

amadou rehearse savepoints/today views.py --records sample.jsonl --old-git main"""
_CONTEXT = 1


def rehearse_job(
    savepoint: Annotated[str, typer.Argument(metavar="SAVEPOINT", help="A savepoint of the job.", show_default=False)],
    target: TargetArgument,
    records: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Also process these records, one in each line, with the old and the new code, and compare the "
            "outputs. Only the state of their keys is used, unless the job has stages.",
        ),
    ] = None,
    old: Annotated[
        str | None, typer.Option(metavar="TARGET", help="The old code, in another directory: FILE:name.")
    ] = None,
    old_git: Annotated[
        str | None,
        typer.Option(metavar="REV", help="The old code is this revision of the new code's Git repository."),
    ] = None,
    source: Annotated[
        str | None, typer.Option(metavar="NAME", help="The source of the records, if the job has several.")
    ] = None,
    stage: Annotated[
        str | None, typer.Option(metavar="NAME", help="The stage of the source, if several have one of this name.")
    ] = None,
    param: ParamOption = None,
) -> None:
    """Try new code on a job's state before you deploy it: decode every entry, run migrations, and check timers.

    This command needs neither Spark nor Java. The exit status is 1 if the new code cannot continue from the savepoint.
    """
    from amadou_runtime.command.progress_bar import progress_bar
    from amadou_runtime.jobs.load_job import load_job
    from amadou_runtime.savepoint.job_savepoint import JobSavepoint
    from amadou_runtime.testing.rehearsal import rehearse_stages

    params = pairs(param, "-p")
    if records is None and (old or old_git):
        raise typer.BadParameter("--old and --old-git need --records")
    if records is not None and bool(old) == bool(old_git):
        raise typer.BadParameter("--records needs the old code: use either --old or --old-git")
    if records is not None and not records.is_file():
        raise typer.BadParameter(f"{records} is not a file", param_hint="--records")
    console = plain_console(soft_wrap=True)
    with errors_as_messages():
        opened = JobSavepoint(savepoint)
        job = load_job(target).with_params(params, connectors=False)
        _check_source(job, source, stage, is_compared=records is not None)
        with progress_bar(f"reading {savepoint}", opened.manifest.keys) as advance:
            results = rehearse_stages(opened, job, advance)
        _show(results, opened, target, console)
        if any(result.has_failed for result in results.values()):
            if records is not None:
                console.print(f"The outputs for {records} were not compared, since the new code cannot continue.")
            raise typer.Exit(1)
        if records is not None:
            _compare(target, old, old_git, opened.directory, records, source, stage, params, console)


def _check_source(job: Job, source: str | None, stage: str | None, *, is_compared: bool) -> None:
    """Raise an error if the options do not name one source of the job.

    :param is_compared: `True` if the outputs for records of the source are compared
    """
    if stage is not None and stage not in job.by_stage:
        raise typer.BadParameter(f"the job has no stage {stage!r}", param_hint="--stage")
    read = [name for each, of in job.by_stage.items() if stage in (None, each) for name in of.external_sources]
    if source is not None and source not in read:
        raise typer.BadParameter(f"the job has no source {source!r}", param_hint="--source")
    if not is_compared:
        return
    if source is None and len(read) > 1:
        raise typer.BadParameter(f"name the source: {', '.join(read)}", param_hint="--source")
    if source is not None and stage is None and read.count(source) > 1:
        raise typer.BadParameter(f"several stages have the source {source!r}: name one", param_hint="--stage")


def _show(results: "Mapping[str, Rehearsal]", savepoint: "JobSavepoint", target: str, console: "Console") -> None:
    manifest = savepoint.manifest
    batch = "no batch" if manifest.batch is None else f"batch {manifest.batch}"
    console.print(f"{target} on {savepoint.directory} (job {manifest.job}, {batch}, {manifest.keys:,} keys)")
    for stage, result in results.items():
        if stage:
            console.print(f"\nStage {stage}")
        if stage in savepoint.stages:
            _show_state(result, console)
        for problem in result.problems:
            console.print(f"\nThe job would not start: {problem}")
    if not any(result.has_failed for result in results.values()):
        console.print("The new code can continue from this savepoint.")


def _show_state(result: "Rehearsal", console: "Console") -> None:
    if result.specs:
        console.print(_specs(result))
    held = "".join(f", {number:,} held events from {source}" for source, number in result.held.items())
    console.print(f"{result.timers:,} timers pending{held}")
    for name, spec in result.specs.items():
        if spec.failed:
            console.print(f"\n{name}: {spec.failed:,} of {spec.entries:,} entries cannot be read. The first ones:")
            for failure in spec.failures:
                console.print(f"  key {failure.key!r}\n    stored: {failure.stored}\n    {failure.error}")


def _specs(result: "Rehearsal") -> "Table":
    from rich import box
    from rich.table import Table

    table = Table("state", "new code", "entries", "migrated", "failed", "", box=box.SIMPLE_HEAD, header_style="dim")
    for column in table.columns[2:5]:
        column.justify = "right"
    for name, spec in result.specs.items():
        rare = (f"{number:,}" if number else "" for number in (spec.migrated, spec.failed))
        table.add_row(name, spec.type, f"{spec.entries:,}", *rare, spec.note)
    return table


def _compare(
    target: str,
    old: str | None,
    revision: str | None,
    savepoint: Path,
    records: Path,
    source: str | None,
    stage: str | None,
    params: dict[str, str],
    console: "Console",
) -> None:
    """Show the outputs of the old and the new code side by side."""
    from amadou_runtime.testing.rehearsal import compared, outputs_of

    with _checked_out(target, revision) as directory:
        old_target = target if old is None else old
        before = outputs_of(old_target, savepoint, records, source, stage, params, directory)
    after = outputs_of(target, savepoint, records, source, stage, params, None)
    differences = compared(before, after)
    number = sum(len(each.old) for each in differences if each.is_same)
    console.print(f"\n{len(before):,} outputs of the old code, {len(after):,} of the new code, {number:,} are the same")
    is_same = all(each.is_same for each in differences)
    console.print("The outputs are the same." if is_same else _side_by_side(differences))


def _side_by_side(differences: "list[Difference]") -> "Table":
    from rich import box
    from rich.table import Table

    table = Table("port", "old", "new", box=box.SIMPLE_HEAD, header_style="dim", show_lines=False)
    for each in differences:
        if each.is_same:
            shown = each.old if len(each.old) <= 2 * _CONTEXT + 1 else [*each.old[:_CONTEXT], *each.old[-_CONTEXT:]]
            left_out = len(each.old) - len(shown)
            for at, output in enumerate(shown):
                if left_out and at == _CONTEXT:
                    table.add_row("", f"… {left_out:,} equal outputs", "", style="dim")
                table.add_row(output.port, output.text, "=", style="dim")
            continue
        for at in range(max(len(each.old), len(each.new))):
            old, new = (of[at] if at < len(of) else None for of in (each.old, each.new))
            port = next(output.port for output in (old, new) if output is not None)
            table.add_row(port, "" if old is None else f"- {old.text}", "" if new is None else f"+ {new.text}")
    return table


@contextmanager
def _checked_out(target: str, revision: str | None) -> Iterator[Path | None]:
    """Yield the working directory for the old code: with a revision, a copy of the current one as of the revision.

    :raises LoadError: the revision cannot be read from Git
    """
    if revision is None:
        yield None
        return
    root = _git(target, "rev-parse", "--show-toplevel").decode().strip()
    prefix = _git(target, "rev-parse", "--show-prefix").decode().strip()
    archive = _git(target, "-C", root, "archive", "--format=tar", revision)
    with tempfile.TemporaryDirectory(prefix="amadou-old-") as directory:
        subprocess.run(["tar", "-xf", "-", "-C", directory], input=archive, check=True)
        yield Path(directory) / prefix


def _git(target: str, *arguments: str) -> bytes:
    try:
        done = subprocess.run(["git", *arguments], capture_output=True, check=False)
    except OSError as error:
        raise LoadError(target, f"git cannot be started: {error}") from error
    if done.returncode:
        raise LoadError(target, f"git {' '.join(arguments)} failed: {done.stderr.decode().strip()}")
    return done.stdout
