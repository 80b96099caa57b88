from collections.abc import Sequence
from typing import Any, Final

import attrs

from amadou import Param
from amadou.errors import SinkError
from amadou.plugins import SinkBatch
from amadou_plugins.connectors._last_commits import LastCommits
from amadou_plugins.connectors.files.column_names import column_names
from amadou_plugins.connectors.tables.spark_tables import scala_release, spark_release
from amadou_plugins.connectors.tables.table_sink import TableSink

_PACKAGE = "--conf spark.jars.packages=org.apache.iceberg:iceberg-spark-runtime-{version}_{scala}:VERSION"
_SETTING = "--conf spark.sql.catalog.NAME=org.apache.iceberg.spark.SparkCatalog"
_COMMITTED = """
    SELECT max(CAST(summary['amadou.batch'] AS BIGINT)) AS batch
    FROM {table}.snapshots
    WHERE summary['amadou.run'] = :run AND summary['amadou.port'] = :port
        AND snapshot_id IN (SELECT snapshot_id FROM {table}.history WHERE is_current_ancestor)
"""
_commits: Final = LastCommits()


def _expressions(names: str | Sequence[str] | Param | None) -> Any:
    return column_names(names, "partition_by", SinkError)


@attrs.frozen
class IcebergSink(TableSink):
    """Appends the values of each batch to an Apache Iceberg table, in one snapshot. Exactly-once: each snapshot has the
    run, the port and the number of its batch in its summary. Before the first commit of a run, the sink looks for the
    batch in the snapshots of the table, and skips a batch that it finds.

    The fields of an attrs class, dataclass or named tuple become columns, with the same types as in `ParquetSink`,
    except that a `timedelta` becomes a number of microseconds. The check before a run creates the table if it is
    missing. Columns of the table that the type does not have are null.

    Workers send their parts of a batch to the driver, so the values of a batch must fit into the driver's memory.
    Batches without values make no snapshot. The sink needs Spark with the package of Apache Iceberg.

    :param table: the table's name in a catalog of Spark, such as ``lake.views.sums``
    :param partition_by: columns and transforms such as ``days(at)`` to partition by if the sink creates the table, as a
        list or a comma-separated string
    :raises SinkError: a setting is invalid
    """

    advice = (
        (
            r"REQUIRES_SINGLE_PART_NAMESPACE|Couldn't find a catalog",
            f"correct the name, or add its catalog: {_SETTING}",
        ),
        (r"\.snapshots|\.`snapshots`", "the table is not an Iceberg table: write to another table"),
        (r"Couldn't find column", "correct partition_by"),
    )

    partition_by: str | Sequence[str] | Param | None = attrs.field(default=None, kw_only=True, converter=_expressions)

    def check(self, port: str, type_: Any) -> None:
        _commits.forget(str(self.table))
        super().check(port, type_)

    def check_package(self, spark: Any) -> None:
        from py4j.java_gateway import JavaClass

        if not isinstance(spark._jvm.org.apache.iceberg.spark.SparkCatalog, JavaClass):
            package = _PACKAGE.format(version=spark_release(spark), scala=scala_release(spark))
            raise SinkError(f"{self._label} needs Apache Iceberg, which Spark does not have: add {package} {_SETTING}")

    def columns(self, spark: Any) -> Any:
        if not spark.catalog.tableExists(self.table):
            return None
        spark.table(f"{self.table}.snapshots")
        return spark.table(self.table).schema

    def create(self, spark: Any, empty: Any) -> None:
        names: Sequence[str] = self.partition_by or ()  # type: ignore[assignment]
        partitions = f"PARTITIONED BY ({', '.join(names)})" if names else ""
        spark.sql(f"CREATE TABLE {self.table} ({empty._jdf.schema().toDDL()}) USING iceberg {partitions}")

    def commit(self, batch: SinkBatch, parts: Sequence[Any]) -> None:
        super().commit(batch, parts)
        _commits.end(str(self.table), batch)

    def append(self, spark: Any, frame: Any, batch: SinkBatch) -> None:
        if _commits.begin(str(self.table), batch) and self._is_committed(spark, batch):
            return
        writer = self._with_all_columns(spark, frame).writeTo(self.table)
        for name, value in {"run": batch.run, "port": batch.port, "batch": batch.number}.items():
            writer = writer.option(f"snapshot-property.amadou.{name}", value)
        writer.append()

    def _is_committed(self, spark: Any, batch: SinkBatch) -> bool:
        spark.catalog.refreshTable(self.table)
        found = spark.sql(_COMMITTED.format(table=self.table), args={"run": batch.run, "port": batch.port}).first()
        return found.batch is not None and found.batch >= batch.number

    def _with_all_columns(self, spark: Any, frame: Any) -> Any:
        """Return a DataFrame with nulls for the other columns of the table: Spark 4.0 does not add them."""
        from pyspark.sql.functions import lit

        names = {name.lower() for name in frame.columns}
        others = [field for field in spark.table(self.table).schema if field.name.lower() not in names]
        return frame.withColumns({field.name: lit(None).cast(field.dataType) for field in others})
