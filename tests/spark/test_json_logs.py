"""With `--log-format json`, the workers and Spark also log JSON lines."""

import json
import os
import subprocess
import sys
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest

from amadou.spark_versions import logs_json

pytestmark = pytest.mark.spark

JOB = """
    import logging
    from datetime import datetime, timezone

    from amadou import FromPort, Handler, Job, KeyedEvent, Sink, SinkSpec, Stage
    from amadou.errors import SinkError
    from amadou_plugins.connectors import ConsoleSink, LinesSource
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


    job = Job(
        "words",
        stages={
            "first": Stage(Words(), {"words": LinesSource("in")}, {}),
            "second": Stage(Words(), {"words": FromPort("first", "words")}, {"words": SINK()}),
        },
    )
    alone = Job("words", Words(), {"words": LinesSource("in")}, {"words": SINK()})
    if __name__ == "__main__":
        main(RUN)
    """


NAME = 'the "shop" of ${O\'Neil}'
LOGGING = """
    from amadou_runtime.spark.session import session

    conf = {"spark.ui.enabled": "false", "spark.executorEnv.AMADOU_LOG_FORMAT": "json"}
    spark = session(NAME, master="local[1]", conf=conf)
    spark.sparkContext.setLogLevel("TRACE")
    logger = spark._jvm.org.apache.logging.log4j.LogManager.getLogger("own")
    for level in ("fatal", "error", "warn", "info", "debug", "trace"):
        getattr(logger, level)(level)
    """


def lines_of(path: Path, sink: str, *options: str, job: str = "job", status: int = 0) -> list[dict[str, Any]]:
    """Run a job. Return the lines that it logs."""
    (path / "words.py").write_text(dedent(JOB).replace("SINK", sink).replace("RUN", job))
    (path / "in").mkdir(exist_ok=True)
    (path / "in" / f"words-{len(os.listdir(path / 'in'))}").write_text("spark\n")
    command = [sys.executable, "words.py", "--once", "--master", "local[1]", "--log-format", "json", *options]
    ended = subprocess.run(
        [*command, "--conf", "spark.ui.enabled=false"], cwd=path, capture_output=True, text=True, check=False
    )
    assert ended.returncode == status, ended.stderr
    return [json.loads(line) for line in ended.stderr.splitlines()]


def test_workers_and_spark_log_json_lines(tmp_path: Path) -> None:
    # Without this setting, Spark logs only errors.
    lines = lines_of(tmp_path, "ConsoleSink", "--conf", "spark.log.level=INFO")
    own = [(line["job"], line["batch"], line["stage"]) for line in lines if line["logger"] == "words"]
    assert own == [("words", 0, "first"), ("words", 0, "second")]
    of_spark = [line for line in lines if line["logger"].startswith("org.apache.spark.")]
    assert of_spark
    assert all({"time", "level", "message"} <= line.keys() for line in of_spark)
    assert {line["job"] for line in of_spark} == {"words"}


def test_the_numbers_of_batches_continue_after_rescaling(tmp_path: Path) -> None:
    summary = lines_of(tmp_path, "ConsoleSink", "--checkpoint", "checkpoint", job="alone")[-1]
    rescaled = ["amadou", "rescale", "checkpoint", "--partitions", "2"]
    subprocess.run([*rescaled, "--master", "local[1]"], cwd=tmp_path, check=True)
    lines = lines_of(tmp_path, "ConsoleSink", "--checkpoint", "checkpoint", job="alone")
    (batch,) = (line["batch"] for line in lines if line["logger"] == "words")
    assert batch == summary["batches"] + 1  # rescaling is a batch, too


@pytest.mark.parametrize(("job", "stage"), [("job", "second"), ("alone", None)])
def test_the_error_that_ends_a_batch_has_the_batch_and_the_stage(tmp_path: Path, job: str, stage: str | None) -> None:
    error = lines_of(tmp_path, "FullSink", job=job, status=1)[-1]
    assert (error["level"], error["message"]) == ("ERROR", "SinkError: the disk is full")
    assert (error["job"], error["batch"], error.get("stage")) == ("words", 0, stage)


def test_lines_of_spark_have_the_job_and_the_names_of_levels_in_python() -> None:
    ended = subprocess.run(
        [sys.executable, "-c", dedent(LOGGING).replace("NAME", repr(NAME))], capture_output=True, text=True, check=False
    )
    assert ended.returncode == 0, ended.stderr
    if not logs_json():
        assert " FATAL own: fatal\n" in ended.stderr
        return
    own = [line for line in map(json.loads, ended.stderr.splitlines()) if line["logger"] == "own"]
    assert {line["job"] for line in own} == {NAME}
    levels = {line["message"]: line["level"] for line in own}
    assert levels == {
        "fatal": "CRITICAL",
        "error": "ERROR",
        "warn": "WARNING",
        "info": "INFO",
        "debug": "DEBUG",
        "trace": "DEBUG",
    }
