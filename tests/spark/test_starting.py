"""Messages of a run that starts, or cannot start, and what remains of it."""

import gc
import json
import logging
import os
import re
import subprocess
import sys
import traceback
import weakref
from contextlib import suppress
from datetime import datetime, timezone
from itertools import takewhile
from pathlib import Path
from textwrap import dedent
from typing import Any, TypeAlias

import pyspark
import pytest

from amadou import Handler, Job, KeyedEvent, MemorySink, SinkSpec, Subject
from amadou.errors import CallbackError, RunError
from amadou.plugins import Source
from amadou_plugins.connectors import LinesSource
from amadou_runtime import RunningJob, start
from amadou_runtime.spark.session import _launch_settings
from amadou_runtime.spark.spark_errors import start_problem

pytestmark = pytest.mark.spark

PATIENCE = 300


class Echo(Handler):
    seen = SinkSpec(str)

    def key_event(self, record: bytes) -> KeyedEvent[str]:
        return KeyedEvent("a", datetime(2025, 1, 1, tzinfo=timezone.utc), record.decode())

    def on_event(self, subject: Subject, event: KeyedEvent[str]) -> None:
        if event.value == "fails":
            raise ValueError("it is so")
        self.seen.collect(subject, event.value)


def job(source: Source) -> Job:
    return Job("echo", Echo(), {"in": source}, {"seen": MemorySink()}, key_groups=4)


def shown(error: BaseException) -> str:
    return "".join(traceback.format_exception(error))


def test_the_repr_of_a_run_has_its_status_batches_and_watermark(spark: Any, tmp_path: Path) -> None:
    (tmp_path / "in.txt").write_text("one\n")
    running = start(job(LinesSource(tmp_path / "in.txt")), spark, checkpoint=str(tmp_path / "checkpoint"))
    assert isinstance(running, RunningJob)
    assert repr(running).startswith("<RunningJob 'echo': running, ")
    running.await_termination()
    assert re.fullmatch(r"<RunningJob 'echo': stopped, \d batches, watermark 2025-01-01T00:00:00Z>", repr(running))


