"""A standalone cluster on the loopback: a master and two workers, each a process of its own."""

import json
import os
import signal
import socket
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from itertools import chain
from pathlib import Path
from typing import Any

from tests.waits import wait_for

ROOT = Path(__file__).parents[2]


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


class Cluster:
    """A master and two workers with a core each.

    :param url: the master's
    :param workers: the workers' processes by name
    """

    def __init__(self, url: str, spark_home: Path, into: Path, stack: ExitStack) -> None:
        self.url = url
        self.workers: dict[str, subprocess.Popen[bytes]] = {}
        self._spark_home = spark_home
        self._into = into
        self._stack = stack
        self._logs = 0

    @property
    def local(self) -> Path:
        """Spark's local directory on the workers."""
        return self._into / "local"

    def start_worker(self, name: str) -> None:
        """Start a worker, for the first time or after it was killed."""
        self._logs += 1
        self.workers[name] = self._start(
            f"{name}-{self._logs}.log",
            *("org.apache.spark.deploy.worker.Worker", "--host", "127.0.0.1", "--cores", "1", "--memory", "1g"),
            *("--webui-port", "0", "--work-dir", str(self._into / name), self.url),
        )

    def start_master(self, port: int, web: int) -> subprocess.Popen[bytes]:
        """Start the master."""
        address = ["--host", "127.0.0.1", "--port", str(port), "--webui-port", str(web)]
        return self._start("master.log", "org.apache.spark.deploy.master.Master", *address)

    def _start(self, log: str, *command: str) -> subprocess.Popen[bytes]:
        environment = {
            "SPARK_HOME": str(self._spark_home),
            "SPARK_LOCAL_IP": "127.0.0.1",
            "SPARK_LOCAL_DIRS": str(self.local),
        }
        spark_class = str(self._spark_home / "bin" / "spark-class")
        return self._stack.enter_context(process(self._into / log, spark_class, *command, **environment))


@contextmanager
def cluster(spark_home: Path, into: Path) -> Iterator[Cluster]:
    """A cluster that is ready."""
    port, web = free_port(), free_port()
    with ExitStack() as stack:
        made = Cluster(f"spark://127.0.0.1:{port}", spark_home, into, stack)
        running = [made.start_master(port, web)]
        for name in ("one", "two"):
            made.start_worker(name)
        running += made.workers.values()
        wait_for(
            lambda: master_says(web).get("aliveworkers") == 2,
            lambda: f"the cluster does not have two workers\n{logs(into)}",
            has_ended=lambda: any(each.poll() is not None for each in running),
            pause=0.3,
        )
        yield made


def submitting(spark_home: Path) -> dict[str, str]:
    """What `spark-submit` and its workers need of the environment to find this project."""
    return {
        "SPARK_HOME": str(spark_home),
        "PYSPARK_PYTHON": sys.executable,
        "SPARK_LOCAL_IP": "127.0.0.1",
        "PYTHONPATH": os.pathsep.join(str(ROOT / root) for root in ("sdk", "runtime", "plugins")),
    }


def master_says(web: int) -> dict[str, Any]:
    direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with direct.open(f"http://127.0.0.1:{web}/json/", timeout=5) as answer:
            status: dict[str, Any] = json.load(answer)
            return status
    except (OSError, ValueError):  # a master that starts answers with a page for a moment
        return {}


def logs(into: Path) -> str:
    files = sorted(path for path in paths(into) if path.suffix == ".log")
    return "\n".join(f"--- {log}\n{log.read_text(errors='replace')[-3000:]}" for log in files)


def paths(directory: Path) -> list[Path]:
    """All files and directories in a directory. Other processes may remove some of them meanwhile."""
    return [Path(parent, name) for parent, *names in os.walk(directory) for name in chain(*names)]


def descendants(pid: int) -> list[int]:
    """The processes that a process started, and that those started; ancestors come first."""
    shown = subprocess.run(["ps", "-eo", "pid=,ppid="], capture_output=True, text=True, check=True).stdout
    parents = {int(child): int(parent) for child, parent in (line.split() for line in shown.splitlines())}
    found, new = [], [pid]
    while new:
        new = [child for child, parent in parents.items() if parent in new]
        found += new
    return found


def command_of(pid: int) -> str:
    """A process's command line; an empty text if the process has ended."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode()
    except OSError:
        return ""
