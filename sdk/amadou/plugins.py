"""What sources, sinks, codecs and other plugins need.

- Sources: `Source`, `TableSource`, `PartitionOffset`; for sources that Spark reads, also `amadou.data_source`.
- Sinks: `Sink`, `SinkWriter`, `BufferingWriter`, `SinkBatch`; for files, also `amadou.remote_files`.
- Codecs: `Codec`, `codec_for`.
- Hooks: `hookimpl`, `hookspec`, `Metric`; `amadou.hookspecs` describes the hooks.
- What a hook learns of a run: `Run`, `RunControl`, `RunSummary`, `StateReader`, `BatchReport`, `FailedBatch`, `Counts`,
  `PartitionReport`, `DeadLetterReport`, `LateEventReport`.
"""

from amadou._connectors.codec import Codec, codec_for
from amadou._connectors.connector import BufferingWriter, PartitionOffset, Sink, SinkBatch, SinkWriter, Source
from amadou._handler.reference import TableSource
from amadou._plugins.letter_report import DeadLetterReport, LateEventReport
from amadou._plugins.markers import hookimpl, hookspec
from amadou._plugins.metric import Metric
from amadou._plugins.report import BatchReport, Counts, FailedBatch, PartitionReport, Run, RunSummary
from amadou._plugins.run_control import RunControl
from amadou._state.state_reader import StateReader

__all__ = [
    "BatchReport",
    "BufferingWriter",
    "Codec",
    "Counts",
    "DeadLetterReport",
    "FailedBatch",
    "LateEventReport",
    "Metric",
    "PartitionOffset",
    "PartitionReport",
    "Run",
    "RunControl",
    "RunSummary",
    "Sink",
    "SinkBatch",
    "SinkWriter",
    "Source",
    "StateReader",
    "TableSource",
    "codec_for",
    "hookimpl",
    "hookspec",
]
