"""Runs the command `amadou` in this process."""

import typer.rich_utils  # noqa: F401 - it decides on colours when it is imported, and pytester sets PY_COLORS
from typer.testing import CliRunner, Result

from amadou_runtime.command.cli import app


def amadou(*arguments: str) -> Result:
    return CliRunner().invoke(app, list(arguments))


def output(*arguments: str) -> str:
    """Run the command, which must succeed. Return what it prints."""
    done = amadou(*arguments)
    assert done.exit_code == 0, done.output
    return done.stdout
