"""A plugin for amadou: a sink that writes to SQLite, and a metric."""

from amadou_sqlite.sink import SqliteSink

__all__ = ["SqliteSink"]
