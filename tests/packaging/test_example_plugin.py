"""The example of a third party's plugin: built, installed beside amadou, and used."""

import json
import os
import shutil
import sqlite3
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

from amadou_runtime.command.packed_job import write_wheel

ROOT = Path(__file__).parents[2]
EXAMPLE = ROOT / "examples" / "sqlite_plugin"
VIEWS = ROOT / "examples" / "tumbling_window"


@pytest.fixture(scope="module")
def amadou(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The command of an environment that has amadou and the plugin."""
    into = tmp_path_factory.mktemp("plugin")
    source = shutil.copytree(EXAMPLE, into / "source")
    run(sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(into), str(source))
    wheels = [*into.glob("amadou_sqlite-*.whl"), write_wheel(into)]
    run(sys.executable, "-m", "venv", "--without-pip", str(into / "venv"))
    python = str(into / "venv" / "bin" / "python")
    run(sys.executable, "-m", "pip", "--python", python, "install", "-q", "--no-deps", *map(str, wheels))
    # the dependencies are those of the environment that runs the tests
    site = into / "venv" / "lib" / f"python{sys.version_info.major}.{sys.version_info.minor}" / "site-packages"
    (site / "dependencies.pth").write_text(sysconfig.get_path("purelib") + "\n")
    return into / "venv" / "bin" / "amadou"


def run(*command: str, cwd: Path | None = None, **environment: str) -> str:
    inherited = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "VIRTUAL_ENV")}
    done = subprocess.run(command, cwd=cwd, env=inherited | environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{' '.join(command)}\n{done.stdout}\n{done.stderr}"
    return done.stdout


def test_the_plugins_command_lists_an_installed_plugin_with_its_distribution(amadou: Path) -> None:
    listed = run(str(amadou), "plugins", COLUMNS="200")
    (line,) = [line for line in listed.splitlines() if "amadou_sqlite.plugin" in line]
    assert "amadou-sqlite 0.1.0" in line
    assert "amadou_register_sinks" in listed
    assert "amadou_register_metrics" in listed


def test_the_sink_of_an_installed_plugin_is_used_by_its_name(amadou: Path, tmp_path: Path) -> None:
    job = shutil.copytree(VIEWS, tmp_path / "job")
    command = [str(amadou), "run", "views.py", "--engine", "embedded", "--sink", "sums=sqlite:sums.db"]
    for _ in range(2):  # two runs, with the same batch numbers
        run(*command, cwd=job)
    with sqlite3.connect(job / "sums.db") as database:
        sums = [json.loads(value) for (value,) in database.execute("SELECT value FROM sums")]
    assert len(sums) > 2
    assert set(sums[0]) == {"channel_id", "timestamp", "sum"}
    assert len(sums) == 2 * len({tuple(each.values()) for each in sums})


REPROCESSED = """
from amadou.plugins import SinkBatch
from amadou_sqlite import SqliteSink

sink = SqliteSink("values.db")
batch = SinkBatch("run", "job", "values", 1, sink.codec(int))
for _ in range(2):
    writer = sink.open(batch, "00000")
    writer.write([batch.codec.encode(7)])
    sink.commit(batch, [writer.finish()])
"""


def test_a_reprocessed_batch_is_in_the_database_once(amadou: Path, tmp_path: Path) -> None:
    run(str(amadou.with_name("python")), "-c", REPROCESSED, cwd=tmp_path)
    with sqlite3.connect(tmp_path / "values.db") as database:
        assert database.execute('SELECT value FROM "values"').fetchall() == [("7",)]


METRIC = """
from datetime import datetime

from amadou import Handler, Job, KeyedEvent, MemorySink, MemorySource, SinkSpec
from amadou.plugins import hookimpl
from amadou_runtime import run


class Twice(Handler):
    values = SinkSpec(int)

    def key_event(self, record):
        return KeyedEvent("k", datetime.fromisoformat("2025-01-01T00:00:00Z"), record)

    def on_event(self, subject, event):
        self.values.collect(subject, event.value)
        self.values.collect(subject, event.value)


class Shown:
    @hookimpl
    def amadou_batch_completed(self, run, batch):
        for metric in run.metrics:
            if metric.name == "sqlite_values_per_event":
                print(metric.read(batch))


job = Job("twice", Twice(), {"in": MemorySource([1, 2])}, {"values": MemorySink()}, plugins=[Shown()])
run(job, engine="embedded")
"""


def test_other_plugins_receive_the_metric_of_an_installed_plugin(amadou: Path, tmp_path: Path) -> None:
    printed = run(str(amadou.with_name("python")), "-c", METRIC, cwd=tmp_path)
    assert printed.split() == ["2.0", "None"]
