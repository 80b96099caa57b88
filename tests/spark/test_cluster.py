"""The tumbling-window example on a standalone cluster: a master and two workers, each a process of its own."""

import json
import subprocess
import sys
import sysconfig
from datetime import datetime
from pathlib import Path

import pytest
from tests.spark.clusters import cluster, logs, process
from views import ViewSum, job

from amadou_runtime import TestRun

pytestmark = pytest.mark.spark

ROOT = Path(__file__).parents[2]
EXAMPLE = ROOT / "examples" / "tumbling_window"


@pytest.fixture
def spark_home() -> Path:
    return Path(pytest.importorskip("pyspark").__file__).parent


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


def test_the_example_gives_the_same_records_on_a_cluster(
    spark_home: Path, wheel: Path, python: Path, tmp_path: Path
) -> None:
    with cluster(spark_home, tmp_path) as made:
        submit = [
            *(str(spark_home / "bin" / "spark-submit"), "--master", made.url, "--py-files", str(wheel)),
            *("--executor-memory", "800m", "--conf", "spark.driver.host=127.0.0.1", str(EXAMPLE / "views.py")),
            *("--once", "-p", f"VIEWS={EXAMPLE / 'views'}", "-p", f"SUMS={tmp_path / 'sums'}"),
            *("--checkpoint", str(tmp_path / "checkpoint")),
        ]
        environment = {"SPARK_HOME": str(spark_home), "PYSPARK_PYTHON": str(python), "SPARK_LOCAL_IP": "127.0.0.1"}
        with process(tmp_path / "submit.log", *submit, **environment) as submitted:
            code = submitted.wait(300)
        assert code == 0, logs(tmp_path)

    run = TestRun(job)
    for file in sorted((EXAMPLE / "views").glob("*.jsonl")):
        run.add_records(file.read_bytes().splitlines())
    run.add_watermark()
    lines = [line for file in (tmp_path / "sums").glob("*.jsonl") for line in file.read_text().splitlines()]
    assert sorted(map(read_sum, lines), key=repr) == sorted(run.run().records("sums"), key=repr)
    assert lines
    assert all(list((tmp_path / name).glob("app-*/*/stderr")) for name in ("one", "two")), "a worker had no executor"


def read_sum(line: str) -> ViewSum:
    fields = json.loads(line)
    return ViewSum(fields["channel_id"], datetime.fromisoformat(fields["timestamp"]), fields["sum"])
