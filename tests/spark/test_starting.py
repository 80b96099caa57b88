"""What is said when a run starts, or cannot."""

import gc
import logging
import os
import re
import subprocess
import sys
import traceback
import weakref
from contextlib import suppress
from datetime import datetime, timezone
from pathlib import Path
from textwrap import dedent
from typing import Any

import pyspark
import pytest

from amadou import Handler, Job, KeyedEvent, MemorySink, SinkSpec, Source, Subject
from amadou.errors import CallbackError, RunError
from amadou_plugins.connectors import LinesSource
from amadou_runtime import RunningJob, start

pytestmark = pytest.mark.spark


class Echo(Handler):
    seen = SinkSpec(str)

    def key_event(self, record: bytes) -> KeyedEvent[str]:
        return KeyedEvent("a", datetime(2025, 1, 1, tzinfo=timezone.utc), record.decode())

    def on_event(self, subject: Subject, event: KeyedEvent[str]) -> None:
        if event.value == "fails":
            raise ValueError("it is so")
        self.seen.collect(subject, event.value)


def job(source: Source) -> Job:
    return Job("echo", Echo(), {"in": source}, {"seen": MemorySink()})


def shown(error: BaseException) -> str:
    return "".join(traceback.format_exception(error))


def test_a_job_that_runs_shows_how_far_it_is(spark: Any, tmp_path: Path) -> None:
    (tmp_path / "in.txt").write_text("one\n")
    running = start(job(LinesSource(tmp_path / "in.txt")), spark, checkpoint=str(tmp_path / "checkpoint"))
    assert isinstance(running, RunningJob)
    assert repr(running).startswith("<RunningJob 'echo': running, ")
    running.await_termination()
    assert re.fullmatch(r"<RunningJob 'echo': stopped, \d batches, watermark 2025-01-01T00:00:00Z>", repr(running))


