"""Sources and sinks: where records come from and where the values of a port go.

`LinesSource` and `JsonLinesSink` read and write files, `ConsoleSink` prints, `MemorySource` and `MemorySink` serve
tests and notebooks.
"""

from amadou import MemorySink, MemorySource
from amadou_plugins.connectors._console import ConsoleSink
from amadou_plugins.connectors._json_lines import JsonLinesSink
from amadou_plugins.connectors._lines import LinesSource

__all__ = ["ConsoleSink", "JsonLinesSink", "LinesSource", "MemorySink", "MemorySource"]
