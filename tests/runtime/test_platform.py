"""Without pyspark, Java, or the right Java, a message says what to install."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from amadou.errors import PlatformError
from amadou_runtime.spark.session import check_java


def java(directory: Path, version: str) -> None:
    """Puts a program into a directory that answers as a Java of that version does."""
    program = directory / "java"
    program.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\" 2024-01-01' >&2\n")
    program.chmod(0o755)


def test_no_java_is_told_with_what_to_install(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(PlatformError, match=r"no Java was found, but Spark needs Java 17 or 21: install .*JAVA_HOME"):
        check_java()


@pytest.mark.parametrize(("version", "shown"), [("1.8.0_402", "8"), ("11.0.2", "11"), ("25", "25")])
def test_a_wrong_java_is_told_with_its_version(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, version: str, shown: str
) -> None:
    java(tmp_path, version)
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}/bin")
    with pytest.raises(PlatformError, match=f"the version of .* is {shown}, but Spark needs Java 17 or 21: install"):
        check_java()


def test_the_java_of_java_home_comes_first(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "bin").mkdir()
    java(tmp_path / "bin", "17.0.15")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    check_java()
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "nowhere"))
    with pytest.raises(PlatformError, match="cannot be started"):
        check_java()


def test_without_pyspark_a_run_says_how_to_install_it(tmp_path: Path) -> None:
    (tmp_path / "job.py").write_text(
        "from amadou import Handler, Job, KeyedEvent, MemorySource\n"
        "class Nothing(Handler):\n"
        "    def key_event(self, record): return None\n"
        "    def on_event(self, subject, event): pass\n"
        "job = Job('nothing', Nothing(), {'in': MemorySource()}, {})\n"
    )
    # Python finds nothing under a name whose entry in sys.modules is None: as if pyspark were not installed.
    program = "import sys; sys.modules['pyspark'] = None; from amadou_runtime.command.cli import app; app()"
    ended = subprocess.run(
        [sys.executable, "-c", program, "run", f"{tmp_path / 'job.py'}:job"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode == 1
    assert ended.stderr.strip() == "the Spark engine needs pyspark: run pip install 'amadou[spark]'"
