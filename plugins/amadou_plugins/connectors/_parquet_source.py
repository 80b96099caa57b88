from collections.abc import Callable, Iterator, Sequence
from datetime import UTC
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import attrs

from amadou import Param, Source
from amadou.errors import SourceError
from amadou_plugins.connectors._column_names import check_twice, column_names
from amadou_plugins.connectors._found_files import FoundFiles, opened, reading
from amadou_plugins.connectors._path import check_path, local_path, path_text
from amadou_plugins.connectors._settings import check_count


@attrs.frozen
class ParquetSource(Source):
    """The rows of Parquet files, as `dict`s by column.

    Values are those of Python, times with microseconds: timestamps with a zone are `datetime`s in UTC, those without
    are naive; structs and maps are `dict`s, nulls `None`.

    Files are found and ordered as `LinesSource` does. Each file is read in one task.

    :param path: a file, a directory, or a glob with ``*``, ``?`` and ``[…]``; relative to where the program was
        started. A URI such as ``s3://bucket/views/`` is left to Spark, which hands over whole files of up to 2 GB
    :param columns: the names of the columns to read, or a text with commas between them; all without it
    :param max_files_per_batch: bounds the batches on Spark; all files that are there make one batch without it
    :param key_event: turns the rows into events, instead of the handler's own
    :raises SourceError: a setting is of no use
    """

    path: str | Path | Param = attrs.field(converter=path_text)
    columns: str | Sequence[str] | Param | None = attrs.field(default=None, kw_only=True, converter=column_names)
    max_files_per_batch: int | Param | None = attrs.field(default=None, kw_only=True)
    key_event: Callable[[Any], Any] | None = attrs.field(default=None, kw_only=True)

    def __attrs_post_init__(self) -> None:
        check_path(SourceError, "ParquetSource", self.path)
        check_count(SourceError, "max_files_per_batch", self.max_files_per_batch, optional=True)

    @property
    def bounded(self) -> bool:
        return self._files.bounded

    def check(self) -> None:
        if find_spec("pyarrow") is None:
            raise SourceError("ParquetSource needs pyarrow: pip install 'amadou[spark]'")
        self._files.check()

    def records(self) -> Iterator[Any]:
        for path in self._files.paths():
            yield from self._rows(path)

    def read_stream(self, spark: Any, reader: Any, name: str, checkpoint: str) -> Any:
        return self._files.whole_stream(spark, reader, self.max_files_per_batch)

    def to_records(self, cells: Any) -> Iterator[Any]:
        """Turns files into their rows."""
        for file in cells.to_pylist():
            yield from self._rows(local_path(file["path"]), file.get("content"))

    def _rows(self, path: str, content: bytes | None = None) -> Iterator[Any]:
        from pyarrow import ArrowException
        from pyarrow.parquet import ParquetFile

        errors = (ArrowException, ValueError, OverflowError, KeyError)  # the last three are of values
        with reading("ParquetSource", path, *errors), opened(path, content) as file:
            parquet = ParquetFile(file, coerce_int96_timestamp_unit="us")
            there = parquet.schema_arrow.names
            check_twice(path, there)
            columns: Any = self.columns
            names = there if columns is None else list(columns)
            missing = [name for name in names if name not in there]
            if missing:
                raise SourceError(f"{path} has no column {missing[0]!r} (it has: {', '.join(there)})")
            for batch in parquet.iter_batches(columns=names):
                cells = [_values(batch.column(name)) for name in names]
                yield from (dict(zip(names, row, strict=True)) for row in zip(*cells, strict=True))

    @property
    def _files(self) -> FoundFiles:
        return FoundFiles("ParquetSource", self.path)


def _values(column: Any) -> list[Any]:
    import pyarrow as pa

    type_ = _in_micros(column.type)
    if pa.types.is_timestamp(type_) and type_.tz is not None:
        # Arrow's own way looks the zone up for each value, which takes a hundred times as long.
        naive = column.cast(pa.timestamp("us"), safe=False).to_pylist()
        return [None if time is None else time.replace(tzinfo=UTC) for time in naive]
    if type_ != column.type:
        column = column.cast(type_, safe=False)
    return column.to_pylist(maps_as_pydicts="strict")  # type: ignore[no-any-return]


def _in_micros(type_: Any) -> Any:
    """A type with times as Python has them: nanoseconds would be those of pandas."""
    import pyarrow as pa

    if pa.types.is_timestamp(type_):
        return pa.timestamp("us", None if type_.tz is None else "UTC")
    if pa.types.is_duration(type_):
        return pa.duration("us")
    if pa.types.is_time64(type_):
        return pa.time64("us")
    if pa.types.is_list(type_):
        return pa.list_(type_.value_field.with_type(_in_micros(type_.value_type)))
    if pa.types.is_struct(type_):
        return pa.struct([field.with_type(_in_micros(field.type)) for field in type_])
    if pa.types.is_map(type_):
        return pa.map_(_in_micros(type_.key_type), _in_micros(type_.item_type))
    return type_
