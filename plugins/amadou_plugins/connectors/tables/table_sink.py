"""The base class of sinks that append to tables with Spark's writers."""

import os
from collections.abc import Sequence
from typing import Any, ClassVar

import attrs

from amadou import Param
from amadou.errors import SinkError
from amadou.plugins import Codec, Sink, SinkBatch, SinkWriter
from amadou.spark_versions import frame_of_arrow
from amadou_plugins.connectors.tables.spark_tables import check_columns, explained, running_spark
from amadou_plugins.connectors.tables.table_rows import TableCodec, TableRowsWriter, frame_of, joined_rows


def _table_text(table: Any) -> Any:
    return os.path.abspath(table) if isinstance(table, os.PathLike) else table


@attrs.frozen
class TableSink(Sink):
    """Appends the values of each batch to a table, in one commit of the table. Exactly-once. Batches without values
    make no commit. Subclasses define `advice`, `columns`, `create` and `append`.

    Workers send their parts of a batch to the driver in Arrow's format, so the values of a batch must fit into the
    driver's memory.

    :param table: the table
    :raises SinkError: the table is not a string, or is empty
    """

    guarantee = "exactly-once"
    advice: ClassVar[Sequence[tuple[str, str]]]
    """Pairs of a pattern of Spark's errors, and what to do; see `explained`."""

    table: str | Param = attrs.field(converter=_table_text)

    def __attrs_post_init__(self) -> None:
        if not isinstance(self.table, Param) and (not isinstance(self.table, str) or not self.table):
            raise SinkError(f"{type(self).__name__} needs a table, not {self.table!r}")

    def check_package(self, spark: Any) -> None:
        """Raise a `SinkError` unless Spark has the table format's package."""
        raise NotImplementedError

    def columns(self, spark: Any) -> Any:
        """Return the table's columns as a `StructType`; `None` if the table does not exist."""
        raise NotImplementedError

    def create(self, spark: Any, empty: Any) -> None:
        """Create the table.

        :param empty: a DataFrame without rows, with the columns of the table
        """
        raise NotImplementedError

    def append(self, spark: Any, frame: Any, batch: SinkBatch) -> None:
        """Append the rows of a batch, unless the table already contains this batch."""
        raise NotImplementedError

    def add_column(self, columns: str) -> str:
        """Return what a user can do to add columns to the table."""
        return f"run ALTER TABLE {self.table} ADD COLUMNS ({columns})"

    @property
    def adds_columns(self) -> bool:
        """`True` if appending to the table adds missing columns."""
        return False

    def codec(self, type_: Any) -> Codec[Any]:
        return TableCodec(type_)

    def check(self, port: str, type_: Any) -> None:
        spark = running_spark(self._label)
        problem = f"{self._label} cannot write the values of port {port!r}"
        try:
            schema = TableCodec(type_).table_schema
        except SinkError as error:
            raise SinkError(f"{problem}: {error}") from error
        self.check_package(spark)
        with explained(spark, problem, self.advice):
            empty = frame_of_arrow(spark, schema.empty_table())
            columns = self.columns(spark)
            if columns is None:
                self.create(spark, empty)
                return
            check_columns(empty.schema, columns, problem, self.add_column, can_add=self.adds_columns)

    def open(self, batch: SinkBatch, part: str) -> SinkWriter:
        if not isinstance(batch.codec, TableCodec):
            raise SinkError(f"{self._label}: port {batch.port!r} has codec=, so values have no columns: remove it")
        return TableRowsWriter(batch.codec)

    def commit(self, batch: SinkBatch, parts: Sequence[Any]) -> None:
        if not parts:
            return
        spark = running_spark(self._label)
        problem = f"{self._label} cannot write batch {batch.number} of port {batch.port!r}"
        with explained(spark, problem, self.advice):
            self.append(spark, frame_of(spark, joined_rows(parts)), batch)

    @property
    def _label(self) -> str:
        return f"{type(self).__name__}({self.table!r})"
