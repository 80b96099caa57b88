"""The command that shows a checkpoint in a browser: `amadou console CHECKPOINT`."""

from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

import typer

from amadou.errors import CheckpointError
from amadou_runtime.command.options import ConfOption, MasterOption, ParamOption, errors_as_messages, pairs

if TYPE_CHECKING:
    from amadou_plugins.console import StoredRun

CONSOLE_EXAMPLES = """Examples:

amadou console state/

amadou console state/ --job views.py --port 8765"""


def show_console(
    checkpoint: Annotated[
        str, typer.Argument(metavar="CHECKPOINT", help="The checkpoint. A run may use it.", show_default=False)
    ],
    job: Annotated[
        str | None,
        typer.Option(metavar="TARGET", help="The job, to show state with its classes, and the tests of dead letters."),
    ] = None,
    param: ParamOption = None,
    port: Annotated[int, typer.Option(metavar="PORT", min=0, max=65535, help="The port. 0 means any free port.")] = 0,
    host: Annotated[
        str,
        typer.Option(
            metavar="HOST",
            help="Address to listen on. Any other than 127.0.0.1 lets other machines connect, without encryption: "
            "whoever knows the address with its token sees the job's data.",
        ),
    ] = "127.0.0.1",
    master: MasterOption = None,
    conf: ConfOption = None,
) -> None:
    """Serve web pages about a job that has been stopped, or that runs without a console. Ctrl-C ends them."""
    from amadou_plugins.console import serve

    with errors_as_messages():
        serve(stored_run(checkpoint, job, pairs(param, "-p"), master, pairs(conf, "--conf")), host, port)


def stored_run(
    checkpoint: str,
    target: str | None = None,
    params: Mapping[str, str] | None = None,
    master: str | None = None,
    settings: Mapping[str, str] | None = None,
) -> "StoredRun":
    """Return the run that a checkpoint has a record of.

    :param target: the job's target, if known
    :raises AmadouError: the checkpoint cannot be read, or the job cannot be loaded or is not that of the checkpoint
    """
    from amadou.text import qualified
    from amadou_plugins.console import RunFacts, StoredRun
    from amadou_runtime._run import reproduced
    from amadou_runtime.command.opened_state import check_job
    from amadou_runtime.jobs.load_job import load_job
    from amadou_runtime.jobs.trigger import trigger_interval
    from amadou_runtime.runs.files import Files, checkpoint_files, local_files
    from amadou_runtime.runs.history import read_history, read_job
    from amadou_runtime.runs.lease import holder_of
    from amadou_runtime.spark.checkpoint import absolute, read_metadata
    from amadou_runtime.spark.savepoints.run_state import RunState

    place = absolute(checkpoint)

    def session() -> Any:
        from amadou_runtime.spark import session

        return session("amadou console", master=master, conf=dict(settings or {}))

    local = local_files(place)
    if local is None and place.startswith(("/", "file:")):
        raise CheckpointError(checkpoint, "it does not exist: correct the path, or name another file system in a URI")
    files: Files = local or checkpoint_files(session(), place)
    metadata, last = read_metadata(files), read_job(files)
    job = reproduce = None
    if target is not None:
        loaded = load_job(target)
        check_job(target, loaded, metadata.job)
        job = loaded.with_params(params or {}, connectors=False)
        reproduce = partial(reproduced, loaded, params or {})
    sources = [
        qualified(stage, source["name"])
        for stage, of in last.description.get("stages", {"": last.description}).items()
        for source in of.get("sources", ())
        if source["stage"] is None
    ]
    facts = RunFacts(
        job=metadata.job,
        sources=sources,
        id=metadata.run,
        engine="spark",
        checkpoint=place,
        trigger=last.trigger,
        interval=trigger_interval(last.trigger),
        description=last.description,
        state=RunState(session, place, job),
        reproduce=reproduce,
    )
    return StoredRun(facts, partial(read_history, files), lambda: holder_of(files) is not None)
