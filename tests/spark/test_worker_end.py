"""Spark's Python processes end without a traceback when Spark closes their connections."""

import signal
import subprocess
import sys

import pytest

pytest.importorskip("pyspark")

WORKER = """
import socket
from pyspark import worker
import amadou_runtime.spark.groups_stage  # as a worker that has a task of ours

spark, own = socket.socketpair()
spark.close()
try:
    worker.main(own.makefile("rb"), own.makefile("wb"))
finally:
    print("it went on")
"""
FILTER = """
import socket
from amadou_runtime.spark.worker_end import end_like_a_filter

end_like_a_filter()
spark, own = socket.socketpair()
spark.close()
own.sendall(b"an answer")
"""


def ended(program: str) -> tuple[int, str]:
    """Status and output of a program."""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    return done.returncode, done.stdout + done.stderr


def test_a_worker_of_tasks_ends_when_its_connection_does() -> None:
    assert ended(WORKER) == (0, "")
    assert "it went on" in ended(WORKER.replace("import amadou_runtime", "# ", 1))[1]


def test_a_process_that_answers_for_a_source_ends_when_its_reader_has_ended() -> None:
    assert ended(FILTER) == (-signal.SIGPIPE, "")
    assert "BrokenPipeError" in ended(FILTER.replace("\nend_like_a_filter()", "", 1))[1]
