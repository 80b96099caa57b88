from collections.abc import Iterator, Sequence
from datetime import timezone
from importlib.util import find_spec
from typing import Any

import attrs

from amadou import Param
from amadou.errors import SourceError
from amadou.paths import local_path
from amadou_plugins.connectors._arrow_values import python_values
from amadou_plugins.connectors.files.column_names import check_twice, column_names
from amadou_plugins.connectors.files.file_source import FileSource
from amadou_plugins.connectors.files.found_files import opened, reading


@attrs.frozen
class ParquetSource(FileSource):
    """Reads the rows of Parquet files as `dict`s that map column names to values.

    Cells become Python values; times are truncated to microseconds. Timestamps with a time zone become `datetime`s in
    UTC, and timestamps without a time zone become naive `datetime`s. Structs and maps become `dict`s; nulls become
    `None`.

    Files are found and ordered as in `LinesSource`. Spark never splits a file across tasks.

    :param path: a file, a directory, or a glob with ``*``, ``?`` and ``[…]``, as an absolute path or relative to the
        program's working directory; or a URI such as ``s3://bucket/views/``, which only Spark can read. For a URI,
        Spark loads each file as a whole, and the maximum file size is 2 GB
    :param columns: names of the columns to read, as a list or a comma-separated string; by default all columns
    :param max_files_per_batch: maximum number of files in a batch on Spark; by default, a batch reads all files that
        have arrived
    :param partition_by: rule that assigns files to partitions (see `Source`): a regular expression or an integer. A
        regular expression is searched for in a file's path; the partition is named after the first group, or after the
        entire match if there are no groups. An integer is the number of partitions; a hash of a file's path determines
        the file's partition. By default, there is only one partition
    :param key_event: function that converts rows into events; by default, the handler's `key_event`
    :raises SourceError: a setting is invalid
    """

    columns: str | Sequence[str] | Param | None = attrs.field(default=None, kw_only=True, converter=column_names)

    def check(self) -> None:
        if find_spec("pyarrow") is None:
            raise SourceError("ParquetSource needs pyarrow: run pip install 'amadou[spark]'")
        super().check()

    def read_stream(self, spark: Any, reader: Any, name: str, checkpoint: str) -> Any:
        return self._files.whole_stream(spark, reader, self.max_files_per_batch)

    def to_records(self, cells: Any) -> Iterator[Any]:
        """Yield the rows of the files in Spark's cells."""
        for file in cells.to_pylist():
            yield from self._records_of(local_path(file["path"]), file.get("content"))

    def _records_of(self, path: str, content: bytes | None = None) -> Iterator[Any]:
        from pyarrow import ArrowException
        from pyarrow.parquet import ParquetFile

        errors = (ArrowException, ValueError, OverflowError, KeyError)  # converting values can raise the last three
        with reading("ParquetSource", path, *errors), opened(path, content) as file:
            parquet = ParquetFile(file, coerce_int96_timestamp_unit="us")
            there = parquet.schema_arrow.names
            check_twice(path, there)
            columns: Any = self.columns
            names = there if columns is None else list(columns)
            missing = [name for name in names if name not in there]
            if missing:
                raise SourceError(f"{path} has no column {missing[0]!r}: use one of {', '.join(there)}")
            for batch in parquet.iter_batches(columns=names):
                cells = [_values(batch.column(name)) for name in names]
                yield from (dict(zip(names, row, strict=True)) for row in zip(*cells, strict=True))


def _values(column: Any) -> list[Any]:
    import pyarrow as pa

    type_ = _in_micros(column.type)
    if pa.types.is_timestamp(type_) and type_.tz is not None:
        # Arrow would look up the time zone for each value, which takes a hundred times as long.
        naive = column.cast(pa.timestamp("us"), safe=False).to_pylist()
        return [None if time is None else time.replace(tzinfo=timezone.utc) for time in naive]
    if type_ != column.type:
        column = column.cast(type_, safe=False)
    return python_values(column)


def _in_micros(type_: Any) -> Any:
    """Return a type with all its times in microseconds. Arrow would convert nanoseconds to pandas types."""
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
