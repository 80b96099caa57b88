"""Tests and runs jobs: `TestRun` in milliseconds, `run` and `start` on Apache Spark."""

from amadou_runtime._summary import Counts, RunSummary
from amadou_runtime._testing import TestResult, TestRun
from amadou_runtime._trace import TraceEntry

__all__ = ["Counts", "RunSummary", "TestResult", "TestRun", "TraceEntry"]
