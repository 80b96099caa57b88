"""A run whose handler ends its Python worker."""

import os
from pathlib import Path

import pytest
from tests.spark.programs import program

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


job = Job("ending", Ending(), {"in": LinesSource("in/", max_files_per_batch=1)}, {"words": JsonLinesSink("out/")})
if __name__ == "__main__":
    main(job)
"""


@pytest.mark.spark
def test_a_handler_that_ends_its_worker_each_time_ends_the_run(tmp_path: Path) -> None:
    (tmp_path / "job.py").write_text(JOB)
    (tmp_path / "in").mkdir()
    for number, word in enumerate(("a", "end")):
        path = tmp_path / "in" / f"{number}.txt"
        path.write_text(f"{word}\n")
        os.utime(path, (number, number))  # Spark takes the oldest first
    with program(tmp_path / "job.py", tmp_path, "--once") as run:
        assert run.wait() == 1
    log = (tmp_path / "log").read_text()
    assert "batch 1 of 'ending' failed: a task's Python worker died 4 times in a row" in log
    assert "Possible causes: the system killed the process for lack of memory" in log
    assert "org.apache.spark" not in log
    assert [path.read_text() for path in (tmp_path / "out").glob("[!.]*.jsonl")] == ['"a"\n']


def test_the_error_names_the_setting_if_the_session_retries_no_task() -> None:
    reported = "Task 0 in stage 1.0 failed 1 times, most recent failure: Python worker exited unexpectedly (crashed)"
    error = died_error("counts", 3, reported, "local[2]")
    assert "a task's Python worker died once, without a Python error" in str(error)
    assert str(error).endswith("create the session with local[N,4], which retries each task up to 3 times")
    assert died_error("counts", 3, "Task 0 failed 1 times: no space left", "local[2]") is None
