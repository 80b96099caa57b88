"""Stateful stream handlers in plain Python: tested in milliseconds, run unchanged on Apache Spark.

Write a `Handler` and put it into a `Job`. Test the job with `amadou_runtime.TestRun`, and run it with `amadou run`.
"""

import sys

if sys.version_info < (3, 11):  # there, `datetime.fromisoformat` rejects most of ISO 8601, such as a final Z
    from backports.datetime_fromisoformat import MonkeyPatch

    MonkeyPatch.patch_fromisoformat()

from amadou import errors
from amadou._components.component import Component, ComponentCallbacks, Invoke
from amadou._components.component_state import ComponentState, KeyGroupState
from amadou._connectors.codec import Codec, codec_for
from amadou._connectors.connector import BufferingWriter, PartitionOffset, Sink, SinkBatch, SinkWriter, Source
from amadou._connectors.memory import MemorySink, MemorySource
from amadou._connectors.secret import Secret
from amadou._handler.event import Filtered, Key, KeyedEvent, in_key_order
from amadou._handler.event_columns import EventColumns
from amadou._handler.handler import Handler, check_ran
from amadou._handler.letters import DeadLetter, LateEvent
from amadou._handler.lookup import Lookup
from amadou._handler.port import SinkSpec
from amadou._handler.reference import ReferenceChange, ReferenceSpec, TableSource
from amadou._handler.subject import Subject, Timer
from amadou._handler.vectorized import VectorizedHandler
from amadou._jobs.job import Job
from amadou._jobs.params import Param
from amadou._jobs.stage import FromPort, Stage
from amadou._plugins.letter_report import DeadLetterReport, LateEventReport
from amadou._plugins.markers import hookimpl, hookspec
from amadou._plugins.metric import Metric
from amadou._plugins.report import BatchReport, Counts, FailedBatch, PartitionReport, Run, RunSummary
from amadou._plugins.run_control import RunControl
from amadou._state.copying import copied, copied_if_possible
from amadou._state.list import ListSpec, ListState
from amadou._state.map import MapSpec, MapState
from amadou._state.state_reader import StateReader
from amadou._state.value import ValueSpec, ValueState
from amadou.dependencies import DependencyChange, DependsOn
from amadou.errors import AmadouError
from amadou.event_time import from_micros, from_millis, to_micros, to_millis, truncate

__all__ = [
    "AmadouError",
    "BatchReport",
    "BufferingWriter",
    "Codec",
    "Component",
    "ComponentCallbacks",
    "ComponentState",
    "Counts",
    "DeadLetter",
    "DeadLetterReport",
    "DependencyChange",
    "DependsOn",
    "EventColumns",
    "FailedBatch",
    "Filtered",
    "FromPort",
    "Handler",
    "Invoke",
    "Job",
    "Key",
    "KeyGroupState",
    "KeyedEvent",
    "LateEvent",
    "LateEventReport",
    "ListSpec",
    "ListState",
    "Lookup",
    "MapSpec",
    "MapState",
    "MemorySink",
    "MemorySource",
    "Metric",
    "Param",
    "PartitionOffset",
    "PartitionReport",
    "ReferenceChange",
    "ReferenceSpec",
    "Run",
    "RunControl",
    "RunSummary",
    "Secret",
    "Sink",
    "SinkBatch",
    "SinkSpec",
    "SinkWriter",
    "Source",
    "Stage",
    "StateReader",
    "Subject",
    "TableSource",
    "Timer",
    "ValueSpec",
    "ValueState",
    "VectorizedHandler",
    "check_ran",
    "codec_for",
    "copied",
    "copied_if_possible",
    "errors",
    "from_micros",
    "from_millis",
    "hookimpl",
    "hookspec",
    "in_key_order",
    "to_micros",
    "to_millis",
    "truncate",
]
