"""Arguments, options and error handling that multiple commands share."""

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from copy import copy
from typing import Annotated

import typer

from amadou import AmadouError
from amadou_runtime.command.printable import printable_lines

TargetArgument = Annotated[
    str,
    typer.Argument(
        metavar="TARGET",
        help="The job: FILE:name or MODULE:name, such as views.py:job. Default name: job.",
        show_default=False,
    ),
]
StageOption = Annotated[
    str | None, typer.Option(metavar="NAME", help="The stage of the job. Needed if the job has several.")
]
ParamOption = Annotated[
    list[str] | None,
    typer.Option("--param", "-p", metavar="NAME=VALUE", help="A parameter of the job. Can be repeated."),
]
ConfOption = Annotated[list[str] | None, typer.Option(metavar="KEY=VALUE", help="A Spark setting. Can be repeated.")]
MasterOption = Annotated[str | None, typer.Option(metavar="URL", help="Spark master URL. Default: local[*].")]


def pairs(texts: Sequence[str] | None, option: str) -> dict[str, str]:
    """Return the values of an option of the form ``NAME=VALUE``, by name.

    :raises typer.BadParameter: an occurrence of the option has no name or no ``=``, or a name occurs more than once
    """
    found = groups(texts, option)
    for name, values in found.items():
        if len(values) > 1:
            raise typer.BadParameter(f"{option} sets {name} more than once: set it only once")
    return {name: value for name, (value,) in found.items()}


def groups(texts: Sequence[str] | None, option: str) -> dict[str, list[str]]:
    """Return the values of an option of the form ``NAME=VALUE``, as lists by name. Each list is in the order of the
    command line.

    :raises typer.BadParameter: an occurrence of the option has no name or no ``=``
    """
    found: dict[str, list[str]] = {}
    for text in texts or ():
        if text.find("=") < 1:
            raise typer.BadParameter(f"{option} expects NAME=VALUE, not {text!r}")
        name, value = text.split("=", 1)
        found.setdefault(name, []).append(value)
    return found


@contextmanager
def errors_as_messages(show: Callable[[AmadouError], None] | None = None) -> Iterator[None]:
    """Print the message of an `AmadouError`, including any traceback of the user's code, and exit with status 1.

    :param show: function to call with the error instead of printing its message
    """
    try:
        yield
    except AmadouError as error:
        (show or _print_error)(error)
        raise typer.Exit(1) from error


def _print_error(error: AmadouError) -> None:
    # The message of a callback's error omits the traceback if the error has a cause, since Python shows the traceback
    # with the cause. Here Python shows nothing, so print a copy without the cause.
    print(printable_lines(str(copy(error))), file=sys.stderr)
