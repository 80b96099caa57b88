"""A PostgreSQL table as the source of a reference."""

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any, Final

import attrs

from amadou import KeyedEvent
from amadou.errors import SourceError
from amadou.plugins import TableSource
from amadou_plugins.connectors._settings import check_time
from amadou_plugins.connectors.postgres.row_settings import RowSettings

_ROWS: Final = 10_000
"""Number of rows that are in memory at a time."""
_OPTIONS: Final = "-c statement_timeout=60s -c default_transaction_read_only=on"


def _time(value: Any) -> Any:
    return timedelta(seconds=value) if isinstance(value, int | float) and not isinstance(value, bool) else value


@attrs.frozen
class PostgresTable(RowSettings, TableSource):
    """The rows of a PostgreSQL table, as the entries of a reference::

        class Orders(Handler):
            products = ReferenceSpec(str, Product, source="products")

        sources={"products": PostgresTable("postgresql://db:5432/shop", "products", key="id", row=Product, refresh=60)}

    The run reads the whole table, in one statement. If a later reading fails, the run logs a warning, keeps the entries
    and reads the table again before the next batch.

    :param url: ``postgresql://host:port/database``, without a password
    :param table: name of the table or view, as ``table`` or ``schema.table``
    :param key: the column with the key of the entry; several columns if the keys are tuples
    :param columns: the columns to read; by default all columns
    :param row: class or function that makes the value of the entry from the columns, as keyword arguments; by default,
        a `dict`
    :param refresh: time between two readings of the table: a `timedelta` or a number of seconds; `None` to read it only
        when a run starts
    :param username: user to log in as
    :param password: the user's password, a `Secret` or ``Param(…, secret=True)``
    :raises SourceError: a setting is invalid
    """

    refresh: Any = attrs.field(default=None, converter=_time, kw_only=True)
    _error = SourceError

    def __attrs_post_init__(self) -> None:
        super().__attrs_post_init__()
        if self.refresh is not None:
            check_time(SourceError, "PostgresTable: refresh", self.refresh)

    def key_event(self, record: dict[str, Any]) -> KeyedEvent[Any]:
        """Return a row as an entry."""
        parts = tuple(record[name] for name in self.key)
        given = record if self.columns is None else {name: record[name] for name in self.columns}
        unknown: Any = None  # a reading of the table has a single time
        return KeyedEvent(parts[0] if len(parts) == 1 else parts, unknown, self.row(**given))

    def check(self) -> None:
        with self._connection() as connection:
            connection.execute(self._query(" LIMIT 0"))

    def records(self) -> Iterator[dict[str, Any]]:
        with self._connection() as connection, connection.cursor("amadou") as cursor:
            cursor.itersize = _ROWS
            yield from cursor.execute(self._query(""))

    def _query(self, end: str) -> Any:
        from psycopg.sql import SQL, Identifier

        wanted = None if self.columns is None else dict.fromkeys((*self.key, *self.columns))
        names = SQL("*") if wanted is None else SQL(", ").join(map(Identifier, wanted))
        return SQL("SELECT {} FROM {}{}").format(names, self._identifier(), SQL(end))

    @contextmanager
    def _connection(self) -> Iterator[Any]:
        try:
            import psycopg
        except ImportError as error:
            raise SourceError("PostgresTable needs psycopg: run pip install 'amadou[postgres]'") from error
        try:
            with self._connected(options=_OPTIONS) as connection:
                yield connection
        except psycopg.Error as error:
            text = " ".join(str(error).split())
            raise SourceError(
                f"PostgresTable {self.table}: {text}. Check the url, username= and password=, and that the user may "
                "read the table"
            ) from error
