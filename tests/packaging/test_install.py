"""The built wheel, installed where nothing else of this checkout can be seen."""

import os
import subprocess
import sys
import sysconfig
import zipfile
from importlib.metadata import version
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGES = ("amadou", "amadou_runtime", "amadou_plugins")

JOB = """
import json
from datetime import datetime
from amadou import Handler, Job, KeyedEvent, MemorySink, MemorySource, SinkSpec, ValueSpec
from amadou_runtime import TestRun

class Count(Handler):
    count = ValueSpec(int, default=0)
    counts = SinkSpec(int)

    def key_event(self, record):
        return KeyedEvent("all", datetime.fromisoformat(record))

    def on_event(self, subject, event):
        self.count.state_for(subject).value += 1
        self.counts.collect(subject, self.count.state_for(subject).value)

job = Job("count", Count(), {"times": MemorySource()}, {"counts": MemorySink()})
print(TestRun(job).add_records(["2025-01-01T00:00:00Z"] * 3).run().records("counts"))
"""


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    into = tmp_path_factory.mktemp("dist")
    run(sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(into), str(ROOT), cwd=into)
    return next(into.glob("*.whl"))


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The `bin` directory of an environment that has the wheel."""
    venv = tmp_path_factory.mktemp("installed") / "venv"
    run(sys.executable, "-m", "venv", "--without-pip", str(venv), cwd=venv.parent)
    python = venv / "bin" / "python"
    run(sys.executable, "-m", "pip", "--python", str(python), "install", "-q", "--no-deps", str(wheel), cwd=venv.parent)
    # Its dependencies are those of the environment that runs the tests: installing them again would take a minute and
    # show nothing. Python does not follow the .pth files of such a directory, so an editable amadou in it stays unseen.
    (site_packages(venv) / "dependencies.pth").write_text(sysconfig.get_path("purelib") + "\n")
    return venv / "bin"


def site_packages(venv: Path) -> Path:
    return venv / "lib" / f"python{sys.version_info.major}.{sys.version_info.minor}" / "site-packages"


def run(*command: str, cwd: Path) -> str:
    environment = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "VIRTUAL_ENV")}
    done = subprocess.run(command, cwd=cwd, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{' '.join(command)}\n{done.stdout}\n{done.stderr}"
    return done.stdout


def test_the_wheel_has_the_three_packages_and_nothing_else(wheel: Path):
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()

    assert {name.split("/")[0] for name in names if ".dist-info/" not in name} == {*PACKAGES}
    assert {f"{package}/py.typed" for package in PACKAGES} <= {*names}
    assert not [name for name in names if "__pycache__" in name]


@pytest.mark.parametrize("package", PACKAGES)
def test_a_package_is_imported_from_the_wheel(package: str, installed: Path, tmp_path: Path):
    file = Path(
        run(str(installed / "python"), "-c", f"import {package}; print({package}.__file__)", cwd=tmp_path).strip()
    )

    assert file.is_relative_to(installed.parent)
    assert (file.parent / "py.typed").exists()


def test_a_test_run_processes_records_with_the_wheel(installed: Path, tmp_path: Path):
    assert run(str(installed / "python"), "-c", JOB, cwd=tmp_path) == "[1, 2, 3]\n"


def test_the_wheel_has_the_command_amadou(installed: Path, tmp_path: Path):
    shown = run(str(installed / "amadou"), "--help", cwd=tmp_path)

    assert "run" in shown
    assert "describe" in shown


def test_the_metadata_names_the_licence_and_the_extras(installed: Path, tmp_path: Path):
    ask = "from importlib.metadata import metadata; print(metadata('amadou'))"

    lines = run(str(installed / "python"), "-c", ask, cwd=tmp_path).splitlines()

    assert "License-Expression: Apache-2.0" in lines
    assert {"Provides-Extra: spark", "Provides-Extra: dev"} <= {*lines}


def test_a_new_project_has_all_files_of_the_template_and_the_wheel_of_amadou(installed: Path, tmp_path: Path):
    run(str(installed / "amadou"), "new", "project-name", cwd=tmp_path)

    template = ROOT / "runtime" / "amadou_runtime" / "project_template"
    wheel = Path("wheels", f"amadou-{version('amadou')}-py3-none-any.whl")
    assert files_of(tmp_path / "project-name") == files_of(template) | {wheel.parent, wheel}


def test_the_commands_that_a_new_project_begins_with_succeed_where_amadou_is_not_installed(
    installed: Path, tmp_path: Path
):
    change, install, test = run(str(installed / "amadou"), "new", "clicks", cwd=tmp_path).splitlines()
    run(sys.executable, "-m", "venv", "--without-pip", str(tmp_path / "venv"), cwd=tmp_path)
    pip = tmp_path / "venv" / "bin" / "pip"
    pip.write_text('#!/bin/sh\nexec python -m pip "$@"\n')
    pip.chmod(0o755)
    # It has pip and the dependencies of the environment that runs the tests, but not its amadou.
    dependencies = tmp_path / "dependencies"
    dependencies.mkdir()
    for entry in Path(sysconfig.get_path("purelib")).iterdir():
        if "amadou" not in entry.name:
            (dependencies / entry.name).symlink_to(entry)
    (site_packages(tmp_path / "venv") / "dependencies.pth").write_text(f"{dependencies}\n")
    activate = f"source {tmp_path}/venv/bin/activate"

    done = run("bash", "-ec", "\n".join([activate, change, install, f"python -m {test}"]), cwd=tmp_path)

    assert "4 passed" in done


def files_of(directory: Path) -> set[Path]:
    return {path.relative_to(directory) for path in directory.rglob("*") if "__pycache__" not in path.parts}
