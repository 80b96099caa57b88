"""Writes a test that begins with the state of a key: `amadou reproduce --key`."""

import shlex
from pathlib import Path

import typer

from amadou.errors import LoadError
from amadou_runtime.command.opened_state import open_state, stage_owning
from amadou_runtime.command.options import errors_as_messages
from amadou_runtime.jobs.load_job import load_job
from amadou_runtime.savepoint.savepoint import blocks_for
from amadou_runtime.savepoint.stored_keys import keys_named


def reproduce_key(
    text: str, given: list[str], stage: str | None, output: Path | None, params: dict[str, str], *, force: bool
) -> None:
    """Write a pytest file with the state of a key.

    :param text: the key, as on the command line
    :param given: the arguments of the command: a checkpoint or savepoint, and the job's target
    :param stage: the name of the stage; `None` for the only stage
    """
    from amadou_runtime.runs.reproduce import name_for_key, readable, test_of_key, without_secrets

    if len(given) != 2:
        raise typer.BadParameter("--key needs two arguments: a checkpoint or savepoint, and the job, such as views.py")
    place, target = given
    file = output or Path(f"{name_for_key(text)}.py")
    with errors_as_messages():
        check_output(file, force=force)
        loaded = load_job(target)
        job = loaded.with_params(params, connectors=False)
        state = open_state(place, stage, None, {})
        owner = stage_owning(target, job, state.job)
        possible = ((key, blocks_for(job.by_stage[owner], key, state.find(key))) for key in keys_named(text))
        found = next(((key, blocks) for key, blocks in possible if blocks), None)
        if found is None:
            raise LoadError(place, f"it has no state for the key {text!r}")
        origin = shlex.join(["--key", text, place, target, *(["--stage", stage] if stage else [])])
        watermark = state.clock["watermark"]["current"]
        with readable(place, f"the state of the key {text!r} has no form as Python code"):
            shown = without_secrets(params, loaded)
            test = test_of_key(*found, job, owner, target, shown, file, origin, watermark)
        write_output(file, test)
    print(f"{file}: 1 test; run the file with: pytest {file}")


def check_output(file: Path, *, force: bool) -> None:
    """Check that a test file can be written.

    :raises typer.BadParameter: the file exists, and must not be replaced
    """
    if file.exists() and not force:
        raise typer.BadParameter(f"{file} exists: use --force to replace it, or a new file", param_hint="--output")


def write_output(file: Path, text: str) -> None:
    """Write a test file.

    :raises typer.BadParameter: the file cannot be written
    """
    try:
        file.write_text(text, "utf-8")
    except OSError as error:
        raise typer.BadParameter(f"{file} cannot be written: {error.strerror}", param_hint="--output") from error
