"""Hive-style partition directories for Parquet files. Field values determine the name of a directory."""

import re
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from typing import Any

from amadou.errors import EncodeError, SinkError
from amadou.plugins import SinkWriter
from amadou_plugins.connectors._arrow import ArrowCodec

_MOST_OPEN = 100
"""Maximum number of open files per part of a batch."""
_NONE = "__HIVE_DEFAULT_PARTITION__"
_SPECIAL = re.compile(r"[\x00-\x1f\x7f\"#%'*/:=?\\{\[\]^]")
"""The characters that are escaped in directory names, the same as in Spark."""


class Partitions:
    """Determines the partition path of each row.

    :param names: fields to partition by
    :param schema: the `pyarrow.Schema` of the rows
    :raises SinkError: a field does not exist or has a type that cannot be used for directory names, or no field is left
        for the files
    """

    def __init__(self, names: Sequence[str], schema: Any) -> None:
        import pyarrow.types as types

        for name in names:
            if name not in schema.names:
                raise SinkError(
                    f"partition_by refers to {name!r}, but there is no such field: use one of {', '.join(schema.names)}"
                )
            kind = schema.field(name).type
            if not any(fits(kind) for fits in (types.is_string, types.is_int64, types.is_date, types.is_boolean)):
                raise SinkError(
                    f"partition_by refers to {name!r}, but values of type {kind} cannot be directory names: use a "
                    "field that is a string, an integer, a date or a boolean"
                )
        if names and len(names) == len(schema.names):
            raise SinkError("partition_by lists all fields, so files would have no columns: remove at least one")
        self._cells = [(name, schema.names.index(name)) for name in names]

    def directory(self, row: Sequence[Any]) -> str:
        """Return the partition path of a row, such as ``year=2024/month=5``."""
        return "/".join(f"{_SPECIAL.sub(_escaped, name)}={_text(row[index])}" for name, index in self._cells)


class PartitionedCodec(ArrowCodec):
    """Encodes values as rows, and rejects values that readers of a partition path could not distinguish from null.

    :param names: fields to partition by
    """

    def __init__(self, type_: Any, names: Sequence[str]) -> None:
        super().__init__(type_)
        self._by = [(name, self.schema.names.index(name)) for name in names if name in self.schema.names]

    def encode(self, value: Any) -> list[Any]:
        row = super().encode(value)
        for name, index in self._by:
            if row[index] in ("", _NONE):
                why = f"{name} is {row[index]!r}: with partition_by, this value would be read back as null"
                raise EncodeError(value, self.type, f"{why}; use a different value, or None")
        return row


class PartitionedWriter(SinkWriter):
    """Writes a part of a batch to one file per partition directory. If the part has more than `_MOST_OPEN` directories,
    the writer can write multiple files to a directory.

    :param open_file: function that receives a directory and the `part` for the file's name, and returns the writer for
        the file
    """

    def __init__(self, partitions: Partitions, part: str, open_file: Callable[[str, str], SinkWriter]) -> None:
        self._partitions = partitions
        self._part = part
        self._open_file = open_file
        self._open: dict[str, SinkWriter] = {}
        self._finished: list[Any] = []
        self._all: list[SinkWriter] = []

    def write(self, encoded_values: Sequence[Any]) -> None:
        by_directory: dict[str, list[Any]] = {}
        for row in encoded_values:
            by_directory.setdefault(self._partitions.directory(row), []).append(row)
        for directory, rows in by_directory.items():
            writer = self._open.pop(directory, None) or self._opened(directory)
            self._open[directory] = writer
            writer.write(rows)

    def finish(self) -> list[Any] | None:
        for directory in [*self._open]:
            self._finish(directory)
        return self._finished or None

    def abort(self) -> None:
        with ExitStack() as stack:
            for writer in self._all:
                stack.callback(writer.abort)

    def _opened(self, directory: str) -> SinkWriter:
        if len(self._open) == _MOST_OPEN:
            self._finish(next(iter(self._open)))  # the least recently written file
        writer = self._open_file(directory, f"{self._part}-{len(self._all):05}")
        self._all.append(writer)
        return writer

    def _finish(self, directory: str) -> None:
        self._finished.append(self._open.pop(directory).finish())


def _text(cell: Any) -> str:
    if cell is None or cell == "":  # an empty string occurs only in dead letters, which must always be written
        return _NONE
    return str(cell).lower() if isinstance(cell, bool) else _SPECIAL.sub(_escaped, str(cell))


def _escaped(found: re.Match[str]) -> str:
    return f"%{ord(found[0]):02X}"
