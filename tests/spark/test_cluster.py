"""The tumbling-window example on a standalone cluster: a master and two workers, each a process of its own."""

import json
import os
import signal
import socket
import subprocess
import sys
import sysconfig
import time
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from datetime import datetime
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from views import ViewSum, job

from amadou_runtime import TestRun

pytestmark = pytest.mark.spark

ROOT = Path(__file__).parents[2]
EXAMPLE = ROOT / "examples" / "tumbling_window"
PATIENCE = 90


@pytest.fixture
def spark_home() -> Path:
    return Path(pytest.importorskip("pyspark").__file__).parent


@pytest.fixture
def wheel(tmp_path: Path) -> Path:
    isolation = ["--no-isolation"] if find_spec("hatchling") else []
    build = [sys.executable, "-m", "build", "--wheel", *isolation, "--outdir", str(tmp_path), str(ROOT)]
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


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


@contextmanager
def process(log: Path, *command: str, **environment: str) -> Iterator[subprocess.Popen[bytes]]:
    """A process that ends with this block, and all that it started with it."""
    with log.open("wb") as output:
        # fmt: off
        started = subprocess.Popen(
            command, stdout=output, stderr=output, cwd=log.parent, env={**os.environ, **environment},
            start_new_session=True,
        )
        # fmt: on
        try:
            yield started
        finally:
            for number in (signal.SIGTERM, signal.SIGKILL):
                if started.poll() is None:
                    os.killpg(started.pid, number)
                    try:
                        started.wait(10)
                    except subprocess.TimeoutExpired:
                        continue


@contextmanager
def cluster(spark_home: Path, into: Path) -> Iterator[str]:
    """A master and two workers with a core each; gives the master's URL."""
    port, web = free_port(), free_port()
    spark_class = str(spark_home / "bin" / "spark-class")
    deploy = "org.apache.spark.deploy"
    environment = {
        "SPARK_HOME": str(spark_home),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_LOCAL_DIRS": str(into / "local"),
    }
    url = f"spark://127.0.0.1:{port}"
    with ExitStack() as stack:
        address = ["--host", "127.0.0.1", "--port", str(port), "--webui-port", str(web)]
        command = [spark_class, f"{deploy}.master.Master", *address]
        running = [stack.enter_context(process(into / "master.log", *command, **environment))]
        for name in ("one", "two"):
            size = ["--host", "127.0.0.1", "--cores", "1", "--memory", "1g", "--webui-port", "0"]
            command = [spark_class, f"{deploy}.worker.Worker", *size, "--work-dir", str(into / name), url]
            running.append(stack.enter_context(process(into / f"{name}.log", *command, **environment)))
        deadline = time.monotonic() + PATIENCE
        while master_says(web).get("aliveworkers") != 2:
            dead = [each.args for each in running if each.poll() is not None]
            assert not dead, f"ended: {dead}\n{logs(into)}"
            assert time.monotonic() < deadline, f"two workers have not come to the master\n{logs(into)}"
            time.sleep(0.3)
        yield url


def master_says(web: int) -> dict[str, Any]:
    direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with direct.open(f"http://127.0.0.1:{web}/json/", timeout=5) as answer:
            told: dict[str, Any] = json.load(answer)
            return told
    except OSError:
        return {}


def logs(into: Path) -> str:
    return "\n".join(f"--- {log}\n{log.read_text(errors='replace')[-3000:]}" for log in sorted(into.rglob("*.log")))


def test_the_example_gives_the_same_records_on_a_cluster(
    spark_home: Path, wheel: Path, python: Path, tmp_path: Path
) -> None:
    with cluster(spark_home, tmp_path) as url:
        submit = [
            *(str(spark_home / "bin" / "spark-submit"), "--master", url, "--py-files", str(wheel)),
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
