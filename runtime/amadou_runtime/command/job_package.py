"""Makes a directory with all that `spark-submit` needs to run a job."""

import os
import platform
import re
import shutil
import subprocess
import sys
from collections.abc import Sequence
from importlib.metadata import metadata
from pathlib import Path
from tempfile import TemporaryDirectory

from rich.console import Console

from amadou import Job
from amadou.errors import ProjectError
from amadou_runtime.command.packed_environment import Requirements, create_environment, pack_environment
from amadou_runtime.command.packed_job import (
    ARCHIVE_SUFFIX,
    PROGRAM,
    SCRIPT,
    named_by_checksum,
    spark_options,
    write_modules,
    write_program,
    write_script,
)
from amadou_runtime.jobs.load_job import TargetParts, load_job, parts_of
from amadou_runtime.spark.modules import sources

_IN_SPARK = re.compile("No module named '(pyspark|py4j)")
_EXTRAS = {"http", "kafka", "postgres"}
"""Extras of amadou that occur in the names of the modules whose connectors need them."""


def make_package(
    target: str,
    output: Path | None,
    *,
    requirements: Sequence[Path],
    extras: Sequence[str],
    environment: bool,
    python_prefix: str | None,
) -> str:
    """Make the directory. Return a text that says what was made and how to submit it.

    :param target: the job's target
    :param output: the directory; by default, a directory in `dist` with the job's name
    :param requirements: requirements files of pip
    :param extras: extras of amadou, in addition to those that the job's sources and sinks need
    :param environment: `True` to pack a Python environment
    :param python_prefix: prefix of the workers' Python; by default, that of this machine's Python
    :raises LoadError: the job cannot be loaded
    :raises ProjectError: the directory contains something else or cannot be written, amadou does not have an extra, the
        environment cannot be made, or the packed job cannot be imported
    """
    job, parts = load_job(target), parts_of(target)
    directory = output or Path("dist", re.sub(r"[^\w.-]+", "-", job.name))
    _check_extras(extras)
    try:
        _check_output(directory)
        directory.mkdir(parents=True, exist_ok=True)
        with TemporaryDirectory(prefix="amadou-package-") as temporary:
            made = Path(temporary, "made")
            made.mkdir()
            modules = write_modules(made, sources(), with_amadou=not environment)
            write_program(made / PROGRAM, parts.module, parts.name)
            python = archive = None
            if environment:
                wanted = Requirements(sorted({"cluster", *_extras_of(job), *extras}), _project_of(parts), requirements)
                packed = made / f"environment{ARCHIVE_SUFFIX}"
                python = _make_environment(Path(temporary), packed, modules, wanted, python_prefix)
                archive = named_by_checksum(packed).name
            else:
                _check_program(sys.executable, made, modules)
            name = archive and archive.removesuffix(ARCHIVE_SUFFIX)
            write_script(made / SCRIPT, job.name, modules, name)
            _replace(directory, made)
        return _shown(directory, spark_options(job.name, modules, name), archive, python)
    except OSError as error:
        raise ProjectError(f"{directory} cannot be written ({error}): choose a different --output") from error


def _make_environment(work: Path, archive: Path, modules: str, wanted: Requirements, python_prefix: str | None) -> str:
    """Create and pack an environment. Return the path of the interpreter that the packed environment refers to."""
    with Console(stderr=True).status(f"installing amadou[{','.join(wanted.extras)}] and the requirements") as status:
        create_environment(work / "environment", wanted, work)
        _check_program(str(work / "environment" / "bin" / "python"), archive.parent, modules)
        status.update("packing the environment")
        return pack_environment(work / "environment", archive, python_prefix)


def _check_program(python: str, made: Path, modules: str) -> None:
    """Import the main program with nothing but the packed modules and the packages of an interpreter.

    :raises ProjectError: the program cannot be imported
    """
    program = f"import {Path(PROGRAM).stem}"
    environment = {**os.environ, "PYTHONPATH": modules}
    # without bytecode, which would be moved to the output directory
    done = subprocess.run([python, "-B", "-c", program], cwd=made, env=environment, capture_output=True, text=True)
    error = (done.stderr.strip().splitlines() or [f"exit status {done.returncode}"])[-1]
    if done.returncode != 0 and not _IN_SPARK.search(error):
        raise ProjectError(
            f"the packed job cannot be imported ({error}): add what it needs to a pyproject.toml next to the job's "
            f"file or to --requirements. Data files next to modules are not packed: let pip install them as well. The "
            f"job's file cannot be named {PROGRAM}"
        )


def _check_output(directory: Path) -> None:
    """Raise an error unless a directory is new, empty or an earlier package.

    :raises ProjectError: the directory contains something else
    """
    if directory.is_dir() and (not any(directory.iterdir()) or _is_package(directory)):
        return
    if directory.exists():
        raise ProjectError(f"{directory} exists and was not written by amadou package: choose a different --output")


def _check_extras(extras: Sequence[str]) -> None:
    """Raise an error unless amadou has the extras: pip would ignore others.

    :raises ProjectError: amadou does not have an extra
    """
    known = metadata("amadou").get_all("Provides-Extra") or []
    for extra in extras:
        if extra not in known:
            raise ProjectError(f"amadou has no extra {extra!r}: use one of {', '.join(sorted(known))}")


def _is_package(directory: Path) -> bool:
    script = directory / SCRIPT
    return script.is_file() and "Written by `amadou package`." in script.read_text(encoding="utf-8")


def _replace(directory: Path, made: Path) -> None:
    """Move new files to the output directory. Files of an earlier package whose names contain a checksum stay."""
    with TemporaryDirectory(prefix=".new-", dir=directory) as new:
        for path in made.iterdir():
            shutil.move(path, new)
        for name in (PROGRAM, SCRIPT):
            (directory / name).unlink(missing_ok=True)
        for path in Path(new).iterdir():
            path.rename(directory / path.name)


def _extras_of(job: Job) -> set[str]:
    """Return the extras of amadou that a job's sources and sinks need."""
    connectors: list[object] = []
    for stage in job.by_stage.values():
        connectors += [*stage.external_sources.values(), *(sink for _, sink in stage.all_sinks)]
    modules = [type(connector).__module__ for connector in connectors]
    registry = {"schema-registry"} if any(getattr(each, "schema_registry", None) for each in connectors) else set()
    parts = {part for module in modules if module.startswith("amadou_plugins.") for part in re.split("[._]", module)}
    return (parts & _EXTRAS) | registry


def _project_of(parts: TargetParts) -> Path | None:
    """Return the directory of the job's project; `None` if there is none."""
    directory = Path.cwd() if parts.file is None else parts.file.resolve().parent
    file = directory / "pyproject.toml"
    is_project = file.is_file() and re.search(r"^\[project\]", file.read_text(encoding="utf-8"), re.MULTILINE)
    return directory if is_project else None


def _shown(directory: Path, options: Sequence[str], archive: str | None, python: str | None) -> str:
    """Return a text that says what was made and how to submit it."""
    lines = [
        f"{directory / SCRIPT} --master URL -- --checkpoint DIR",
        f"  runs: spark-submit {' '.join(options)} --master URL {PROGRAM} --checkpoint DIR",
    ]
    if archive is None:
        return "\n".join([*lines, "Each machine needs Python with the requirements of amadou[cluster] and of the job."])
    size = (directory / archive).stat().st_size / 1_000_000
    lines += [
        f"{directory / archive}: {size:.0f} MB, without the Python interpreter",
        f"Each machine needs Python {platform.python_version()} as {python}, and the same kind of system as this one.",
    ]
    return "\n".join(lines)
