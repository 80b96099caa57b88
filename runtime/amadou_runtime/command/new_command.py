"""The command that makes a new project: `amadou new NAME`."""

import keyword
import os
import re
import sys
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated

import typer

from amadou.errors import ProjectError
from amadou_runtime.command.options import errors_as_messages

NEW_EXAMPLE = "Example: amadou new click-counts"

_TEMPLATE = Path(__file__).parents[1] / "project_template"
_USABLE = re.compile(r"[A-Za-z][A-Za-z0-9_-]{0,38}[A-Za-z0-9]")
_TAKEN = {"main", "tests"}
"""Names of other modules in the project."""


def new_project(
    name: Annotated[
        str,
        typer.Argument(
            metavar="NAME",
            help="Name of the project and its new directory: letters, digits, - and _, such as click-counts.",
            show_default=False,
        ),
    ],
) -> None:
    """Make a project to start from: a job with tests and sample events, an image, and manifests for Kubernetes."""
    from amadou_runtime.command.packed_job import write_wheel

    with errors_as_messages():
        module = module_name(name)
        if os.path.lexists(name):
            raise ProjectError(f"{name} exists: choose a different name, or remove {name}")
        names = {
            "project_name": module,
            "project-name": module.replace("_", "-"),
            "amadou.version": version("amadou"),
        }
        try:
            with TemporaryDirectory(prefix=".new-", dir=".") as temporary:
                made = Path(temporary, name)
                _write(_TEMPLATE, made, names)
                wheels = made / "wheels"
                wheels.mkdir()
                write_wheel(wheels)
                made.rename(name)
        except OSError as error:
            raise ProjectError(f"{name} cannot be written ({error}): use a different working directory") from error
    print(f"cd {name}")
    print('pip install --find-links wheels -e ".[test]"')
    print("pytest")


def module_name(project: str) -> str:
    """Return the name of a project's module.

    :raises ProjectError: the project's name cannot be used
    """
    wrong = f"{project!r} cannot be the name of a project"
    if not _USABLE.fullmatch(project):
        raise ProjectError(
            f"{wrong}: use letters, digits, - and _, with a letter first, a letter or digit last, 2 to 40 in all"
        )
    module = re.sub("[-_]+", "_", project.lower())
    if keyword.iskeyword(module) or module in _TAKEN or module in sys.stdlib_module_names:
        raise ProjectError(f"{wrong}: Python or the project uses {module!r}. Choose a different name")
    if find_spec(module) is not None:
        raise ProjectError(f"{wrong}: the module {module!r} is already installed. Choose a different name")
    return module


def _write(template: Path, path: Path, names: dict[str, str]) -> None:
    """Write a file or directory of the template to a new path, with the project's names."""
    if template.is_file():
        path.write_text(_renamed(template.read_text(encoding="utf-8"), names), encoding="utf-8")
        return
    path.mkdir()
    for entry in template.iterdir():
        if entry.name != "__pycache__":  # pip compiles the template's modules
            _write(entry, path / _renamed(entry.name, names), names)


def _renamed(text: str, names: dict[str, str]) -> str:
    for placeholder, name in names.items():
        text = text.replace(placeholder, name)
    return text
