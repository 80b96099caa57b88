import sqlite3
from collections.abc import Iterator, MutableMapping
from datetime import date, datetime, timedelta
from os import PathLike
from typing import Any

import msgpack

from amadou_plugins.dependencies._errors import DependencyError

_DATETIME, _DATE, _TIMEDELTA = range(1, 4)
_MICROSECOND = timedelta(microseconds=1)


class SqliteCache(MutableMapping[str, Any]):
    """A cache in an SQLite file, which preserves the progress of a `Checkpoint` across restarts of the process. An
    entry is written to disk as soon as it is set.

    The cache can store values of JSON types, `bytes`, dates, datetimes with or without a time zone, and timedeltas.
    Tuples are read back as lists. Multiple threads can use the cache if SQLite was compiled in serialized mode, which
    is the default.

    :param path: the file, created if missing
    :raises DependencyError: the file cannot be opened, or is not the file of a `SqliteCache`
    """

    def __init__(self, path: str | PathLike[str]) -> None:
        self._path = path
        try:
            one_thread = sqlite3.threadsafety < 3  # only a few builds of SQLite need this
            self._database = sqlite3.connect(path, isolation_level=None, check_same_thread=one_thread)
        except sqlite3.Error as error:
            raise self._unusable(error) from error
        try:
            self._execute("CREATE TABLE IF NOT EXISTS entries (key TEXT PRIMARY KEY, value BLOB NOT NULL)")
            self._execute("SELECT key, value FROM entries LIMIT 0")
        except DependencyError:
            self.close()
            raise

    def close(self) -> None:
        """Close the cache's file."""
        self._database.close()

    def __getitem__(self, key: str) -> Any:
        row = self._execute("SELECT value FROM entries WHERE key = ?", key).fetchone()
        if row is None:
            raise KeyError(key)
        try:
            return _unpacked(row[0])
        except (TypeError, ValueError, OverflowError) as error:
            raise DependencyError(f"the entry {key!r} of {self._path} cannot be read: delete it ({error})") from error

    def __setitem__(self, key: str, value: Any) -> None:
        try:
            packed = msgpack.packb(value, default=_to_extension)
            _unpacked(packed)  # a tuple used as a key would be read back as a list, which cannot be a key
        except (TypeError, ValueError, OverflowError) as error:
            raise DependencyError(f"the cache {self._path} cannot store {value!r}: {error}") from error
        self._execute("INSERT OR REPLACE INTO entries VALUES (?, ?)", key, packed)

    def __delitem__(self, key: str) -> None:
        if not self._execute("DELETE FROM entries WHERE key = ?", key).rowcount:
            raise KeyError(key)

    def __iter__(self) -> Iterator[str]:
        return (key for (key,) in self._execute("SELECT key FROM entries ORDER BY key").fetchall())

    def __len__(self) -> int:
        (count,) = self._execute("SELECT count(*) FROM entries").fetchone()
        return int(count)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({str(self._path)!r})"

    def _execute(self, statement: str, *values: Any) -> sqlite3.Cursor:
        try:
            return self._database.execute(statement, values)
        except sqlite3.Error as error:
            raise self._unusable(error) from error

    def _unusable(self, error: sqlite3.Error) -> DependencyError:
        return DependencyError(f"the cache {self._path} cannot be used: check the file and its permissions ({error})")


def _unpacked(packed: bytes) -> Any:
    return msgpack.unpackb(packed, ext_hook=_from_extension, strict_map_key=False)


def _to_extension(value: Any) -> msgpack.ExtType:
    if isinstance(value, datetime):
        return msgpack.ExtType(_DATETIME, value.isoformat().encode())
    if isinstance(value, date):
        return msgpack.ExtType(_DATE, value.isoformat().encode())
    if isinstance(value, timedelta):
        return msgpack.ExtType(_TIMEDELTA, str(value // _MICROSECOND).encode())
    raise TypeError(f"values of type {type(value).__name__} are not supported: convert the value")


def _from_extension(code: int, data: bytes) -> Any:
    text = data.decode()
    if code == _DATETIME:
        return datetime.fromisoformat(text)
    if code == _DATE:
        return date.fromisoformat(text)
    if code == _TIMEDELTA:
        return int(text) * _MICROSECOND
    raise ValueError(f"extension type {code} is unknown")
