"""Stateful stream handlers in plain Python: tested in milliseconds, run unchanged on Apache Spark.

Write a `Handler` and put it into a `Job`. Test the job with `amadou_runtime.TestRun`, and run it with `amadou run`.

- A handler and its events: `Handler`, `Subject`, `KeyedEvent`, `Filtered`, `Key`, `Timer`, `from_millis`, `truncate`.
- State: `ValueSpec`, `MapSpec`, `ListSpec`, with `ValueState`, `MapState`, `ListState`.
- Outputs: `SinkSpec`, `DeadLetter`, `LateEvent`.
- What a handler looks up: `Lookup`, `ReferenceSpec`, `ReferenceChange`.
- A job: `Job`, `Stage`, `FromPort`, `Param`, `Secret`, `DependsOn`, `DependencyChange`, `MemorySource`, `MemorySink`.
- Errors: `AmadouError`, and the module `errors`.

Those who write windows find more in `amadou.components`; those who write connectors or plugins, in `amadou.plugins`.
"""

import sys
import warnings
from importlib import import_module
from typing import Any

if sys.version_info < (3, 11):  # there, `datetime.fromisoformat` rejects most of ISO 8601, such as a final Z
    from backports.datetime_fromisoformat import MonkeyPatch

    MonkeyPatch.patch_fromisoformat()

from amadou import errors
from amadou._connectors.memory import MemorySink, MemorySource
from amadou._connectors.secret import Secret
from amadou._handler.event import Filtered, Key, KeyedEvent
from amadou._handler.handler import Handler
from amadou._handler.letters import DeadLetter, LateEvent
from amadou._handler.lookup import Lookup
from amadou._handler.port import SinkSpec
from amadou._handler.reference import ReferenceChange, ReferenceSpec
from amadou._handler.subject import Subject, Timer
from amadou._jobs.job import Job
from amadou._jobs.params import Param
from amadou._jobs.stage import FromPort, Stage
from amadou._state.list import ListSpec, ListState
from amadou._state.map import MapSpec, MapState
from amadou._state.value import ValueSpec, ValueState
from amadou.dependencies import DependencyChange, DependsOn
from amadou.errors import AmadouError
from amadou.event_time import from_millis, truncate

__all__ = [
    "AmadouError",
    "DeadLetter",
    "DependencyChange",
    "DependsOn",
    "Filtered",
    "FromPort",
    "Handler",
    "Job",
    "Key",
    "KeyedEvent",
    "LateEvent",
    "ListSpec",
    "ListState",
    "Lookup",
    "MapSpec",
    "MapState",
    "MemorySink",
    "MemorySource",
    "Param",
    "ReferenceChange",
    "ReferenceSpec",
    "Secret",
    "SinkSpec",
    "Stage",
    "Subject",
    "Timer",
    "ValueSpec",
    "ValueState",
    "errors",
    "from_millis",
    "truncate",
]


def __getattr__(name: str) -> Any:
    """Return a name that has moved to another module of amadou. The next version has it only there."""
    for path in ("amadou.components", "amadou.plugins", "amadou.event_time"):
        module = import_module(path)
        if name in getattr(module, "__all__", _TIMES):
            warnings.warn(f"amadou.{name} has moved: use {path}.{name}", DeprecationWarning, stacklevel=2)
            return getattr(module, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


_TIMES = ("from_micros", "to_micros", "to_millis")
