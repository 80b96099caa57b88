import sqlite3
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import attrs

from amadou import Param
from amadou.errors import SinkError
from amadou.plugins import BufferingWriter, Codec, Sink, SinkBatch, SinkWriter
from amadou_plugins.connectors import JsonCodec


@attrs.frozen
class SqliteSink(Sink):
    """Writes values to a SQLite database, exactly once: one table per port, and one row with JSON per value.

    :param path: path of the database file; a missing file is created
    """

    guarantee = "exactly-once"

    path: str | Path | Param

    def codec(self, type_: Any) -> Codec[Any]:
        return JsonCodec(type_)

    def check(self, port: str, type_: Any) -> None:
        with closing(self._connection()) as database, database:
            self._prepare(database, port)

    def open(self, batch: SinkBatch, part: str) -> SinkWriter:
        return BufferingWriter()  # collects the values for `commit`, which runs on the driver

    def commit(self, batch: SinkBatch, parts: Sequence[Any]) -> None:
        rows = [(line.decode(),) for part in parts for line in part]
        with closing(self._connection()) as database, database:
            self._prepare(database, batch.port)
            identity = (batch.run, batch.port, batch.number)
            if database.execute("INSERT OR IGNORE INTO amadou_batches VALUES (?, ?, ?)", identity).rowcount:
                database.executemany(f"INSERT INTO {_quoted(batch.port)} VALUES (?)", rows)

    def _prepare(self, database: sqlite3.Connection, port: str) -> None:
        database.execute(f"CREATE TABLE IF NOT EXISTS {_quoted(port)} (value TEXT NOT NULL)")
        database.execute(
            "CREATE TABLE IF NOT EXISTS amadou_batches"
            " (run TEXT, port TEXT, number INTEGER, PRIMARY KEY (run, port, number))"
        )

    def _connection(self) -> sqlite3.Connection:
        try:
            return sqlite3.connect(str(self.path))
        except sqlite3.Error as error:
            raise SinkError(
                f"cannot open the database {str(self.path)!r}: pass SqliteSink a writable path ({error})"
            ) from error


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'
