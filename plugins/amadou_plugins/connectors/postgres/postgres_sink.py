import re
from collections.abc import Sequence
from datetime import timedelta
from typing import Any
from urllib.parse import parse_qs, urlsplit

import attrs

from amadou import Codec, DeadLetter, LateEvent, Param, Secret, Sink, SinkBatch, SinkWriter
from amadou.errors import SinkError
from amadou_plugins.connectors._json import JsonCodec
from amadou_plugins.connectors._settings import check_secret, check_time
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
    """Writes a row for each value to a PostgreSQL table. Exactly-once.

    The fields of an attrs class, dataclass, named tuple or `TypedDict` go into the columns of the same names; other
    columns keep their defaults. Timestamps in columns without a time zone are UTC. Nested fields go into columns of
    type `jsonb`, lists also into arrays.

    Workers stage the parts of a batch in the table `amadou.staging`. The commit is one transaction: it moves the parts
    into the table and records the batch in `amadou.batches`. A recorded batch is not written again. The first run
    creates both tables. `amadou.staging` is unlogged: if PostgreSQL itself crashes between staging and commit, the run
    ends; restarted from its checkpoint, it replays the batch.

    A lost connection is retried with growing pauses while the run waits. A value that the table refuses ends the run.

    :param url: ``postgresql://host:port/database``, without a password
    :param table: the table's name, ``table`` or ``schema.table``, in upper and lower case as PostgreSQL has it
    :param upsert_key: names of columns, or a text with commas between them: a value replaces the row with the same
        values in these columns; of several in a batch, the last one counts. There must be a unique index on exactly
        these columns. Without it each value is a row of its own
    :param username: user who logs in
    :param password: the user's password
    :param give_up_after: time for which a lost connection is retried before it ends the run
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
            raise SinkError(f"table must be a name, or a schema and a name with a dot between them, not {self.table!r}")
        check_secret(SinkError, "password", self.password)
        check_time(SinkError, "give_up_after", self.give_up_after)

    def codec(self, type_: Any) -> Codec[Any]:
        return _LetterCodec(type_) if type_ in (DeadLetter, LateEvent) else JsonCodec(type_)

    def check(self, port: str, type_: Any) -> None:
        fields = fields_for(type_)
        if not fields:
            raise SinkError(
                f"{self._told}: the type of port {port!r} has no fields to go into columns: make it an attrs class, a "
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
            raise SinkError(f"{self._told}: the codec of port {batch.port!r} hides the fields: leave it out")
        return list(fields_for(batch.codec.type) or ())

    @property
    def _server(self) -> Server:
        return Server(self._told, self.url, self.username, self.password, self.give_up_after)  # type: ignore[arg-type]

    @property
    def _table(self) -> Table:
        return Table(self._server, self.table, self.upsert_key)  # type: ignore[arg-type]

    @property
    def _told(self) -> str:
        return f"PostgresSink({self.url!r}, {self.table!r})"


class _PostgresWriter(SinkWriter):
    """Keeps its part until the end, so a lost connection can be retried with all of it."""

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
    """Replaces the character NUL, which PostgreSQL cannot store: writing a dead letter must never fail."""

    def encode(self, value: Any) -> bytes:
        return _NUL.sub(rb"\1\\ufffd", super().encode(value))


def _check_url(url: Any) -> None:
    try:
        parts = urlsplit(url)
    except (ValueError, AttributeError):  # a Secret is not a text
        raise SinkError(
            "PostgresSink needs a url such as postgresql://host:5432/database, which is no secret: the password is "
            "given by password="
        ) from None
    if "password" in parse_qs(parts.query) or ":" in parts.netloc.rpartition("@")[0]:
        raise SinkError(
            "PostgresSink takes no password in its url, which is shown: give password=, a Secret or a Param"
        )
    if parts.scheme not in ("postgresql", "postgres"):
        raise SinkError("PostgresSink needs a url such as postgresql://host:5432/database, or one with postgres://")
