"""A run whose handler ends its Python worker."""

import os
from pathlib import Path
from typing import Any

import pytest
from tests.spark.programs import program

from amadou.errors import RunError
from amadou_runtime import start
from amadou_runtime.jobs.load_job import load_job
from amadou_runtime.spark.lost_tasks import died_error

JOB = """
import os
from datetime import datetime, timezone

from amadou import Handler, Job, KeyedEvent, SinkSpec
from amadou_plugins.connectors import JsonLinesSink, LinesSource
from amadou_runtime import main


class Ending(Handler):
    words = SinkSpec(str)

    def key_event(self, record):
        return KeyedEvent(record.decode(), datetime(2025, 1, 1, tzinfo=timezone.utc))

    def on_event(self, subject, event):
        if subject.key == "end":
            os._exit(7)
        self.words.collect(subject, subject.key)


source = LinesSource("in/", max_files_per_batch=1)
job = Job("ending", Ending(), {"in": source}, {"words": JsonLinesSink("out/")}, key_groups=4)
if __name__ == "__main__":
    main(job)
"""


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current directory, with the job and two records, a batch each."""
    (tmp_path / "job.py").write_text(JOB)
    (tmp_path / "in").mkdir()
    for number, word in enumerate(("a", "end")):
        path = tmp_path / "in" / f"{number}.txt"
        path.write_text(f"{word}\n")
        os.utime(path, (number, number))  # Spark takes the oldest first
    monkeypatch.chdir(tmp_path)
    return tmp_path


def outputs(place: Path) -> list[str]:
    return [path.read_text() for path in place.glob("out/[!.]*.jsonl")]


@pytest.mark.spark
def test_a_handler_that_ends_its_worker_ends_a_run_whose_session_retries_no_task(place: Path, spark: Any) -> None:
    with pytest.raises(RunError, match="batch 1 of 'ending' failed: a task's Python worker died once") as caught:
        start(load_job(str(place / "job.py")), spark, trigger="available-now").await_termination()
    assert "Possible causes: the system killed the process for lack of memory" in str(caught.value)
    assert str(caught.value).endswith("create the session with local[N,4], which retries each task up to 3 times")
    assert "org.apache.spark" not in str(caught.value)
    assert outputs(place) == ['"a"\n']


@pytest.mark.spark
@pytest.mark.qualify
def test_a_handler_that_ends_its_worker_each_time_ends_the_run(place: Path) -> None:
    with program(place / "job.py", place, "--once") as run:
        assert run.wait() == 1
    log = (place / "log").read_text()
    assert "batch 1 of 'ending' failed: a task's Python worker died 4 times in a row" in log
    assert "Possible causes: the system killed the process for lack of memory" in log
    assert "org.apache.spark" not in log
    assert outputs(place) == ['"a"\n']


def test_the_error_says_how_often_a_worker_died_and_names_the_setting_if_the_session_retries_no_task() -> None:
    reported = "Task 0 in stage 1.0 failed {} times, most recent failure: Python worker exited unexpectedly (crashed)"
    error = died_error("counts", 3, reported.format(1), "local[2]")
    assert "a task's Python worker died once, without a Python error" in str(error)
    assert str(error).endswith("create the session with local[N,4], which retries each task up to 3 times")
    error = died_error("counts", 3, reported.format(4), "local[2,4]")
    assert "a task's Python worker died 4 times in a row, without a Python error" in str(error)
    assert str(error).endswith("or the handler's code called os._exit")
    assert died_error("counts", 3, "Task 0 failed 1 times: no space left", "local[2]") is None
