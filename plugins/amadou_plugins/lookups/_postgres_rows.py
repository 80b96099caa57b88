"""Looks up rows of a PostgreSQL table."""

from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

import attrs

from amadou.errors import AmadouError, SpecError
from amadou_plugins.connectors.postgres.row_settings import RowSettings

_MOST_IDLE: Final = 32
_MARK: Final = "amadou_key_"
"""Prefix of the names under which the query returns the columns of the key."""
_idle: dict["PostgresRows", deque[Any]] = {}
"""Connections of this process that no call uses."""


@attrs.frozen
class PostgresRows(RowSettings):
    """Fetches rows of a PostgreSQL table by their key, for a `Lookup`::

        customers = Lookup(
            PostgresRows("postgresql://db:5432/shop", "customers", key="id", row=Customer),
            key=lambda event: event.value["customer"],
        )

    The calls of a worker share connections. A table or a column that does not exist is an error of the lookup.

    :param url: ``postgresql://host:port/database``, without a password
    :param table: name of the table, as ``table`` or ``schema.table``
    :param key: the column with the key; several columns if the keys are tuples. They should be the primary key, or have
        a unique index
    :param columns: the columns to read; by default all columns
    :param row: class or function that makes the answer from the columns, as keyword arguments; by default, a `dict`
    :param username: user to log in as
    :param password: the user's password, a `Secret` or ``Param(…, secret=True)``
    :raises SpecError: a setting is invalid
    """

    _error = SpecError

    def __call__(self, keys: list[Any]) -> dict[Any, Any]:
        """Return the rows with some keys, by key: an exception for a key that does not fit the columns, and for a row
        that cannot be read.

        :raises AmadouError: psycopg is not installed
        """
        with self._connection() as connection:
            return self._found(connection, keys)

    def _found(self, connection: Any, keys: list[Any]) -> dict[Any, Any]:
        from psycopg.errors import DataError, UndefinedFunction

        is_single = len(self.key) == 1
        try:
            parts = [part for key in keys for part in self._parts(key)]
            rows = connection.execute(self._query(len(keys)), [parts] if is_single else parts).fetchall()
        except (DataError, UndefinedFunction, UnicodeError, AmadouError) as error:  # the fault of some of the keys
            if len(keys) == 1:
                return {keys[0]: error}
            half = len(keys) // 2
            return {**self._found(connection, keys[:half]), **self._found(connection, keys[half:])}
        asked = {key: key for key in keys}
        found = {}
        for row in rows:
            read = tuple(row.pop(f"{_MARK}{position}") for position in range(len(self.key)))
            key = read[0] if is_single else read
            try:
                answer = self.row(**row)
            except Exception as error:
                answer = error
            found[asked.get(key, key)] = answer
        return found

    def _parts(self, key: Any) -> tuple[Any, ...]:
        """Return the values of the columns of a key."""
        number = len(self.key)
        if number == 1 and not isinstance(key, tuple):
            return (key,)
        if number > 1 and isinstance(key, tuple) and len(key) == number:
            return key
        form = "no tuple" if number == 1 else f"a tuple of {number} parts"
        raise AmadouError(f"the key must be {form}, for the columns {', '.join(self.key)}")

    def _query(self, keys: int) -> Any:
        """Return the query for a number of keys."""
        from psycopg.sql import SQL, Identifier

        names = [Identifier("t", name) for name in self.key]
        marks = [SQL("{} AS {}").format(name, Identifier(f"{_MARK}{at}")) for at, name in enumerate(names)]
        columns = [SQL("t.*")] if self.columns is None else [Identifier("t", name) for name in self.columns]
        if len(names) == 1:
            where = SQL("{} = ANY(%s)").format(names[0])
        else:
            one = SQL("({})").format(SQL(", ").join([SQL("%s")] * len(names)))
            where = SQL("({}) IN ({})").format(SQL(", ").join(names), SQL(", ").join([one] * keys))
        return SQL("SELECT {} FROM {} AS t WHERE {}").format(
            SQL(", ").join([*marks, *columns]), self._identifier(), where
        )

    @contextmanager
    def _connection(self) -> Iterator[Any]:
        """Yield a connection that no other call uses. It is closed if the call fails."""
        idle = _idle.setdefault(self, deque())
        try:
            connection = idle.pop()
        except IndexError:
            connection = self._new_connection()
        try:
            yield connection
        except BaseException:
            connection.close()
            raise
        if len(idle) < _MOST_IDLE:
            idle.append(connection)
        else:
            connection.close()

    def _new_connection(self) -> Any:
        try:
            return self._connected(autocommit=True)
        except ImportError as error:
            raise AmadouError("PostgresRows needs psycopg: run pip install 'amadou[postgres]'") from error
