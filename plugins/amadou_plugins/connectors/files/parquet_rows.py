"""Rewrites Parquet files so that each file has a given number of rows."""

import os
from collections.abc import Iterable, Iterator, Sequence
from typing import IO, Any

from amadou.plugins import SinkBatch
from amadou_plugins.connectors.files.part_files import PartFiles
from amadou_plugins.connectors.files.remote_parts import RemoteParts

ROW_GROUP = 100_000


def joined(files: PartFiles | RemoteParts, batch: SinkBatch, parts: Sequence[Any], suffix: str, rows: int) -> list[Any]:
    """Copy the rows from a batch's hidden files to new hidden files with a given number of rows each, in the order of
    the parts.

    :param parts: values that the writers' `finish` returned
    :param rows: number of rows per file; the last file in each directory contains the remaining rows
    :returns: values that the new writers' `finish` returned
    """
    by_directory: dict[str, list[Any]] = {}
    for temporary, final in parts:
        by_directory.setdefault(os.path.dirname(final), []).append(temporary)
    finished = []
    for below, finished_before in by_directory.items():
        writer, number = None, 0
        for table, is_last in _cut(_tables(map(files.opened, finished_before)), rows):
            if writer is None:
                writer = files.open(batch, f"{number:05}", suffix, _Tables, below)
                number += 1
            writer.write([table])
            if is_last:
                finished.append(writer.finish())
                writer = None
        if writer is not None:
            finished.append(writer.finish())
    return finished


def _tables(files: Iterable[IO[bytes]]) -> Iterator[Any]:
    import pyarrow as pa
    from pyarrow.parquet import ParquetFile

    for opened in files:
        with opened, ParquetFile(opened) as file:
            for batch in file.iter_batches(ROW_GROUP):
                yield pa.Table.from_batches([batch])


def _cut(tables: Iterable[Any], rows: int) -> Iterator[tuple[Any, bool]]:
    """Split tables after every `rows` rows. Yield each piece with a flag: `True` if the piece ends at a split."""
    left = rows
    for table in tables:
        rest = table
        while len(rest):
            piece = rest.slice(0, left)
            rest, left = rest.slice(len(piece)), left - len(piece)
            yield piece, not left
            left = left or rows


class _Tables:
    """Writes Arrow tables to a Parquet file."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self._writer: Any = None
        self._tables: list[Any] = []

    def write(self, tables: Sequence[Any]) -> None:
        self._tables += tables
        if sum(map(len, self._tables)) >= ROW_GROUP:
            self._write()

    def end(self) -> None:
        try:
            self._write()
        finally:
            if self._writer is not None:
                self._writer.close()

    def _write(self) -> None:
        import pyarrow as pa
        from pyarrow.parquet import ParquetWriter

        if self._tables:
            if self._writer is None:
                self._writer = ParquetWriter(self._file, self._tables[0].schema)
            self._writer.write_table(pa.concat_tables(self._tables))
            self._tables = []
