"""Finds out whether a worker cannot run tasks because its Python or its packages differ from the driver's."""

import re

from amadou.errors import RunError
from amadou_runtime.formats.release import amadou_version

_OTHER_PYTHON = re.compile(r"PYTHON_VERSION_MISMATCH\].* version:? \(?([\d., ]+\d)\)? than that in driver:? ([\d.]+\d)")
_NO_PYTHON = re.compile(r'Cannot run program "([^"]+)": error=\d+, ([^\n]+)')
_NO_WORKER = "reading the port number from pyspark.daemon's stdout"
_LOADING = ", in read_command\n"
"""In tracebacks: the worker loads what the driver has sent."""
_NO_MODULE = re.compile(r"^ModuleNotFoundError: No module named '(\w+)", re.MULTILINE)


def check_amadou_version(of_driver: str | None) -> None:
    """Raise a `RunError` if this worker has a different version of amadou than the driver."""
    here = amadou_version()
    if here is not None and of_driver is not None and here != of_driver:
        raise RunError(
            f"a worker has amadou {here}, the driver has {of_driver}: install the same version on all machines, or "
            "send the driver's version with --py-files"
        )


def setup_problem(message: str) -> str | None:
    """Return the difference between a worker and the driver that made a task fail, and what to do about it; `None` for
    other failures.

    :param message: Spark's error message, which contains the worker's traceback
    """
    pythons = _OTHER_PYTHON.search(message)
    if pythons is not None:
        here = pythons[1].replace(", ", ".")  # Spark 3.5 shows a tuple
        return (
            f"the workers have Python {here}, the driver has Python {pythons[2]}: install the same minor version "
            "on all machines, and set PYSPARK_PYTHON to its path, or send an environment with --archives"
        )
    no_python = _NO_PYTHON.search(message)
    if no_python is not None:
        return (
            f"a worker cannot run {no_python[1]} ({no_python[2]}): install Python there on all machines, or set "
            "PYSPARK_PYTHON to its path"
        )
    if _NO_WORKER in message:
        return (
            "the Python of the workers ended before it ran a task: set PYSPARK_PYTHON to a Python of the driver's "
            "minor version, in which amadou is installed"
        )
    if _LOADING not in message:
        return None
    missing = _NO_MODULE.search(message)
    if missing is not None and missing[1].startswith("amadou"):
        return (
            f"the workers have no amadou: install amadou {amadou_version() or ''} on all machines, or send it with "
            "--py-files, and set PYSPARK_PYTHON to the Python that has it"
        )
    if missing is not None:
        return (
            f"the workers have no module {missing[1]}: install it on all machines, or send it with --py-files, and set "
            "PYSPARK_PYTHON to the Python that has it"
        )
    return (
        f"the workers cannot load the job ({last_error(message)}): install the driver's versions of amadou "
        f"({amadou_version() or 'unknown'}) and of other packages on all machines"
    )


def last_error(message: str) -> str:
    """Return the first line of a message. If the message contains a Python traceback, the traceback's error replaces
    the traceback.
    """
    lines = message.strip().splitlines() or [""]
    frames = [number for number, line in enumerate(lines) if line.startswith("  ")]
    if "Traceback (most recent call last):" not in message or not frames or frames[-1] + 1 == len(lines):
        return lines[0]
    start = lines[0].removesuffix("Traceback (most recent call last):").rstrip()
    return f"{start} {lines[frames[-1] + 1]}".lstrip()
