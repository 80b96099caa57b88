"""Packs a Python environment that `spark-submit --archives` sends to the workers."""

import re
import subprocess
import sys
import tarfile
from collections.abc import Iterator, Sequence
from importlib.metadata import distributions
from pathlib import Path

import attrs

from amadou.errors import ProjectError
from amadou_runtime.command.packed_job import write_wheel

_COMPRESSION = 4
"""Higher levels take several times as long and save little."""
_IN_SPARK = ("pyspark", "py4j")
_LEFT_OUT = {"amadou", "pip", "setuptools", "wheel", *_IN_SPARK}


@attrs.frozen
class Requirements:
    """The packages of an environment.

    :param extras: extras of amadou
    :param project: directory with a `pyproject.toml`, to install as well; `None` if there is none
    :param files: requirements files of pip
    """

    extras: Sequence[str]
    project: Path | None
    files: Sequence[Path]


def create_environment(directory: Path, requirements: Requirements, work: Path) -> None:
    """Create a virtual environment with the installed amadou and requirements, without Spark.

    Without a requirements file, the packages have the versions that this environment has.

    :param directory: where to create the environment
    :param work: directory for temporary files
    :raises ProjectError: the environment cannot be created, or pip failed
    """
    _run("python -m venv", sys.executable, "-m", "venv", str(directory))
    wheel = write_wheel(work)
    install = [f"{wheel}[{','.join(requirements.extras)}]"]
    if requirements.project is not None:
        install.append(str(requirements.project))
    for file in requirements.files:
        install += ["--requirement", str(file)]
    if not requirements.files:
        constraints = work / "constraints.txt"
        constraints.write_text("".join(_installed_versions()), encoding="utf-8")
        install += ["--constraint", str(constraints)]
    pip = [str(directory / "bin" / "python"), "-m", "pip", "--disable-pip-version-check"]
    _run("pip install", *pip, "install", "--quiet", *install)
    _run("pip uninstall", *pip, "uninstall", "--quiet", "--yes", *_IN_SPARK)


def pack_environment(directory: Path, archive: Path, python_prefix: str | None) -> str:
    """Pack an environment. Return the path of the Python interpreter that the packed environment refers to.

    :param directory: the environment; its references to the interpreter are changed to `python_prefix`
    :param archive: the file to write
    :param python_prefix: prefix of the interpreter on the workers; by default, that of this machine's interpreter
    """
    (link,) = (path for path in (directory / "bin").iterdir() if path.is_symlink() and path.readlink().is_absolute())
    if python_prefix is not None:
        version = f"python{sys.version_info.major}.{sys.version_info.minor}"
        link.unlink()
        link.symlink_to(Path(python_prefix, "bin", version))
        settings = directory / "pyvenv.cfg"
        text = re.sub(r"(?m)^home = .*$", f"home = {python_prefix}/bin", settings.read_text(encoding="utf-8"))
        settings.write_text(text, encoding="utf-8")
    with tarfile.open(archive, "w:gz", compresslevel=_COMPRESSION) as packed:
        packed.add(directory, arcname="")
    return str(link.readlink())


def _installed_versions() -> Iterator[str]:
    """Return the versions of the packages in this environment that come from a package index, as constraints of pip."""
    seen = set(_LEFT_OUT)
    for each in distributions():  # in the order of `sys.path`: Python imports the first one of a name
        if each.name.lower() not in seen and each.read_text("direct_url.json") is None:
            yield f"{each.name}=={each.version}\n"
        seen.add(each.name.lower())


def _run(what: str, *command: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        lines = (done.stderr.strip() or done.stdout.strip() or f"exit status {done.returncode}").splitlines()
        errors = [line for line in lines if line.startswith("ERROR: ")]
        raise ProjectError(f"{what} failed: {(errors or lines)[-1]}")
