"""A job on a standalone cluster: a master and two workers, each a process of its own. `scripts/qualify cluster` kills
every kind of process there.
"""

import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest
from tests.qualify.faulted_run import BY_KEY, FaultedRun, Setup
from tests.qualify.faults import EXECUTOR
from tests.qualify.systems import SPARK_HOME, Systems, on_cluster
from tests.spark.clusters import cluster

pytestmark = pytest.mark.spark

ROOT = Path(__file__).parents[2]


@pytest.fixture
def wheel(tmp_path: Path) -> Path:
    build = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(tmp_path), str(ROOT)]
    subprocess.run(build, check=True, capture_output=True)
    return next(tmp_path.glob("*.whl"))


@pytest.fixture
def python(tmp_path: Path) -> Path:
    """An interpreter that has amadou's dependencies, and not amadou: Python does not follow the .pth files of a
    directory that a .pth file names, so the editable install stays behind.
    """
    venv = tmp_path / "venv"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(venv)], check=True)
    site = venv / "lib" / f"python{sys.version_info.major}.{sys.version_info.minor}" / "site-packages"
    (site / "dependencies.pth").write_text(sysconfig.get_path("purelib") + "\n")
    seen = subprocess.run(
        [venv / "bin" / "python", "-c", "import amadou"], cwd=tmp_path, capture_output=True, check=False
    )
    if seen.returncode == 0:
        pytest.skip("amadou is installed among its dependencies: a mistake in --py-files could not be seen")
    return venv / "bin" / "python"


def test_a_job_that_is_submitted_with_a_wheel_loses_nothing_when_an_executor_is_killed(
    wheel: Path, python: Path, tmp_path: Path
) -> None:
    with cluster(SPARK_HOME, tmp_path) as made:
        settings = on_cluster(made)
        spark_submit = [str(SPARK_HOME / "bin" / "spark-submit"), "--master", made.url, "--py-files", str(wheel)]
        spark_submit += [word for pair in settings.pop("conf").items() for word in ("--conf", "=".join(pair))]
        settings["environment"]["PYSPARK_PYTHON"] = str(python)
        systems = Systems(**{**settings, "launcher": spark_submit, "options": ()})
        run = FaultedRun(Setup(store="log", pace=500, millis_apart=300, **BY_KEY), tmp_path, 11, systems)
        outcome = run.run([EXECUTOR])
    assert outcome.is_right, outcome
    assert all(list((tmp_path / name).glob("app-*/*/stderr")) for name in ("one", "two")), "a worker had no executor"
