"""Describes the machine of a benchmark, for the heading of the report."""

import os
import platform
import subprocess
from datetime import datetime, timezone
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path


def machine(java: bool = True) -> dict[str, str]:
    """Return processor, cores, memory, versions and date.

    :param java: `True` to include the versions of pyspark and Java
    """
    described = {
        "cpu": _cpu_model(),
        "cores": str(os.cpu_count()),
        "memory": f"{os.sysconf('SC_PAGE_SIZE') * os.sysconf('SC_PHYS_PAGES') / 2**30:.0f} GiB",
        "python": platform.python_version(),
        "amadou": _version("amadou"),
    }
    if java:
        described |= {"pyspark": _version("pyspark"), "java": _java_version()}
    return described | {"date": datetime.now(timezone.utc).strftime("%Y-%m-%d %H:%M UTC")}


def _cpu_model() -> str:
    cpuinfo = Path("/proc/cpuinfo")
    lines = cpuinfo.read_text().splitlines() if cpuinfo.exists() else []
    models = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return models[0] if models else platform.processor() or platform.machine()


def _version(distribution: str) -> str:
    try:
        return version(distribution)
    except PackageNotFoundError:
        return "not installed"


def _java_version() -> str:
    java = Path(os.environ["JAVA_HOME"], "bin", "java") if "JAVA_HOME" in os.environ else "java"
    try:
        shown = subprocess.run([java, "-version"], capture_output=True, text=True, check=True).stderr
    except (OSError, subprocess.CalledProcessError):
        return "not found"
    return shown.split('"')[1] if '"' in shown else shown.splitlines()[0]


def heading(described: dict[str, str]) -> str:
    """Return the description as a single line."""
    plain = ("cpu", "date")
    return " · ".join(value if name in plain else f"{name} {value}" for name, value in described.items())
