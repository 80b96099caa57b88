"""amadou's built-in commands. Each imports what it needs when it is called, so that every command starts quickly."""

import re
import shlex
from pathlib import Path
from typing import Annotated

import typer

from amadou.plugins import hookimpl
from amadou_runtime.command.console_command import CONSOLE_EXAMPLES, show_console
from amadou_runtime.command.new_command import NEW_EXAMPLE, new_project
from amadou_runtime.command.options import ConfOption, ParamOption, TargetArgument, errors_as_messages, groups, pairs
from amadou_runtime.command.package_command import PACKAGE_EXAMPLES, package_job
from amadou_runtime.command.printable import plain_console
from amadou_runtime.command.rehearse_command import REHEARSE_EXAMPLES, rehearse_job
from amadou_runtime.command.rescale_command import convert_checkpoint, rescale_checkpoint
from amadou_runtime.command.run_command import run_job
from amadou_runtime.command.savepoint_command import SAVEPOINT_EXAMPLES, savepoint
from amadou_runtime.command.state_command import state_app
from amadou_runtime.command.top_command import TOP_EXAMPLES, top
from amadou_runtime.command.window_node import WINDOW_NODE_EXAMPLE, window_node
from amadou_runtime.plugins.hooks import plugins_of

_RUN_EXAMPLES = """Examples:

amadou run views.py --once

amadou run views.py -p VIEWS=in/ --checkpoint state/ --trigger "5 seconds"

amadou run my.package.views:job --engine embedded"""


_ANY_WIDTH = 10_000
LettersArgument = Annotated[
    list[Path],
    typer.Argument(metavar="LETTERS", help="Dead-letter files (JSON lines), or directories that contain them."),
]


def describe_job(
    target: TargetArgument,
    param: ParamOption = None,
    checkpoint: Annotated[
        str | None,
        typer.Option(
            metavar="DIR", help="Also show the state and the progress of each source partition in this checkpoint."
        ),
    ] = None,
) -> None:
    """Show a job's handler, state, ports, sinks, sources and parameters. This command does not need Java."""
    from amadou_runtime.command.describe import describe
    from amadou_runtime.jobs.load_job import load_job

    params = pairs(param, "-p")
    with errors_as_messages():
        describe(load_job(target), params, plain_console(), checkpoint)