def test_a_run_that_goes_on_without_a_checkpoint_says_so(
    spark: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    told = "job echo: this run has no checkpoint, so it cannot be resumed"
    with caplog.at_level(logging.WARNING, "amadou"):
        start(job(LinesSource(tmp_path)), spark).stop()
        assert told in caplog.text
        caplog.clear()
        start(job(LinesSource(tmp_path)), spark, trigger="available-now").await_termination()
        start(job(LinesSource(tmp_path)), spark, checkpoint=str(tmp_path / "checkpoint")).stop()
        assert told not in caplog.text


@pytest.mark.parametrize("end", ["by itself", "stopped", "failed"])
def test_nothing_holds_a_run_that_has_ended(spark: Any, tmp_path: Path, end: str) -> None:
    """Else Spark's part of each run would stay in memory until the program ends."""
    (tmp_path / "in.txt").write_text("fails\n" if end == "failed" else "one\n")
    running = start(job(LinesSource(tmp_path / "in.txt")), spark, trigger=None if end == "stopped" else "available-now")
    if end == "stopped":
        running.stop()
    else:
        with suppress(CallbackError):
            running.await_termination()
    held = weakref.ref(running)
    del running
    gc.collect()
    assert held() is None


def test_what_spark_refuses_at_the_start_comes_without_its_plans(spark: Any, tmp_path: Path) -> None:
    class Wrong(LinesSource):
        def read_stream(self, *arguments: Any) -> Any:
            return super().read_stream(*arguments).selectExpr("nothing")

    with pytest.raises(RunError) as caught:
        start(job(Wrong(tmp_path)), spark)

    assert str(caught.value).startswith("Spark cannot start the source 'in' of 'echo': ")
    assert "nothing" in str(caught.value)
    assert "Project" not in shown(caught.value)


def test_what_ends_a_run_comes_without_sparks_plans(spark: Any, tmp_path: Path) -> None:
    (tmp_path / "in.txt").write_text("fails\n")
    running = start(job(LinesSource(tmp_path / "in.txt")), spark)

    with pytest.raises(CallbackError) as caught:
        running.await_termination()

    assert "it is so" in shown(caught.value)
    assert "StreamingQueryException" not in shown(caught.value)
    assert "Streaming Query" not in shown(caught.value)


SHOWS_OPTIONS = """
    from amadou_runtime.spark.session import session

    spark = session("options", master="local[1]", conf={"spark.ui.enabled": "false", **%r})
    for name in ("log4j2.configurationFile", "zone", "moon"):
        print(name, spark._jvm.System.getProperty(name))
    """


SHOWS_SETTINGS = """
    from amadou_runtime.spark.session import session

    settings = session("settings").sparkContext.getConf()
    print(settings.get("spark.python.unix.domain.socket.enabled"))
    print(settings.get("spark.python.worker.reuse"))
    print(settings.get("spark.hadoop.fs.s3a.input.stream.type"))
    """


def test_options_for_java_leave_what_is_logged_as_it_is() -> None:
    options = {"spark.driver.extraJavaOptions": "-Dzone=Mars", "spark.driver.defaultJavaOptions": "-Dmoon=Phobos"}
    ended = subprocess.run(
        [sys.executable, "-c", dedent(SHOWS_OPTIONS % options)],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr
    logged, *own = ended.stdout.splitlines()
    assert re.fullmatch(r"log4j2.configurationFile file:.*/amadou_runtime/spark/log4j2.properties", logged)
    assert own == ["zone Mars", "moon Phobos"]


def test_settings_of_spark_submit_override_those_of_amadou(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(dedent(SHOWS_SETTINGS))
    given = ["--conf", "spark.python.unix.domain.socket.enabled=false", "--conf", "spark.ui.enabled=false"]
    submit = [
        f"{os.environ.get('SPARK_HOME') or Path(pyspark.__file__).parent}/bin/spark-submit",
        "--master",
        "local[1]",
    ]
    ended = subprocess.run([*submit, *given, program], capture_output=True, text=True, timeout=120, check=False)
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout.splitlines() == ["false", "true", "classic"]


def session_of(
    settings: dict[str, str], *, program: str = "", environment: dict[str, str] | None = None
) -> "subprocess.CompletedProcess[str]":
    """Start Spark in another process.

    :param program: what to do with the session `spark`
    :param environment: variables; empty variables are removed
    """
    start = f"""
from amadou.errors import PlatformError
from amadou_runtime.spark.session import session
try:
    spark = session("started", conf={{"spark.ui.enabled": "false", "spark.master": "local[1]", **{settings!r}}})
except PlatformError as error:
    raise SystemExit(str(error)) from None
"""
    return subprocess.run(
        [sys.executable, "-c", start + dedent(program)],
        env={name: value for name, value in {**os.environ, **(environment or {})}.items() if value},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


@pytest.mark.parametrize(
    ("settings", "environment", "shown"),
    [
        (
            {"spark.master": "yarn"},
            {},
            r"When running with master 'yarn' .*: set HADOOP_CONF_DIR to the directory with",
        ),
        ({"spark.master": "bogus"}, {}, r"Master must .*: correct the master, such as local\[\*\], spark://HOST:7077"),
        ({"spark.driver.memory": "lots"}, {}, "Invalid maximum heap size: -Xmxlots: set spark.driver.memory to a size"),
        ({"spark.driver.memory": "10m"}, {}, ".*: set spark.driver.memory to a size such as 1g"),
        ({"spark.local.dir": "/proc/none"}, {}, "Failed to create any local dir: set SPARK_LOCAL_DIRS or spark.local"),
        ({}, {"SPARK_HOME": "/none"}, r".*No such file or directory: '/none/.*': unset SPARK_HOME, or set it to the"),
        ({"spark.master": "k8s://https://127.0.0.1:1"}, {}, ".*Connection refused.*: check the master's address, and"),
    ],
)
def test_one_line_says_why_spark_cannot_start(
    settings: dict[str, str], environment: dict[str, str], shown: str
) -> None:
    ended = session_of(settings, environment={"HADOOP_CONF_DIR": "", "YARN_CONF_DIR": "", **environment})
    assert ended.returncode == 1, ended.stderr
    (line,) = ended.stderr.splitlines()
    assert re.match(f"Spark cannot start: {shown}", line), line


def test_the_next_start_can_have_other_settings() -> None:
    again = """
        from amadou_runtime.spark.session import session
        from amadou.errors import PlatformError

        settings = {"spark.ui.enabled": "false"}
        for memory in ("100m", "600m"):
            try:
                spark = session("again", master="local[1]", conf={**settings, "spark.driver.memory": memory})
            except PlatformError as error:
                print(error)
        print(spark.range(3).count())
        """
    ended = subprocess.run(
        [sys.executable, "-c", dedent(again)], capture_output=True, text=True, timeout=120, check=False
    )
    assert ended.returncode == 0, ended.stderr
    failed, count = ended.stdout.splitlines()
    assert (failed.startswith("Spark cannot start: "), "driver memory: System" in failed, count) == (True, True, "3")
    assert ended.stderr == ""


def test_lines_of_java_are_passed_on_while_spark_starts_and_later(tmp_path: Path) -> None:
    agent = {"JAVA_TOOL_OPTIONS": "-Dplace=Mars"}  # Java says that it has read this variable
    program = """
        err = spark._jvm.System.err
        err.println("later")
        spark._jvm.java.lang.Thread.sleep(500)
        """
    ended = session_of({"spark.files": str(tmp_path)}, environment=agent)
    assert "Picked up JAVA_TOOL_OPTIONS: -Dplace=Mars" in ended.stderr
    ended = session_of({}, program=program)
    assert (ended.returncode, ended.stderr) == (0, "later\n")


def test_a_run_does_not_wait_if_nothing_reads_what_java_writes() -> None:
    program = """
        from amadou_runtime.spark.session import session

        spark = session("unread", master="local[1]", conf={"spark.ui.enabled": "false"})
        for _ in range(3):
            spark._jvm.System.err.println("x" * 100_000)
        print("done")
        """
    reading, writing = os.pipe()
    os.close(reading)
    ended = subprocess.run(
        [sys.executable, "-c", dedent(program)],
        stdout=subprocess.PIPE,
        stderr=writing,
        text=True,
        timeout=120,
        check=False,
    )
    os.close(writing)
    assert ended.stdout == "done\n"


@pytest.mark.parametrize(
    ("setting", "shown"),
    [
        ("spark.sql.shuffle.partitions=0", "Spark cannot start a session with these settings: .* must be positive"),
        (
            "spark.sql.streaming.stateStore.providerClass=foo.Bar",
            "failed in Spark: Spark does not have the class foo.Bar: correct the setting",
        ),
    ],
)
def test_one_line_names_a_setting_that_spark_refuses(spark: Any, tmp_path: Path, setting: str, shown: str) -> None:
    (tmp_path / "in.txt").write_text("one\n")
    name, value = setting.split("=")
    with pytest.raises(RunError) as caught:
        start(job(LinesSource(tmp_path / "in.txt")), spark, conf={name: value}).await_termination()
    assert re.search(shown, str(caught.value)), str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.skipif("SPARK_HOME" in os.environ, reason="SPARK_HOME names the pyspark of the workers")
def test_local_workers_import_the_installed_pyspark_and_not_sparks_zip_of_it(spark: Any) -> None:
    files = spark.sparkContext.parallelize([0], 1).map(lambda _: pyspark.__file__).collect()
    assert files == [pyspark.__file__]
