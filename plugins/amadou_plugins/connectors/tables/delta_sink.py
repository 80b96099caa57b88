from collections.abc import Sequence
from typing import Any

import attrs

from amadou import Param
from amadou.errors import SinkError
from amadou.plugins import SinkBatch
from amadou.spark_versions import spark_version
from amadou_plugins.connectors.files.column_names import column_names
from amadou_plugins.connectors.tables.spark_tables import scala_release, spark_release
from amadou_plugins.connectors.tables.table_sink import TableSink

_PACKAGE = "--conf spark.jars.packages=io.delta:delta-spark_{versions}:VERSION"
_SETTINGS = (
    "--conf spark.sql.extensions=io.delta.sql.DeltaSparkSessionExtension "
    "--conf spark.sql.catalog.spark_catalog=org.apache.spark.sql.delta.catalog.DeltaCatalog"
)


def _fields(names: str | Sequence[str] | Param | None) -> Any:
    return column_names(names, "partition_by", SinkError)


@attrs.frozen
class DeltaSink(TableSink):
    """Appends the values of each batch to a Delta Lake table, in one commit of the table. Exactly-once: Delta Lake
    stores the number of the last batch with the table, and skips a batch that it already contains.

    The fields of an attrs class, dataclass or named tuple become columns, with the same types as in `ParquetSink`,
    except that a `timedelta` becomes a number of microseconds. The check before a run creates the table if it is
    missing. Columns of the table that the type does not have are null.

    Workers send their parts of a batch to the driver, so the values of a batch must fit into the driver's memory.
    Batches without values make no commit. The sink needs Spark with the package of Delta Lake.

    :param table: the table's directory, as a path with a slash such as ``tables/sums`` or a URI; or its name in a
        catalog, such as ``sums`` or ``main.views.sums``
    :param partition_by: columns to partition by if the sink creates the table, as a list or a comma-separated string
    :param merge_schema: `True` if the sink adds the fields that the table does not have as columns
    :raises SinkError: a setting is invalid
    """

    advice = (
        (r"CONFIGURE_SPARK_SESSION_WITH_EXTENSION|EXTERNAL_METADATA_UNSUPPORTED", f"add {_SETTINGS}"),
        (r"DELTA_MISSING_DELTA_TABLE|format of the existing table", "write to another table"),
    )

    partition_by: str | Sequence[str] | Param | None = attrs.field(default=None, kw_only=True, converter=_fields)
    merge_schema: bool | Param = attrs.field(default=False, kw_only=True)

    def check_package(self, spark: Any) -> None:
        from py4j.java_gateway import JavaClass

        if not isinstance(spark._jvm.io.delta.tables.DeltaTable, JavaClass):
            scala, version = scala_release(spark), spark_release(spark)
            package = _PACKAGE.format(versions=scala if spark_version() < (4, 0) else f"{version}_{scala}")
            raise SinkError(f"{self._label} needs Delta Lake, which Spark does not have: add {package} {_SETTINGS}")

    def columns(self, spark: Any) -> Any:
        from pyspark.sql import DataFrame

        tables = spark._jvm.io.delta.tables.DeltaTable
        if self._is_path:
            if not tables.isDeltaTable(spark._jsparkSession, self.table):
                return None
            table = tables.forPath(spark._jsparkSession, self.table)
        elif not spark.catalog.tableExists(self.table):
            return None
        else:
            table = tables.forName(spark._jsparkSession, self.table)
        return DataFrame(table.toDF(), spark).schema

    def create(self, spark: Any, empty: Any) -> None:
        names: Sequence[str] = self.partition_by or ()  # type: ignore[assignment]
        for name in names:
            if name not in empty.columns:
                raise SinkError(
                    f"{self._label}: partition_by refers to {name!r}, but there is no such field: use one of "
                    f"{', '.join(empty.columns)}"
                )
        self._save(empty.write.partitionBy(*names))

    def append(self, spark: Any, frame: Any, batch: SinkBatch) -> None:
        # Delta skips a batch if the table has a batch of this application with this number or a later one.
        writer = frame.write.option("txnAppId", f"amadou/{batch.run}/{batch.port}").option("txnVersion", batch.number)
        self._save(writer.option("mergeSchema", str(self.merge_schema).lower()))

    def add_column(self, columns: str) -> str:
        table = f"delta.`{self.table}`" if self._is_path else self.table
        return f"set merge_schema=True, or run ALTER TABLE {table} ADD COLUMNS ({columns})"

    @property
    def adds_columns(self) -> bool:
        return bool(self.merge_schema)

    @property
    def _is_path(self) -> bool:
        return "/" in str(self.table)

    def _save(self, writer: Any) -> None:
        writer = writer.format("delta").mode("append")
        if self._is_path:
            writer.save(self.table)
        else:
            writer.saveAsTable(self.table)