def reproduce(
    letters: LettersArgument,
    job: Annotated[
        str | None,
        typer.Option(
            metavar="TARGET",
            help="The job: FILE:name or MODULE:name. Default: the job in the handler's module.",
        ),
    ] = None,
    output: Annotated[
        Path | None, typer.Option(metavar="FILE", help="The test file to write. Default: test_JOB_dead_letters.py.")
    ] = None,
    key: Annotated[
        str | None,
        typer.Option(
            metavar="KEY",
            help="Use the state of this key instead of dead letters. The arguments are then a checkpoint or savepoint, "
            "and the job.",
        ),
    ] = None,
    line: Annotated[
        int | None, typer.Option(metavar="N", help="Use only the dead letter on line N. Requires a single file.")
    ] = None,
    stage: Annotated[
        str | None, typer.Option(metavar="NAME", help="With --key, the stage. Needed if the job has several.")
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace the test file if it exists.")] = False,
    param: ParamOption = None,
) -> None:
    """Write a pytest file that replays dead letters, or one that begins with the state of a key (--key).

    Tests that replay dead letters fail with the same errors until you fix the handler.
    """
    from amadou_runtime.command.reproduce_key import check_output, reproduce_key, write_output
    from amadou_runtime.runs.dead_letter_files import read_letters
    from amadou_runtime.runs.reproduce import cases_of, find_job, load_named, tests_of

    params = pairs(param, "-p")
    if key is not None:
        reproduce_key(key, list(map(str, letters)), stage, output, params, force=force)
        return
    with errors_as_messages():
        found = read_letters(letters, line, lambda fields: load_named(job, fields))
        cases = cases_of(found)
        name = re.sub(r"\W+", "_", found[0].fields["job"])
        file = output or Path(f"test_{name}_dead_letters.py")
        check_output(file, force=force)
        text = tests_of(cases, job or find_job(found[0].fields), params, file, shlex.join(map(str, letters)))
        write_output(file, text)
    print(f"{file}: {len(cases)} test{'s' if len(cases) > 1 else ''}; run the file with: pytest {file}")


def replay_letters(
    target: TargetArgument,
    letters: LettersArgument,
    checkpoint: Annotated[
        str,
        typer.Option(metavar="DIR", help="Checkpoint of the run that wrote the dead letters. The run must have ended."),
    ],
    param: ParamOption = None,
    source: Annotated[
        list[str] | None, typer.Option(metavar="NAME=KIND:…", help="Same as for the run that wrote the dead letters.")
    ] = None,
    sink: Annotated[
        list[str] | None, typer.Option(metavar="PORT=KIND:…", help="Same as for the run that wrote the dead letters.")
    ] = None,
    master: Annotated[str | None, typer.Option(metavar="URL", help="Spark master URL.")] = None,
    conf: ConfOption = None,
) -> None:
    """Replay a job's dead letters after you have fixed the handler. Each dead letter is replayed only once."""
    from amadou_runtime._run import replay
    from amadou_runtime.command.run_logs import print_summary
    from amadou_runtime.jobs.load_job import load_job
    from amadou_runtime.jobs.named_connectors import with_connectors
    from amadou_runtime.runs.dead_letter_files import read_letters

    params, settings = pairs(param, "-p"), pairs(conf, "--conf")
    sources, sinks = pairs(source, "--source"), groups(sink, "--sink")
    with errors_as_messages():
        job = with_connectors(load_job(target), sources, sinks)
        found = read_letters(letters)
        summary = replay(job, found, checkpoint=checkpoint, params=params, master=master, conf=settings)
    print_summary(summary)


def list_plugins() -> None:
    """List the installed plugins, with their origins and hooks."""
    from rich import box
    from rich.table import Table

    table = Table("plugin", "from", "place", "hooks", box=box.SIMPLE_HEAD, header_style="dim")
    for plugin in plugins_of().found:
        hooks = "\n".join(plugin.hooks) if plugin.problem is None else f"not loaded: {plugin.problem}"
        table.add_row(plugin.name, plugin.origin, plugin.place, hooks)
    console = plain_console()
    if not console.is_terminal:
        console.width = console.measure(table, options=console.options.update(width=_ANY_WIDTH)).maximum
    console.print(table)


@hookimpl
def amadou_register_commands(app: typer.Typer) -> None:
    app.command("new", epilog=NEW_EXAMPLE)(new_project)
    app.command("run", epilog=_RUN_EXAMPLES)(run_job)
    app.command("package", epilog=PACKAGE_EXAMPLES)(package_job)
    app.command("top", epilog=TOP_EXAMPLES)(top)
    app.command("describe", epilog="Example: amadou describe views.py:job -p VIEWS=in/")(describe_job)
    app.command("reproduce", epilog="Example: amadou reproduce state/dead_letters/dead_letters-….jsonl --job views.py")(
        reproduce
    )
    app.command("replay", epilog="Example: amadou replay views.py state/dead_letters --checkpoint state")(
        replay_letters
    )
    app.command("console", epilog=CONSOLE_EXAMPLES)(show_console)
    app.command("savepoint", epilog=SAVEPOINT_EXAMPLES)(savepoint)
    app.command("rescale", epilog="Example: amadou rescale state/ --partitions 8")(rescale_checkpoint)
    app.command("convert", epilog="Example: amadou convert state/ --to log")(convert_checkpoint)
    app.command("rehearse", epilog=REHEARSE_EXAMPLES)(rehearse_job)
    app.add_typer(state_app, name="state")
    app.command("plugins")(list_plugins)
    app.command("window-node", epilog=WINDOW_NODE_EXAMPLE)(window_node)