def test_a_run_that_does_not_end_by_itself_warns_if_it_has_no_checkpoint(
    spark: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    warning = "job echo: this run has no checkpoint, so it cannot be resumed"
    with caplog.at_level(logging.WARNING, "amadou"):
        start(job(LinesSource(tmp_path)), spark).stop()
        assert warning in caplog.text
        caplog.clear()
        start(job(LinesSource(tmp_path)), spark, trigger="available-now").await_termination()
        start(job(LinesSource(tmp_path)), spark, checkpoint=str(tmp_path / "checkpoint")).stop()
        assert warning not in caplog.text


@pytest.mark.parametrize("end", ["by itself", "stopped", "failed"])
def test_a_run_that_has_ended_is_freed_from_memory(spark: Any, tmp_path: Path, end: str) -> None:
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


def test_errors_of_spark_at_the_start_are_shown_without_plans(spark: Any, tmp_path: Path) -> None:
    class Wrong(LinesSource):
        def read_stream(self, *arguments: Any) -> Any:
            return super().read_stream(*arguments).selectExpr("nothing")

    with pytest.raises(RunError) as caught:
        start(job(Wrong(tmp_path)), spark)

    assert str(caught.value).startswith("Spark cannot start the source 'in' of 'echo': ")
    assert "nothing" in str(caught.value)
    assert "Project" not in shown(caught.value)


def test_errors_that_end_a_run_are_shown_without_plans(spark: Any, tmp_path: Path) -> None:
    (tmp_path / "in.txt").write_text("fails\n")
    running = start(job(LinesSource(tmp_path / "in.txt")), spark)

    with pytest.raises(CallbackError) as caught:
        running.await_termination()

    assert "it is so" in shown(caught.value)
    assert "StreamingQueryException" not in shown(caught.value)
    assert "Streaming Query" not in shown(caught.value)


SHOWS_SETTINGS = """
    from amadou_runtime.spark.session import session

    settings = session("settings").sparkContext.getConf()
    print(settings.get("spark.python.unix.domain.socket.enabled"))
    print(settings.get("spark.python.worker.reuse"))
    print(settings.get("spark.hadoop.fs.s3a.input.stream.type"))
    """


def test_settings_that_spark_submit_has_are_left_out_of_those_of_amadou() -> None:
    sockets = "spark.python.unix.domain.socket.enabled"
    assert _launch_settings("local[1]", {})[sockets] == "true"
    settings = _launch_settings("local[1]", {sockets: "false", "spark.app.name": "submitted"})
    assert not {sockets, "spark.app.name"} & settings.keys()
    assert settings["spark.python.worker.reuse"] == "true"


@pytest.mark.qualify
def test_settings_of_spark_submit_override_those_of_amadou(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(dedent(SHOWS_SETTINGS))
    conf = ["--conf", "spark.python.unix.domain.socket.enabled=false", "--conf", "spark.ui.enabled=false"]
    submit = [
        f"{os.environ.get('SPARK_HOME') or Path(pyspark.__file__).parent}/bin/spark-submit",
        "--master",
        "local[1]",
    ]
    ended = subprocess.run([*submit, *conf, program], capture_output=True, text=True, timeout=PATIENCE, check=False)
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout.splitlines() == ["false", "true", "classic"]


STARTS = """
    import json
    import os
    import sys

    from amadou.errors import PlatformError
    from amadou_runtime.spark.session import session

    UNSET = {"HADOOP_CONF_DIR": "", "YARN_CONF_DIR": ""}
    before = dict(os.environ)
    for settings, environment in json.loads(sys.argv[1]):
        os.environ.clear()
        os.environ.update({name: value for name, value in {**before, **UNSET, **environment}.items() if value})
        try:
            spark = session("started", conf={"spark.ui.enabled": "false", "spark.master": "local[1]", **settings})
            print(spark.range(3).count())
        except PlatformError as error:
            print(error, flush=True)
    for name in ("log4j2.configurationFile", "zone", "moon"):
        print(name, spark._jvm.System.getProperty(name))
    spark._jvm.System.err.println("later")
    input()
    for _ in range(3):
        spark._jvm.System.err.println("x" * 100_000)
    print("done")
    """
Start: TypeAlias = tuple[dict[str, str], dict[str, str], str]
"""Settings and environment of a start that fails, and its message."""
SOME_STARTS: list[Start] = [
    ({"spark.master": "yarn"}, {}, r"When running with master 'yarn' .*: set HADOOP_CONF_DIR to the directory with"),
    ({"spark.driver.memory": "lots"}, {}, "Invalid maximum heap size: -Xmxlots: set spark.driver.memory to a size"),
    ({}, {"SPARK_HOME": "/none"}, r".*No such file or directory: '/none/.*': unset SPARK_HOME, or set it to the"),
    # Java writes that it has read this variable
    ({"spark.files": "/tmp"}, {"JAVA_TOOL_OPTIONS": "-Dplace=Mars"}, ".*"),
]
ALL_STARTS: list[Start] = [
    *SOME_STARTS,
    ({"spark.master": "bogus"}, {}, r"Master must .*: correct the master, such as local\[\*\], spark://HOST:7077"),
    ({"spark.driver.memory": "10m"}, {}, ".*: set spark.driver.memory to a size such as 1g"),
    ({"spark.driver.memory": "100m"}, {}, ".*driver memory: System"),
    ({"spark.local.dir": "/proc/none"}, {}, "Failed to create any local dir: set SPARK_LOCAL_DIRS or spark.local"),
    ({"spark.master": "k8s://https://127.0.0.1:1"}, {}, ".*Connection refused.*: check the master's address, and"),
]


@pytest.mark.parametrize(
    "starts", [SOME_STARTS, pytest.param(ALL_STARTS, marks=pytest.mark.qualify)], ids=["some causes", "all causes"]
)
def test_one_line_says_why_spark_cannot_start_and_the_next_start_has_other_settings_and_passes_on_what_java_writes(
    starts: list[Start],
) -> None:
    options = {"spark.driver.extraJavaOptions": "-Dzone=Mars", "spark.driver.defaultJavaOptions": "-Dmoon=Phobos"}
    last_settings = {"spark.driver.memory": "600m", **options}
    tried = [*((settings, environment) for settings, environment, _ in starts), (last_settings, {})]
    with subprocess.Popen(
        [sys.executable, "-c", dedent(STARTS), json.dumps(tried)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as program:
        assert program.stdin is not None
        assert program.stdout is not None
        assert program.stderr is not None
        assert set(takewhile("later\n".__ne__, program.stderr)) == {"Picked up JAVA_TOOL_OPTIONS: -Dplace=Mars\n"}
        program.stderr.close()  # Java does not wait for a reader
        program.stdin.write("\n")
        program.stdin.flush()
        *failed, count, log4j, zone, moon, last = program.stdout.read().splitlines()
    assert program.returncode == 0
    for (_, _, message), line in zip(starts, failed, strict=True):
        assert re.match(f"Spark cannot start: {message}", line), line
    assert re.fullmatch(r"log4j2.configurationFile file:.*/amadou_runtime/spark/log4j2.properties", log4j)
    assert (count, zone, moon, last) == ("3", "zone Mars", "moon Phobos", "done")


@pytest.mark.parametrize(
    ("cause", "advice"),
    [
        ("Master must either be yarn or start with spark, k8s, or local", "correct the master, such as local[*], "),
        ("System memory 100000 must be at least 4. Increase driver memory", "set spark.driver.memory to a size"),
        ("Failed to create any local dir.", "set SPARK_LOCAL_DIRS or spark.local.dir to a directory"),
        ("java.net.ConnectException: Connection refused", "check the master's address, and that this machine can"),
        ("unresolved dependency: org.example#none;1: not found", "correct spark.jars.packages, and check that this"),
    ],
)
def test_the_error_of_a_start_says_what_to_do(cause: str, advice: str) -> None:
    assert start_problem(RuntimeError(cause)).startswith(f"{cause.rstrip('.')}: {advice}")


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ("spark.sql.shuffle.partitions=0", "Spark cannot start a session with these settings: .* must be positive"),
        (
            "spark.sql.streaming.stateStore.providerClass=foo.Bar",
            "failed in Spark: Spark does not have the class foo.Bar: correct the setting",
        ),
    ],
)
def test_one_line_names_a_setting_that_spark_refuses(spark: Any, tmp_path: Path, setting: str, message: str) -> None:
    (tmp_path / "in.txt").write_text("one\n")
    name, value = setting.split("=")
    with pytest.raises(RunError) as caught:
        start(job(LinesSource(tmp_path / "in.txt")), spark, conf={name: value}).await_termination()
    assert re.search(message, str(caught.value)), str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_run_that_fails_in_spark_has_the_status_failed(spark: Any, tmp_path: Path) -> None:
    (tmp_path / "in.txt").write_text("one\n")
    wrong = {"spark.sql.streaming.stateStore.providerClass": "foo.Bar"}
    running = start(job(LinesSource(tmp_path / "in.txt")), spark, conf=wrong)
    with pytest.raises(RunError):
        running.await_termination()
    assert running.status == "failed"


@pytest.mark.skipif("SPARK_HOME" in os.environ, reason="SPARK_HOME names the pyspark of the workers")
def test_local_workers_import_the_installed_pyspark_and_not_sparks_zip_of_it(spark: Any) -> None:
    files = spark.sparkContext.parallelize([0], 1).map(lambda _: pyspark.__file__).collect()
    assert files == [pyspark.__file__]
