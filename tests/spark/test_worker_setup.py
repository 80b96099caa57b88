"""Workers with another Python or another amadou than the driver: one line says what to do."""

import os
import subprocess
import sys
import sysconfig
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyspark
import pytest
from views import job

from amadou.errors import AmadouError
from amadou_runtime import start
from amadou_runtime.formats.release import amadou_version

pytestmark = pytest.mark.spark

ROOT = Path(__file__).parents[2]
EXAMPLE = ROOT / "examples" / "tumbling_window"


@pytest.fixture
def site(tmp_path: Path) -> Path:
    """The packages of an environment in `tmp_path / "venv"` that has amadou's dependencies, and not amadou."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(tmp_path / "venv")], check=True)
    site = tmp_path / "venv" / "lib" / f"python{sys.version_info.major}.{sys.version_info.minor}" / "site-packages"
    (site / "dependencies.pth").write_text(sysconfig.get_path("purelib") + "\n")
    command = [tmp_path / "venv" / "bin" / "python", "-c", "import amadou"]
    if subprocess.run(command, cwd=tmp_path, capture_output=True, check=False).returncode == 0:
        pytest.skip("amadou is installed among its dependencies, so no environment can have them without amadou")
    return site


@pytest.fixture
def error_of_run(spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[Path | str], str]:
    """Runs the example with another Python for the workers, and returns the error, which is one line."""

    def error_of_run(worker: Path | str) -> str:
        monkeypatch.setattr(spark.sparkContext, "pythonExec", str(worker))
        params = {"VIEWS": f"{EXAMPLE}/views", "SUMS": str(tmp_path / "sums")}
        with pytest.raises(AmadouError) as failed:
            start(job, spark, params=params, trigger="available-now").await_termination()
        assert "\n" not in str(failed.value)
        return str(failed.value)

    return error_of_run


def test_workers_with_another_version_of_python_are_named(error_of_run: Callable[[Path], str], tmp_path: Path) -> None:
    others = [f"3.{minor}" for minor in range(8, 15) if minor != sys.version_info.minor]
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
    found = [path for other in others for path in sorted(pyenv.glob(f"{other}.*/bin/python"))]
    found += [path for other in others for path in map(Path, ["/usr/bin/python" + other]) if path.exists()]
    if not found:
        pytest.skip("there is no other version of Python in /usr/bin or ~/.pyenv/versions")
    printed = subprocess.run([found[-1], "--version"], capture_output=True, text=True, check=True).stdout
    other = ".".join(printed.split()[1].split(".")[:2])
    zips = ":".join(map(str, Path(pyspark.__file__).parent.glob("python/lib/*.zip")))  # of pyspark, for all versions
    worker = tmp_path / "python"
    worker.write_text(f'#!/bin/sh\nPYTHONPATH={zips}:$PYTHONPATH exec {found[-1]} "$@"\n')
    worker.chmod(0o755)
    assert error_of_run(worker) == (
        f"batch 0 of 'views-per-minute' cannot be processed: the workers have Python {other}, the driver has Python "
        f"{sys.version_info.major}.{sys.version_info.minor}: install the same minor version on all machines, and set "
        "PYSPARK_PYTHON to its path, or send an environment with --archives"
    )


def test_workers_without_python_are_named(error_of_run: Callable[[str], str]) -> None:
    assert error_of_run("/nowhere/python") == (
        "batch 0 of 'views-per-minute' cannot be processed: a worker cannot run /nowhere/python (No such file or "
        "directory): install Python there on all machines, or set PYSPARK_PYTHON to its path"
    )


def test_a_python_that_ends_at_once_is_named(error_of_run: Callable[[str], str]) -> None:
    assert error_of_run("/bin/false") == (
        "batch 0 of 'views-per-minute' cannot be processed: the Python of the workers ended before it ran a task: set "
        "PYSPARK_PYTHON to a Python of the driver's minor version, in which amadou is installed"
    )


def test_results_that_the_driver_cannot_hold_are_named(error_of_run: Callable[[str], str], spark: Any) -> None:
    conf = spark.sparkContext._jsc.sc().conf()  # the session's own: Spark reads this setting for each stage
    conf.set("spark.driver.maxResultSize", "100b")
    try:
        error = error_of_run(sys.executable)
    finally:
        conf.remove("spark.driver.maxResultSize")
    assert error.startswith(
        "batch 0 of 'views-per-minute' cannot be processed: the driver could not receive its results, which must be "
        "smaller than spark.driver.maxResultSize. Sinks for"
    )


def test_workers_without_amadou_are_named(error_of_run: Callable[[Path], str], tmp_path: Path, site: Path) -> None:
    assert error_of_run(tmp_path / "venv" / "bin" / "python") == (
        f"batch 0 of 'views-per-minute' cannot be processed: the workers have no amadou: install amadou "
        f"{amadou_version()} on all machines, or send it with --py-files, and set PYSPARK_PYTHON to the Python that "
        "has it"
    )


def test_workers_with_another_version_of_amadou_are_named(
    error_of_run: Callable[[Path], str], tmp_path: Path, site: Path
) -> None:
    roots = "".join(f"{ROOT / name}\n" for name in ("sdk", "runtime", "plugins", "examples/tumbling_window"))
    (site / "amadou.pth").write_text(roots)
    (site / "amadou-0.0.9.dist-info").mkdir()
    (site / "amadou-0.0.9.dist-info" / "METADATA").write_text("Metadata-Version: 2.4\nName: amadou\nVersion: 0.0.9\n")
    assert error_of_run(tmp_path / "venv" / "bin" / "python") == (
        f"a worker has amadou 0.0.9, the driver has {amadou_version()}: install the same version on all machines, or "
        "send the driver's version with --py-files"
    )
