"""Without pyspark, Java, or the right Java, a message says what to install."""

import importlib
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from amadou import Handler, Job, KeyedEvent, MemorySource, Subject, spark_versions
from amadou.errors import PlatformError
from amadou.spark_versions import check_reads_state, check_spark_version
from amadou_runtime import start
from amadou_runtime.spark.session import check_java, check_log_store, check_pyspark, session


class Nothing(Handler):
    def key_event(self, record: Any) -> None:
        return None

    def on_event(self, subject: Subject, event: KeyedEvent[Any]) -> None:
        raise AssertionError


def java(directory: Path, version: str) -> None:
    """Write a program that prints the version of a Java."""
    program = directory / "java"
    program.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\" 2024-01-01' >&2\n")
    program.chmod(0o755)


def test_the_error_for_a_missing_java_says_what_to_install(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(PlatformError, match=r"no Java was found, but Spark needs Java 17 or 21: install .*JAVA_HOME"):
        check_java()


@pytest.mark.parametrize(("version", "shown"), [("1.8.0_402", "8"), ("11.0.2", "11"), ("25", "25")])
def test_the_error_for_an_unsupported_java_names_its_version(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, version: str, shown: str
) -> None:
    java(tmp_path, version)
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}/bin")
    with pytest.raises(PlatformError, match=f"the version of .* is {shown}, but Spark needs Java 17 or 21: install"):
        check_java()


def test_java_home_is_preferred_to_the_path(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "bin").mkdir()
    java(tmp_path / "bin", "17.0.15")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    check_java()
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "nowhere"))
    with pytest.raises(PlatformError, match="cannot be started"):
        check_java()


def test_the_error_for_a_missing_pyspark_says_how_to_install_it(tmp_path: Path) -> None:
    (tmp_path / "job.py").write_text(
        "from amadou import Handler, Job, KeyedEvent, MemorySource\n"
        "class Nothing(Handler):\n"
        "    def key_event(self, record): return None\n"
        "    def on_event(self, subject, event): pass\n"
        "job = Job('nothing', Nothing(), {'in': MemorySource()}, {})\n"
    )
    # An import of a name whose entry in sys.modules is None fails, as if pyspark were not installed.
    program = "import sys; sys.modules['pyspark'] = None; from amadou_runtime.command.cli import app; app()"
    ended = subprocess.run(
        [sys.executable, "-c", program, "run", f"{tmp_path / 'job.py'}:job"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode == 1
    assert ended.stderr.strip() == "the Spark engine needs pyspark: run pip install 'amadou[spark]'"


def test_a_spark_home_of_another_version_is_an_error(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    version = pytest.importorskip("pyspark").__version__
    monkeypatch.setenv("SPARK_HOME", str(tmp_path))
    (tmp_path / "jars").mkdir()
    jar = tmp_path / "jars" / f"spark-core_2.13-{version}.jar"
    jar.touch()
    check_pyspark()
    jar.rename(tmp_path / "jars" / "spark-core_2.13-3.5.1-vendor-0.jar")
    with pytest.raises(PlatformError, match=f"is Spark 3.5.1-vendor-0, but pyspark {version} is installed: unset"):
        check_pyspark()


def test_the_error_for_a_pyspark_that_is_too_old_names_the_oldest_version(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pytest.importorskip("pyspark"), "__version__", "3.4.4")
    with pytest.raises(PlatformError, match=r"^pyspark 3.4.4 is installed, but amadou needs pyspark 3.5 or newer: .*$"):
        check_pyspark()


def test_the_error_for_a_pyspark_that_is_too_old_for_this_python_names_a_python(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(pytest.importorskip("pyspark"), "__version__", "3.5.8")
    monkeypatch.setattr(spark_versions, "find_spec", lambda name: object())
    check_spark_version()
    monkeypatch.setattr(spark_versions, "find_spec", lambda name: None)  # Python 3.12 does not have distutils
    with pytest.raises(PlatformError, match=r"^pyspark 3.5.8 does not run on Python 3\..*: use Python 3.11, or"):
        check_spark_version()


def test_errors_name_features_that_need_a_newer_spark(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pytest.importorskip("pyspark"), "__version__", "3.5.8")
    with pytest.raises(PlatformError, match=r'the store "log", .* needs Spark 4.0 or newer, but pyspark 3.5.8 is inst'):
        check_log_store()
    with pytest.raises(PlatformError, match=r"^reading the state .* is installed: a newer Spark can read this checkp"):
        check_reads_state()
    monkeypatch.setitem(sys.modules, "pyspark.sql.datasource", None)
    monkeypatch.delitem(sys.modules, "amadou.data_source", raising=False)
    with pytest.raises(PlatformError, match=r"a source in Python, such as KafkaSource, needs Spark 4.0 or newer, but"):
        importlib.import_module("amadou.data_source")


@pytest.mark.parametrize(
    ("variables", "settings", "shown"),
    [
        ({"SPARK_REMOTE": "sc://cluster/;token=sesame"}, {}, "SPARK_REMOTE"),
        ({"SPARK_CONNECT_MODE_ENABLED": "1"}, {}, "SPARK_CONNECT_MODE_ENABLED"),
        ({"SPARK_API_MODE": "connect"}, {}, "spark.api.mode (or SPARK_API_MODE)"),
        ({}, {"conf": {"spark.api.mode": "Connect"}}, "spark.api.mode (or SPARK_API_MODE)"),
        ({}, {"conf": {"spark.remote": "sc://cluster/;token=sesame"}}, "spark.remote"),
        ({}, {"master": "sc://cluster/;token=sesame"}, "the master"),
    ],
)
def test_settings_that_select_spark_connect_are_refused(
    monkeypatch: pytest.MonkeyPatch, variables: dict[str, str], settings: dict[str, Any], shown: str
) -> None:
    pytest.importorskip("pyspark")
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(PlatformError) as error:
        session("connected", **settings)
    assert str(error.value) == (
        f"{shown} selects Spark Connect, but amadou needs a classic session, in the driver: run the job on a machine "
        "of the cluster, for example with spark-submit. On Databricks, use classic compute with the dedicated access "
        "mode. Otherwise, remove this setting"
    )


@pytest.mark.parametrize("jar", ["/none/my.jar", "file:/none/my.jar", "none.jar", "/none/*.jar"])
def test_the_error_for_a_local_jar_that_does_not_exist_names_it(jar: str) -> None:
    pytest.importorskip("pyspark")
    message = f"spark.jars names {jar}, which does not exist on this machine: correct the path"
    with pytest.raises(PlatformError, match=re.escape(message)):
        session("jars", conf={"spark.jars": f"local:/on/workers.jar,hdfs://host/a.jar, {jar}"})


def test_a_session_of_spark_connect_is_refused() -> None:
    pytest.importorskip("pyspark")
    connected = type("SparkSession", (), {"__module__": "pyspark.sql.connect.session"})()
    with pytest.raises(PlatformError, match="the session is a client of Spark Connect, but amadou needs a classic"):
        start(Job("nothing", Nothing(), {"in": MemorySource([])}, {}), connected)


def test_the_error_for_a_master_that_does_not_answer_is_one_line() -> None:
    pytest.importorskip("pyspark")
    from amadou_runtime.spark.spark_errors import start_problem

    error = RuntimeError(
        "java.lang.IllegalStateException: Cannot call methods on a stopped SparkContext.\nThis stopped"
    )
    assert start_problem(error).startswith("the Spark master does not answer, or does not run Spark ")
    assert "\n" not in start_problem(error)
