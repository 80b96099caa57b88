"""Files with rows of state, in JSON lines or Parquet."""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import Any, Final

from amadou.errors import LoadError
from amadou_runtime.formats.documents import UNREADABLE

_PARQUET: Final = (".parquet", ".pq")
_AS_TEXT: Final = ("value", "written", "timers")
"""Columns that contain JSON in Parquet files."""
_PLAIN: Final = ("spec", "expires", "next_timer")
_ROWS: Final = 10_000
_READ_ROWS: Final = 64
"""Rows that are read together: a value that a Parquet file has once can be large in each of them."""


def is_parquet(path: Path) -> bool:
    """Return `True` if a file name is that of a Parquet file."""
    return path.suffix in _PARQUET


@contextmanager
def writing(path: Path) -> Iterator[Callable[[Iterable[Mapping[str, Any]]], int]]:
    """Yield a function that writes rows to a file, and returns their number. The file becomes visible at the end.

    :raises LoadError: the file cannot be written
    """
    beside = path.with_name(f".{path.name}.new")
    try:
        yield lambda rows: (_write_parquet if is_parquet(path) else _write_lines)(beside, rows)
        beside.replace(path)
    except OSError as error:
        raise LoadError(str(path), f"the file cannot be written: {error.strerror or error}") from error
    finally:
        beside.unlink(missing_ok=True)


def _write_lines(path: Path, rows: Iterable[Mapping[str, Any]]) -> int:
    number = 0
    with path.open("w", encoding="utf-8") as file:
        for row in rows:
            file.write(f"{json.dumps(row, ensure_ascii=False)}\n")
            number += 1
    return number


def _arrow(path: Path) -> Any:
    try:
        import pyarrow.parquet
    except ImportError as error:
        raise LoadError(str(path), "Parquet needs pyarrow: run pip install 'amadou[spark]', or use .jsonl") from error
    return pyarrow


def _write_parquet(path: Path, rows: Iterable[Mapping[str, Any]]) -> int:
    pa = _arrow(path)
    fields = [("key", pa.string()), ("key_is_text", pa.bool_()), *((name, pa.string()) for name in _PLAIN)]
    fields += [("version", pa.int64()), *((name, pa.string()) for name in _AS_TEXT)]
    schema, number = pa.schema(fields), 0
    with pa.parquet.ParquetWriter(path, schema) as writer:
        rows = iter(rows)
        while some := list(islice(rows, _ROWS)):
            writer.write_table(pa.Table.from_pylist(list(map(_to_columns, some)), schema=schema))
            number += len(some)
    return number


def _to_columns(row: Mapping[str, Any]) -> dict[str, Any]:
    key = row["key"]
    is_text = isinstance(key, str)
    columns = {"key": key if is_text else json.dumps(key), "key_is_text": is_text, "version": row.get("version")}
    columns |= {name: row.get(name) for name in _PLAIN}
    return columns | {name: json.dumps(row[name]) if name in row else None for name in _AS_TEXT}


def rows_in(path: Path) -> Iterator[dict[str, Any]]:
    """Yield the rows of a file.

    :raises LoadError: the file cannot be read
    """
    try:
        yield from _from_parquet(path) if is_parquet(path) else _from_lines(path)
    except OSError as error:
        raise LoadError(str(path), f"the file cannot be read: {error.strerror or error}") from error


def _from_lines(path: Path) -> Iterator[dict[str, Any]]:
    with path.open("rb") as file:
        for number, line in enumerate(file, 1):
            if line.strip():
                try:
                    yield json.loads(line)
                except (ValueError, RecursionError) as error:
                    raise LoadError(str(path), f"line {number} is not JSON ({error})") from error


def _from_parquet(path: Path) -> Iterator[dict[str, Any]]:
    pa = _arrow(path)
    try:
        file = pa.parquet.ParquetFile(path)
    except (pa.ArrowException, *UNREADABLE) as error:
        raise LoadError(str(path), f"this is not a Parquet file ({error})") from error
    with file:
        try:
            rows = (row for batch in file.iter_batches(_READ_ROWS) for row in batch.to_pylist())
            for number, columns in enumerate(rows, 1):
                yield _row_of(path, number, columns)
        except LoadError:
            raise
        except (pa.ArrowException, OSError, *UNREADABLE) as error:
            raise LoadError(str(path), f"the file is damaged ({type(error).__name__}: {error})") from error


def _row_of(path: Path, number: int, columns: Mapping[str, Any]) -> dict[str, Any]:
    row = {name: value for name, value in columns.items() if value is not None}
    try:
        if not row.pop("key_is_text", True):
            row["key"] = json.loads(row["key"])
        return row | {name: json.loads(row[name]) for name in _AS_TEXT if name in row}
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        raise LoadError(str(path), f"row {number} is not as amadou state export writes it ({error})") from error
