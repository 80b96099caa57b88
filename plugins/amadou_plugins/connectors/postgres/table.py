"""Stages the parts of a batch in PostgreSQL, and moves the parts into the target table."""

import logging
import uuid
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, get_args

import attrs

from amadou.errors import SinkError
from amadou.plugins import SinkBatch
from amadou_plugins.connectors._json import JsonCodec
from amadou_plugins.connectors.postgres.columns import Column, columns_of, definition
from amadou_plugins.connectors.postgres.server import Server

_logger = logging.getLogger("amadou")
_LOCK = 0x616D61646F75
"""Key of the advisory lock for creating the schema: `IF NOT EXISTS` fails if two sessions create a schema at once."""
_TABLES = """
CREATE UNLOGGED TABLE IF NOT EXISTS amadou.staging (
    run text,
    port text,
    batch bigint,
    attempt text,
    position integer,
    data jsonb NOT NULL,
    staged_at timestamp with time zone NOT NULL DEFAULT now(),
    PRIMARY KEY (run, port, batch, attempt, position)
);
ALTER TABLE amadou.staging ALTER data SET STORAGE EXTERNAL;
CREATE TABLE IF NOT EXISTS amadou.batches (
    run text,
    port text,
    job text NOT NULL,
    batch bigint NOT NULL,
    committed_at timestamp with time zone NOT NULL DEFAULT now(),
    PRIMARY KEY (run, port)
);
COMMENT ON TABLE amadou.staging IS 'Parts of batches that are not committed yet: arrays of values';
COMMENT ON TABLE amadou.batches IS 'The last committed batch for each run, port and table';
"""
_STAGE = """
INSERT INTO amadou.staging (run, port, batch, attempt, position, data) VALUES (%s, %s, %s, %s, %s, %s)
"""
_NOTE = """
INSERT INTO amadou.batches AS recorded (run, port, job, batch) VALUES (%(run)s, %(port)s, %(job)s, %(batch)s)
ON CONFLICT (run, port) DO UPDATE SET job = excluded.job, batch = excluded.batch, committed_at = now()
WHERE recorded.batch < excluded.batch
"""
_MINE = "run = %(run)s AND port = %(port)s"
# Locks the rows so that no other session deletes a row before it is moved.
_STAGED = f"""
SELECT 1 FROM amadou.staging WHERE {_MINE} AND batch = %(batch)s AND attempt = ANY(%(attempts)s) FOR UPDATE
"""
# `place` is a value's position in its staged row. The other columns are renamed: one of them could be named `place`.
_VALUES = f"""
FROM unnest(%(attempts)s::text[]) WITH ORDINALITY AS part(attempt, number)
JOIN amadou.staging AS staged ON {_MINE} AND batch = %(batch)s AND staged.attempt = part.attempt
CROSS JOIN LATERAL ROWS FROM (jsonb_to_recordset(data) AS ({{read}})) WITH ORDINALITY AS value({{names}}, place)
"""
# Also deletes the rows of failed attempts. Rows of later batches stay: another driver may have replaced this driver.
_CLEAR = f"DELETE FROM amadou.staging WHERE {_MINE} AND batch <= %(batch)s"
_CLEAR_OLD = "DELETE FROM amadou.staging WHERE staged_at < now() - interval '7 days'"
_TRANSACTION = """
SET LOCAL TIME ZONE 'UTC';
-- a driver that has disappeared must not block its successor
SET LOCAL idle_in_transaction_session_timeout = '60s'
"""


def stage(connection: Any, batch: SinkBatch, table: str, rows: Sequence[str]) -> str:
    """Stage a part of a batch.

    :param table: name of the target table
    :param rows: JSON arrays of values
    :returns: id of this attempt. A part can be staged multiple times, but only one attempt is committed
    """
    attempt = uuid.uuid4().hex
    keys = (batch.run, _port(batch, table), batch.number, attempt)
    with connection.cursor() as cursor:
        cursor.executemany(_STAGE, [(*keys, position, row) for position, row in enumerate(rows)])
    return attempt


