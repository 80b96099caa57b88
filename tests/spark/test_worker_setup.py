"""Workers with another Python or another amadou than the driver: one line says what to do."""

import os
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

from amadou_runtime.core.release import amadou_version
from amadou_runtime.spark.spark_errors import size_problem
from amadou_runtime.spark.worker_setup import last_error, setup_problem

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


def error_of(place: Path, worker: Path | str, *settings: str) -> str:
    """The last line of a run that fails.

    :param worker: the Python of the workers
    """
    options = ["--once", "--master", "local[1,1]", "--conf", "spark.ui.enabled=false", "-p", f"VIEWS={EXAMPLE}/views"]
    options += [word for setting in settings for word in ("--conf", setting)]
    ended = subprocess.run(
        [sys.executable, "views.py", *options, "-p", f"SUMS={place}/sums", "--checkpoint", str(place / "checkpoint")],
        cwd=EXAMPLE,
        env={**os.environ, "PYSPARK_PYTHON": str(worker), "PYSPARK_DRIVER_PYTHON": sys.executable},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode == 1, ended.stderr
    error = [line for line in ended.stderr.splitlines() if " 0 batches · " not in line]
    assert len(error) == 1, ended.stderr
    return error[0]


def test_workers_with_another_python_are_named(tmp_path: Path) -> None:
    others = [f"3.{minor}" for minor in range(8, 15) if minor != sys.version_info.minor]
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
    found = [path for other in others for path in sorted(pyenv.glob(f"{other}.*/bin/python"))]
    found += [path for other in others for path in map(Path, ["/usr/bin/python" + other]) if path.exists()]
    if not found:
        pytest.skip("there is no other version of Python in /usr/bin or ~/.pyenv/versions")
    shown = subprocess.run([found[-1], "--version"], capture_output=True, text=True, check=True).stdout
    other = ".".join(shown.split()[1].split(".")[:2])
    assert error_of(tmp_path, found[-1]) == (
        f"batch 0 of 'views-per-minute' cannot be processed: the workers have Python {other}, the driver has Python "
        f"{sys.version_info.major}.{sys.version_info.minor}: install the same minor version on all machines, and set "
        "PYSPARK_PYTHON to its path, or send an environment with --archives"
    )


def test_workers_with_another_python_are_named_on_spark_3_5() -> None:
    message = (
        "\n  An exception was thrown from the Python worker. Please see the stack trace below.\n"
        "Traceback (most recent call last):\n"
        '  File "worker.py", line 1100, in main\n    raise PySparkRuntimeError(\n'
        "pyspark.errors.exceptions.base.PySparkRuntimeError: [PYTHON_VERSION_MISMATCH] Python in worker has different "
        "version (3, 11) than that in driver 3.10, PySpark cannot run with different minor versions.\n"
    )
    assert str(setup_problem(message)).startswith("the workers have Python 3.11, the driver has Python 3.10: install")
    assert last_error(message).startswith(
        "An exception was thrown from the Python worker. Please see the stack trace below. pyspark.errors."
    )


def test_workers_without_python_are_named(tmp_path: Path) -> None:
    assert error_of(tmp_path, Path("/nowhere/python")) == (
        "batch 0 of 'views-per-minute' cannot be processed: a worker cannot run /nowhere/python (No such file or "
        "directory): install Python there on all machines, or set PYSPARK_PYTHON to its path"
    )


def test_a_python_that_ends_at_once_is_named(tmp_path: Path) -> None:
    assert error_of(tmp_path, "/bin/false") == (
        "batch 0 of 'views-per-minute' cannot be processed: the Python of the workers ended before it ran a task: set "
        "PYSPARK_PYTHON to a Python of the driver's minor version, in which amadou is installed"
    )


def test_results_that_the_driver_cannot_hold_are_named(tmp_path: Path) -> None:
    shown = "the driver could not receive its results, which must be smaller than spark.driver.maxResultSize. Sinks for"
    error = error_of(tmp_path, sys.executable, "spark.driver.maxResultSize=1k")
    assert error.startswith(f"batch 0 of 'views-per-minute' cannot be processed: {shown}")
    sizes = "Total size of serialized results of 3 tasks (2.0 GiB) is bigger than spark.driver.maxResultSize (1 GiB)"
    assert str(size_problem(f"Job aborted due to stage failure: {sizes}")).startswith(shown)


def test_workers_without_amadou_are_named(tmp_path: Path, site: Path) -> None:
    assert error_of(tmp_path, tmp_path / "venv" / "bin" / "python") == (
        f"batch 0 of 'views-per-minute' cannot be processed: the workers have no amadou: install amadou "
        f"{amadou_version()} on all machines, or send it with --py-files, and set PYSPARK_PYTHON to the Python that "
        "has it"
    )


def test_workers_with_another_version_of_amadou_are_named(tmp_path: Path, site: Path) -> None:
    (site / "amadou.pth").write_text("".join(f"{ROOT / name}\n" for name in ("sdk", "runtime", "plugins")))
    (site / "amadou-0.0.9.dist-info").mkdir()
    (site / "amadou-0.0.9.dist-info" / "METADATA").write_text("Metadata-Version: 2.4\nName: amadou\nVersion: 0.0.9\n")
    assert error_of(tmp_path, tmp_path / "venv" / "bin" / "python") == (
        f"a worker has amadou 0.0.9, the driver has {amadou_version()}: install the same version on all machines, or "
        "send the driver's version with --py-files"
    )


LOADING = """[PYTHON_EXCEPTION] An exception was thrown from the Python worker: Traceback (most recent call last):
  File "worker_util.py", line 75, in read_command
    command = serializer.loads(file)
{}

\tat org.apache.spark.api.python.BasePythonRunner.handlePythonException
"""


@pytest.mark.parametrize(
    ("error", "shown"),
    [
        ("ModuleNotFoundError: No module named 'shop.orders'", "the workers have no module shop: install it on all"),
        (
            "AttributeError: Can't get attribute 'KeyingStage' on <module 'amadou_runtime.spark.keying_stage'>",
            "the workers cannot load the job ([PYTHON_EXCEPTION] An exception was thrown from the Python worker: "
            "AttributeError: Can't get attribute 'KeyingStage'",
        ),
    ],
)
def test_what_workers_cannot_load_is_named(error: str, shown: str) -> None:
    assert str(setup_problem(LOADING.format(error))).startswith(shown)


def test_other_failures_are_not_explained() -> None:
    assert setup_problem("Job aborted\nModuleNotFoundError: No module named 'amadou'") is None


def test_a_message_is_cut_to_its_first_line_and_its_python_error() -> None:
    assert last_error("Job aborted\nDriver stacktrace:") == "Job aborted"
    assert last_error("") == ""
    assert last_error(LOADING.format("KeyError: 'a'")) == (
        "[PYTHON_EXCEPTION] An exception was thrown from the Python worker: KeyError: 'a'"
    )
