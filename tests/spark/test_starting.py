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


@pytest.mark.skipif("SPARK_HOME" in os.environ, reason="SPARK_HOME names the pyspark of the workers")
def test_local_workers_import_the_installed_pyspark_and_not_sparks_zip_of_it(spark: Any) -> None:
    files = spark.sparkContext.parallelize([0], 1).map(lambda _: pyspark.__file__).collect()
    assert files == [pyspark.__file__]
