import re
from collections.abc import Sequence
from datetime import timedelta
from typing import Any
from urllib.parse import parse_qs, urlsplit

import attrs

from amadou import DeadLetter, LateEvent, Param, Secret
from amadou.errors import SinkError
from amadou.plugins import Codec, Sink, SinkBatch, SinkWriter
from amadou_plugins.connectors._json import JsonCodec
from amadou_plugins.connectors._settings import check_secret, check_time, has_password
from amadou_plugins.connectors.postgres.columns import fields_for
from amadou_plugins.connectors.postgres.server import Server
from amadou_plugins.connectors.postgres.table import Table, stage

_VALUES_PER_ROW = 1000
_BYTES_PER_ROW = 1 << 20
_NUL = re.compile(rb"(?<!\\)((?:\\\\)*)\\u0000")


def _names(value: str | Sequence[str] | Param | None) -> Any:
    if value is None or isinstance(value, Param):
        return value
    return tuple(value.split(",") if isinstance(value, str) else value)


@attrs.frozen
class PostgresSink(Sink):
    """Writes each value as a row to a PostgreSQL table. Exactly-once.

    The fields of an attrs class, dataclass, named tuple or `TypedDict` are written to the columns of the same name;
    other columns get their defaults. Timestamps in columns without a time zone are in UTC. For nested fields, use
    `jsonb` columns; for lists, array columns also work.

    Workers stage the parts of a batch in the table `amadou.staging`. The commit is a single transaction: it moves the
    parts into the target table and records the batch in `amadou.batches`. A recorded batch is not written again. The
    first run creates the schema `amadou` with these two tables, but not the target table. `amadou.staging` is unlogged:
    if PostgreSQL itself crashes between staging and commit, the run fails. The next run with the same checkpoint
    reprocesses the batch.

    If the connection is lost, the run waits and retries with growing pauses, for up to `give_up_after`. A value that
    the table rejects ends the run.

    :param url: ``postgresql://host:port/database``, without a password
    :param table: name of the table, as ``table`` or ``schema.table``. The name is case-sensitive. If a table was
        created without quotes, its name is in lower case
    :param upsert_key: columns that identify a row, as a list or a comma-separated string. A value replaces the row with
        the same key; within a batch, the last value with a key wins. The table needs a unique index on exactly these
        columns. By default, each value becomes a new row
    :param username: user to log in as
    :param password: the user's password, a `Secret` or ``Param(…, secret=True)``
    :param give_up_after: maximum time to retry after the connection is lost; after this time, the run fails
    :raises SinkError: a setting is invalid
    """

    guarantee = "exactly-once"

    url: str | Param
    table: str | Param
    upsert_key: str | Sequence[str] | Param | None = attrs.field(default=None, kw_only=True, converter=_names)
    username: str | Param | None = attrs.field(default=None, kw_only=True)
    password: Secret | Param | None = attrs.field(default=None, kw_only=True)
    give_up_after: timedelta | Param = attrs.field(default=timedelta(minutes=5), kw_only=True)

    def __attrs_post_init__(self) -> None:
        if not isinstance(self.url, Param):
            _check_url(self.url)
        if isinstance(self.table, str) and not re.fullmatch(r"[^.]+(\.[^.]+)?", self.table):
            raise SinkError(f"table must be a name such as sums or public.sums, not {self.table!r}")
        check_secret(SinkError, "password", self.password)
        check_time(SinkError, "give_up_after", self.give_up_after)

    def codec(self, type_: Any) -> Codec[Any]:
        return _LetterCodec(type_) if type_ in (DeadLetter, LateEvent) else JsonCodec(type_)

    def check(self, port: str, type_: Any) -> None:
        fields = fields_for(type_)
        if not fields:
            raise SinkError(
                f"{self._label}: the type of port {port!r} has no fields for the columns: make it an attrs class, a "
                "dataclass, a named tuple or a TypedDict"
            )
        with self._server.connected() as connection:
            self._table.check(connection, port, fields)

    def open(self, batch: SinkBatch, part: str) -> SinkWriter:
        self._fields(batch)
        return _PostgresWriter(batch, self._server, str(self.table))

    def commit(self, batch: SinkBatch, parts: Sequence[Any]) -> None:
        if not parts:
            return
        attempts, rows = [attempt for attempt, _ in parts], sum(rows for _, rows in parts)
        fields, table = self._fields(batch), self._table
        self._server.patiently(lambda connection: table.commit(connection, batch, fields, attempts, rows))

    def _fields(self, batch: SinkBatch) -> list[str]:
        if not isinstance(batch.codec, JsonCodec):
            raise SinkError(f"{self._label}: port {batch.port!r} has codec=, so values have no columns: remove it")
        return list(fields_for(batch.codec.type) or ())

    @property
    def _server(self) -> Server:
        return Server(self._label, self.url, self.username, self.password, self.give_up_after)  # type: ignore[arg-type]

    @property
    def _table(self) -> Table:
        return Table(self._server, self.table, self.upsert_key)  # type: ignore[arg-type]

    @property
    def _label(self) -> str:
        return f"PostgresSink({self.url!r}, {self.table!r})"


class _PostgresWriter(SinkWriter):
    """Buffers a part of a batch in memory so that the entire part can be sent again if the connection is lost."""

    def __init__(self, batch: SinkBatch, server: Server, table: str) -> None:
        self._batch = batch
        self._server = server
        self._table = table
        self._rows: list[str] = []
        self._begin()

    def write(self, encoded_values: Sequence[Any]) -> None:
        for line in encoded_values:
            self._values.append(line)
            self._bytes += len(line)
            if len(self._values) == _VALUES_PER_ROW or self._bytes > _BYTES_PER_ROW:
                self._end_row()

    def finish(self) -> Any:
        self._end_row()
        if not self._rows:
            return None
        return self._server.patiently(
            lambda connection: [stage(connection, self._batch, self._table, self._rows), len(self._rows)]
        )

    def _begin(self) -> None:
        self._values: list[bytes] = []
        self._bytes = 0

    def _end_row(self) -> None:
        if self._values:
            self._rows.append((b"[%b]" % b",".join(self._values)).decode())
            self._begin()


class _LetterCodec(JsonCodec):
    """Replaces NUL characters: PostgreSQL cannot store them, and writing a dead letter must never fail."""

    def encode(self, value: Any) -> bytes:
        return _NUL.sub(rb"\1\\ufffd", super().encode(value))


def _check_url(url: Any) -> None:
    try:
        parts = urlsplit(url)
    except (ValueError, AttributeError):  # a Secret is not a string
        raise SinkError(
            "PostgresSink needs a url such as postgresql://host:5432/database: correct the url. If it is a Secret, "
            "make it a string and pass the password as password="
        ) from None
    if has_password(url) or "password" in parse_qs(parts.query) or ":" in parts.netloc.rpartition("@")[0]:
        raise SinkError(
            "PostgresSink does not accept a password in its url, because logs show the url: pass the "
            "password as password=, as a Secret or a Param with secret=True"
        )
    if parts.scheme not in ("postgresql", "postgres"):
        raise SinkError("PostgresSink needs a url such as postgresql://host:5432/database: correct the scheme")
