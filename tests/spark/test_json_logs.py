"""With `--log-format json`, the workers and Spark also log JSON lines."""

import json
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest

from amadou.spark_versions import logs_json
from amadou_runtime import run
from amadou_runtime.jobs.load_job import load_job
from amadou_runtime.spark.savepoints.rescaling import rescale

pytestmark = pytest.mark.spark

LEVELS = {
    "fatal": "CRITICAL",
    "error": "ERROR",
    "warn": "WARNING",
    "info": "INFO",
    "debug": "DEBUG",
    "trace": "DEBUG",
}
"""Java's levels, and the names that they have in Python."""
JOB = '''
    import logging
    from datetime import datetime, timezone

    from amadou import FromPort, Handler, Job, KeyedEvent, MemorySink, SinkSpec, Stage
    from amadou.plugins import Sink, hookimpl
    from amadou.errors import SinkError
    from amadou_plugins.connectors import LinesSource
    from amadou_runtime import main


    class Words(Handler):
        words = SinkSpec(str)

        def key_event(self, record):
            return KeyedEvent("all", datetime(2025, 1, 1, tzinfo=timezone.utc), record)

        def on_event(self, subject, event):
            logging.getLogger("words").warning("%s", event.value)
            self.words.collect(subject, str(event.value))


    class FullSink(Sink):
        def open(self, batch, part):
            raise SinkError("the disk is full")

        def commit(self, batch, parts):
            pass


    class JavaLogs:
        """Logs a line of each level from Java."""

        @hookimpl
        def amadou_run_started(self):
            from pyspark.sql import SparkSession

            log4j = SparkSession.getActiveSession()._jvm.org.apache.logging.log4j
            log4j.core.config.Configurator.setLevel("own", log4j.Level.ALL)
            for level in LEVELS:
                getattr(log4j.LogManager.getLogger("own"), level)(level)


    def stages(sink):
        return {
            "first": Stage(Words(), {"words": LinesSource("IN")}, {}),
            "second": Stage(Words(), {"words": FromPort("first", "words")}, {"words": sink}),
        }


    working = Job(NAME, stages=stages(MemorySink()))
    staged = Job(NAME, stages=stages(FullSink()), plugins=[JavaLogs()])
    alone = Job(NAME, Words(), {"words": LinesSource("IN")}, {"words": FullSink()}, plugins=[JavaLogs()])
    if __name__ == "__main__":
        main(RUN)
    '''
NAME = 'the "shop" of ${O\'Neil}'


def write_job(path: Path, job: str) -> None:
    """Write a program that runs one of the jobs, and a word for it."""
    values: Mapping[str, object] = {"LEVELS": list(LEVELS), "NAME": repr(NAME), "IN": f"{path}/in/", "RUN": job}
    code = dedent(JOB)
    for name, value in values.items():
        code = code.replace(name, str(value))
    (path / "words.py").write_text(code)
    (path / "in").mkdir()
    (path / "in" / "0").write_text("spark\n")


def lines_of_failure(path: Path, *options: str) -> list[dict[str, Any]]:
    """Run the program, which fails. Return the lines that it logs."""
    command = [sys.executable, "words.py", "--once", "--master", "local[1]", "--log-format", "json", *options]
    ended = subprocess.run(
        [*command, "--conf", "spark.ui.enabled=false"], cwd=path, capture_output=True, text=True, check=False
    )
    assert ended.returncode == 1, ended.stderr
    lines = [json.loads(line) for line in ended.stderr.splitlines()]
    assert (lines[-1]["level"], lines[-1]["message"]) == ("ERROR", "SinkError: the disk is full")
    return lines


@pytest.mark.qualify  # starts a program; tests/runtime/test_json_logs.py has the lines without Spark
@pytest.mark.needs_spark(4)
def test_lines_of_workers_of_java_and_of_the_error_have_the_job_and_its_batch_and_stage(
    tmp_path: Path, spark: Any
) -> None:
    """Also after rescaling, which is a batch, too."""
    write_job(tmp_path, "staged")
    checkpoint = str(tmp_path / "checkpoint")
    batches = run(load_job(f"{tmp_path}/words.py:working"), checkpoint=checkpoint, trigger="available-now").batches
    rescale(spark, checkpoint, partitions=1)
    (tmp_path / "in" / "1").write_text("spark\n")
    # Without the setting, Spark logs only errors.
    lines = lines_of_failure(tmp_path, "--checkpoint", checkpoint, "--conf", "spark.log.level=INFO")

    of_workers = [(line["job"], line["batch"], line["stage"]) for line in lines if line["logger"] == "words"]
    assert of_workers == [(NAME, batches + 1, "first"), (NAME, batches + 1, "second")]

    of_spark = [line for line in lines if line["logger"].startswith("org.apache.spark.")]
    assert of_spark
    assert all({"time", "level", "message"} <= line.keys() for line in of_spark)
    assert {line["job"] for line in of_spark} == {NAME}

    of_java = [line for line in lines if line["logger"] == "own"]
    assert {line["message"]: line["level"] for line in of_java} == LEVELS
    assert {line["job"] for line in of_java} == {NAME}

    assert (lines[-1]["job"], lines[-1]["batch"], lines[-1]["stage"]) == (NAME, batches + 1, "second")


@pytest.mark.skipif(logs_json(), reason="tests an older version of Spark")
def test_java_lines_are_messages_of_json_lines_if_spark_cannot_log_json(tmp_path: Path) -> None:
    write_job(tmp_path, "alone")
    of_java = [line for line in lines_of_failure(tmp_path) if line["logger"] == "amadou.java"]
    assert [line["message"].rpartition("own: ")[2] for line in of_java] == [*LEVELS]
    assert of_java[0]["message"].endswith(" FATAL own: fatal")
    assert {line["job"] for line in of_java} == {NAME}
