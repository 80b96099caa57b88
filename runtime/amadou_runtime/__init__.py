"""Tests and runs jobs: `TestRun` in milliseconds, `run` and `start` on Apache Spark."""

from amadou_runtime._in_process import InProcess
from amadou_runtime._main import main
from amadou_runtime._progress import Progress
from amadou_runtime._run import run, start
from amadou_runtime._test_result import TestResult
from amadou_runtime._testing import TestRun
from amadou_runtime._trace import TraceEntry
from amadou_runtime.spark import RunningJob

__all__ = ["InProcess", "Progress", "RunningJob", "TestResult", "TestRun", "TraceEntry", "main", "run", "start"]
