"""The command that makes what `spark-submit` needs to run a job: `amadou package TARGET`."""

from pathlib import Path
from typing import Annotated

import typer

from amadou_runtime.command.options import TargetArgument, errors_as_messages

PACKAGE_EXAMPLES = """Examples:

amadou package views.py

amadou package my.package.views:job --extra kafka --output build/views"""


def package_job(
    target: TargetArgument,
    output: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Directory to write. Default: dist/JOBNAME.", show_default=False)
    ] = None,
    requirements: Annotated[
        list[Path] | None,
        typer.Option(
            metavar="FILE",
            help="Requirements file of pip, with more packages for the environment. Can be repeated.",
            exists=True,
            dir_okay=False,
        ),
    ] = None,
    extra: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME",
            help="Another extra of amadou for the environment, such as sketches. Can be repeated. The extras that the "
            "job's sources and sinks need are included.",
        ),
    ] = None,
    environment: Annotated[
        bool,
        typer.Option(
            "--environment/--no-environment", help="Pack a Python environment. Without it, each machine needs one."
        ),
    ] = True,
    python_prefix: Annotated[
        str | None,
        typer.Option(
            metavar="DIR", help="Prefix of the workers' Python, such as /usr. Default: that of this machine's Python."
        ),
    ] = None,
) -> None:
    """Make a directory with all that spark-submit needs to run a job, and a script that submits it.

    The environment has amadou and, if pyproject.toml is next to the job's file, the project and its requirements.

    It has no Python interpreter: each machine needs this version of Python at the same path as on this machine.
    """
    from amadou_runtime.command.job_package import make_package

    with errors_as_messages():
        shown = make_package(
            target,
            output,
            requirements=requirements or (),
            extras=extra or (),
            environment=environment,
            python_prefix=python_prefix,
        )
    print(shown)