@attrs.frozen
class Table:
    """The target table of a sink.

    :param server: the database that contains the table
    :param name: name of the table, with or without its schema
    :param upsert_key: columns that identify the row that a value replaces; `None` if each value becomes a new row
    """

    server: Server
    name: str
    upsert_key: Sequence[str] | None

    def commit(
        self, connection: Any, batch: SinkBatch, fields: Sequence[str], attempts: Sequence[str], rows: int
    ) -> None:
        """Move a batch into the table, unless the batch is already committed.

        :param fields: fields of the batch's values
        :param attempts: ids of the successful attempts to stage the batch's parts, in the order of the parts
        :param rows: number of staged rows that these attempts inserted
        :raises SinkError: staged rows are missing, the table lacks a column, or the table rejects a value
        """
        values = self._values(batch, attempts)
        connection.execute(_TRANSACTION)
        if connection.execute(_NOTE, values).rowcount:
            staged = connection.execute(_STAGED, values).rowcount
            if staged != rows:
                raise SinkError(
                    f"{self.server.label}: amadou.staging has {staged} of the {rows} rows of batch {batch.number}: "
                    "PostgreSQL crashed, which empties this table, or the rows were deleted. The target table is "
                    "unchanged. Restart the job from its checkpoint so that the job reprocesses the batch"
                )
            self._move(connection, values, fields)
        else:
            _logger.info("%s: batch %s of port %s is already committed", self.server.label, batch.number, batch.port)
        connection.execute(_CLEAR, values)

    def check(self, connection: Any, port: str, fields: Mapping[str, Any]) -> None:
        """Check that values can be moved into the table, and create the schema `amadou` if it does not exist.

        :param fields: types of the port's fields, by name
        :raises SinkError: values cannot be moved; the message explains how to fix the problem
        """
        from psycopg import errors

        label, user = self.server.label, quoted(connection.info.user)
        unknown = [name for name in self.upsert_key or () if name not in fields]
        if unknown:
            raise SinkError(
                f"{label}: port {port!r} has no field {unknown[0]!r} for upsert_key: use one of {', '.join(fields)}"
            )
        columns = columns_of(connection, self._quoted)
        if not columns:
            raise SinkError(
                f"{label}: the database {connection.info.dbname} has no table {self.name}: correct the name, or "
                f"create the table:\n\n{self._definition(fields)}\n"
            )
        problems = self._problems(fields, columns)
        if problems:
            lines = "".join(f"\n  - {problem}" for problem in problems)
            raise SinkError(f"{label}: the table does not fit the fields of port {port!r}:{lines}")
        self._make_schema(connection, user)
        try:
            self._rehearse(connection, port, list(fields))
            connection.execute(_CLEAR_OLD)
        except errors.InvalidColumnReference as error:
            unique = f"run CREATE UNIQUE INDEX ON {self._quoted} ({_listed(self.upsert_key or ())})"
            raise SinkError(f"{label}: there is no unique index on exactly the upsert_key columns: {unique}") from error
        except errors.InsufficientPrivilege as error:
            rights = f"GRANT SELECT, INSERT, UPDATE ON {self._quoted} TO {user}"
            raise self.server.refused(error, f"ask the table's owner to run {rights}") from error

    def _make_schema(self, connection: Any, user: str) -> None:
        from psycopg import errors

        connection.execute("SELECT pg_advisory_xact_lock(%s)", (_LOCK,))
        create, is_there = _TABLES, connection.execute("SELECT to_regnamespace('amadou') IS NOT NULL").fetchone()[0]
        rights = f"GRANT ALL ON SCHEMA amadou TO {user}; GRANT ALL ON ALL TABLES IN SCHEMA amadou TO {user}"
        if not is_there:
            create = f"CREATE SCHEMA amadou; {_TABLES}"
            rights = f"GRANT CREATE ON DATABASE {quoted(connection.info.dbname)} TO {user}"
        try:
            made = connection.execute("SELECT to_regclass('amadou.batches') IS NOT NULL").fetchone()[0]
            if not made:
                connection.execute(create)
            connection.execute("SELECT FROM amadou.staging, amadou.batches LIMIT 0")
        except errors.InsufficientPrivilege as error:
            why = f"the sink's own tables need this permission: ask the owner of the schema or database to run {rights}"
            raise self.server.refused(error, why) from error

    def _rehearse(self, connection: Any, port: str, fields: Sequence[str]) -> None:
        """Run all statements of a commit with an empty batch, and roll them back."""
        batch = SinkBatch(f"check-{uuid.uuid4().hex}", "", port, 0, JsonCodec(Any))
        with connection.transaction(force_rollback=True):
            attempt = stage(connection, batch, self.name, ["[]"])
            self.commit(connection, batch, fields, [attempt], 1)

    def _problems(self, fields: Mapping[str, Any], columns: Mapping[str, Column]) -> list[str]:
        alter, problems = f"ALTER TABLE {self._quoted}", []
        for name, type_ in fields.items():
            column, fitting = columns.get(name), definition(type_).removesuffix(" NOT NULL")
            if name in (self.upsert_key or ()) and fitting == definition(type_):
                problems.append(f"{name} in upsert_key can be None, which matches no row: remove None from its type")
            if column is None:
                problems.append(f"the field {name} has no column: run {alter} ADD COLUMN {quoted(name)} {fitting}")
            elif column.is_generated:
                problems.append(f"the column {name} is always generated: remove the field")
            elif not column.takes(type_):
                problems.append(f"the column {name} ({column.type}) cannot store {_shown(type_)}: make it {fitting}")
        problems += [
            f"the column {name} is required but has no field: add one or run {alter} ALTER {quoted(name)} SET DEFAULT …"
            for name, column in columns.items()
            if column.is_required and name not in fields
        ]
        return problems

    def _definition(self, fields: Mapping[str, Any]) -> str:
        lines = [f"{quoted(name)} {definition(type_)}" for name, type_ in fields.items()]
        if self.upsert_key:
            lines.append(f"PRIMARY KEY ({_listed(self.upsert_key)})")
        return f"CREATE TABLE {self._quoted} (\n    " + ",\n    ".join(lines) + "\n);"

    def _move(self, connection: Any, values: Mapping[str, Any], fields: Sequence[str]) -> None:
        import psycopg

        there = columns_of(connection, self._quoted)
        missing = [name for name in fields if name not in there]
        if missing:
            raise SinkError(f"{self.server.label}: the table no longer has the column {missing[0]}: add it again")
        columns = [there[name] for name in fields]
        try:
            with connection.transaction():
                connection.execute(self._insert(columns), values)
        except (psycopg.DataError, psycopg.IntegrityError) as error:
            name = error.diag.column_name or self._at_fault(connection, values, columns)
            raise self.server.refused(error, f"check the column {name}" if name else "") from error

    def _at_fault(self, connection: Any, values: Mapping[str, Any], columns: Sequence[Column]) -> str | None:
        """Return the name of the column that rejects a value, if any: PostgreSQL does not always report the name."""
        import psycopg

        for column in columns:
            try:
                with connection.transaction():
                    connection.execute(f"SELECT count({column.expression.format('c0')}) {_read([column])}", values)
            except (psycopg.DataError, psycopg.IntegrityError):
                return column.name
        return None

    def _insert(self, columns: Sequence[Column]) -> str:
        made = {column.name: column.expression.format(f"c{number}") for number, column in enumerate(columns)}
        into = f"INSERT INTO {_escaped(self._quoted)} ({_escaped(_listed(made))})"
        values = ", ".join(made.values())
        if not self.upsert_key:
            return f"{into} SELECT {values} {_read(columns)} ORDER BY part.number, position, place"
        keys = ", ".join(made[name] for name in self.upsert_key)
        rest = [quoted(name) for name in made if name not in self.upsert_key]
        change = f"UPDATE SET {', '.join(f'{name} = excluded.{name}' for name in rest)}" if rest else "NOTHING"
        return f"""
            {into} SELECT DISTINCT ON ({keys}) {values} {_read(columns)}
            ORDER BY {keys}, part.number DESC, position DESC, place DESC
            ON CONFLICT ({_escaped(_listed(self.upsert_key))}) DO {_escaped(change)}
        """

    def _values(self, batch: SinkBatch, attempts: Sequence[str]) -> dict[str, Any]:
        port = _port(batch, self.name)
        return {"run": batch.run, "port": port, "job": batch.job, "batch": batch.number, "attempts": list(attempts)}

    @property
    def _quoted(self) -> str:
        return quoted(*self.name.split("."))


def quoted(*names: str) -> str:
    """Return a name quoted for SQL."""
    from psycopg.sql import Identifier

    return Identifier(*names).as_string()


def _listed(names: Iterable[str]) -> str:
    return ", ".join(map(quoted, names))


def _escaped(sql: str) -> str:
    """Return SQL that has no parameters, escaped for use inside SQL with parameters."""
    return sql.replace("%", "%%")


def _read(columns: Sequence[Column]) -> str:
    read = ", ".join(f"{quoted(column.name)} {column.read_as}" for column in columns)
    return _VALUES.format(read=_escaped(read), names=", ".join(f"c{number}" for number in range(len(columns))))


def _port(batch: SinkBatch, table: str) -> str:
    """Return the port's name together with the target table: a port can have multiple sinks in one database."""
    return f"{batch.port} → {table}"


def _shown(type_: Any) -> str:
    return type_.__name__ if isinstance(type_, type) and not get_args(type_) else str(type_)
