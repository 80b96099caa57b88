"""Tests and runs jobs. `TestRun` tests a job in milliseconds. `run` and `start` run a job on Apache Spark; `run` can
also use the embedded engine.
"""

from amadou_runtime._run import run, start
from amadou_runtime.command.main import main
from amadou_runtime.core.progress import Progress
from amadou_runtime.embedded.local_runner import LocalRunner
from amadou_runtime.spark import RunningJob
from amadou_runtime.testing.test_result import TestResult
from amadou_runtime.testing.test_run import TestRun
from amadou_runtime.testing.trace import TraceEntry

__all__ = ["LocalRunner", "Progress", "RunningJob", "TestResult", "TestRun", "TraceEntry", "main", "run", "start"]
