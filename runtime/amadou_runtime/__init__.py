"""Tests and runs jobs. `TestRun` tests a job in milliseconds. `run` and `start` run a job on Apache Spark; `run` can
also use the embedded engine.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from amadou_runtime._run import run, start
    from amadou_runtime.command.main import main
    from amadou_runtime.embedded.local_runner import LocalRunner
    from amadou_runtime.runs.progress import Progress
    from amadou_runtime.spark import RunningJob
    from amadou_runtime.testing.test_result import TestResult
    from amadou_runtime.testing.test_run import TestRun
    from amadou_runtime.testing.trace import TraceEntry
else:
    # Imported when they are first used, since the command line needs only few of them.
    _MODULES = {
        "LocalRunner": "embedded.local_runner",
        "Progress": "runs.progress",
        "RunningJob": "spark",
        "TestResult": "testing.test_result",
        "TestRun": "testing.test_run",
        "TraceEntry": "testing.trace",
        "main": "command.main",
        "run": "_run",
        "start": "_run",
    }

    def __getattr__(name: str) -> Any:
        if name not in _MODULES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        return getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)

    def __dir__() -> list[str]:
        return __all__


__all__ = ["LocalRunner", "Progress", "RunningJob", "TestResult", "TestRun", "TraceEntry", "main", "run", "start"]
