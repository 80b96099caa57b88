"""Arguments, options and error handling that several commands share."""

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from copy import copy
from typing import Annotated

import typer

from amadou import AmadouError

TargetArgument = Annotated[
    str,
    typer.Argument(
        metavar="TARGET",
        help="The job: FILE:name or MODULE:name, such as views.py:job. The name is 'job' without one.",
        show_default=False,
    ),
]
ParamOption = Annotated[
    list[str] | None,
    typer.Option("--param", "-p", metavar="NAME=VALUE", help="A parameter of the job. May be given several times."),
]


def pairs(texts: Sequence[str] | None, option: str) -> dict[str, str]:
    """Return the names and values of an option that is given as ``NAME=VALUE``.

    :raises typer.BadParameter: a text has no name or no ``=``, or a name occurs twice
    """
    found = groups(texts, option)
    for name, values in found.items():
        if len(values) > 1:
            raise typer.BadParameter(f"{option} has {name} twice: give it once")
    return {name: value for name, (value,) in found.items()}


def groups(texts: Sequence[str] | None, option: str) -> dict[str, list[str]]:
    """Return the names of an option that is given as ``NAME=VALUE``, each with its values in their order.

    :raises typer.BadParameter: a text has no name or no ``=``
    """
    found: dict[str, list[str]] = {}
    for text in texts or ():
        if text.find("=") < 1:
            raise typer.BadParameter(f"{option} takes NAME=VALUE, not {text!r}")
        name, value = text.split("=", 1)
        found.setdefault(name, []).append(value)
    return found


@contextmanager
def errors_as_messages() -> Iterator[None]:
    """Print an error of amadou as a message, the user's own traceback first, and exit with 1."""
    try:
        yield
    except AmadouError as error:
        # A callback's error with a cause leaves the traceback to Python, which does not show it here. A copy has no
        # cause.
        print(copy(error), file=sys.stderr)
        raise typer.Exit(1) from error
