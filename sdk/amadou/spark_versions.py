"""What differs between the versions of Spark that amadou supports. Needs pyspark.

Connectors can use this module, too. The base classes of sources for older versions are in `amadou.data_source`.
"""

import os
import platform
from collections.abc import Iterable, Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

from amadou.errors import PlatformError

OLDEST: Final = (3, 5)
_ALL: Final = (4, 0)
"""The first version with all that amadou uses: sources in Python, `transformWithState`, and a reader of state."""
_EXECUTION: Final = "org.apache.spark.sql.execution.streaming"


__all__ = [
    "OLDEST",
    "batch_logger",
    "check_has_all",
    "check_reads_state",
    "check_spark_home",
    "check_spark_version",
    "file_manager",
    "frame_of_arrow",
    "logs_json",
    "names_sources",
    "plans_with_limits",
    "prints_broken_pipes",
    "session_settings",
    "spark_version",
    "wakes_while_ending",
]


def spark_version() -> tuple[int, int]:
    """Return the major and the minor version of the installed pyspark."""
    import pyspark

    major, minor, *_ = pyspark.__version__.split(".")
    return int(major), int(minor)


def check_spark_version() -> None:
    """Raise a `PlatformError` if the installed pyspark is too old for amadou, or for this Python."""
    import pyspark

    if spark_version() < OLDEST:
        oldest = ".".join(map(str, OLDEST))
        raise PlatformError(
            f"pyspark {pyspark.__version__} is installed, but amadou needs pyspark {oldest} or newer: install the "
            "version of the cluster, or choose a platform with a newer Spark"
        )
    if spark_version() < _ALL and find_spec("distutils") is None:
        raise PlatformError(
            f"pyspark {pyspark.__version__} does not run on Python {platform.python_version()}: use Python 3.11, or a "
            "newer Spark"
        )


def check_has_all(what: str, advice: str) -> None:
    """Raise a `PlatformError` if something does not exist on the installed version of Spark, which is 3.5.

    :param what: what needs a newer version
    :param advice: what to do instead
    """
    if spark_version() < _ALL:
        import pyspark

        needed = ".".join(map(str, _ALL))
        raise PlatformError(
            f"{what} needs Spark {needed} or newer, but pyspark {pyspark.__version__} is installed: {advice}"
        )


def check_reads_state() -> None:
    """Raise a `PlatformError` if Spark cannot read the state in a checkpoint."""
    check_has_all("reading the state in a checkpoint, as for a savepoint,", "a newer Spark can read this checkpoint")


def check_spark_home() -> None:
    """Raise a `PlatformError` if `SPARK_HOME` is set to another version of Spark than the installed pyspark."""
    import pyspark

    home = os.environ.get("SPARK_HOME")
    for jar in Path(home).glob("jars/spark-core_*.jar") if home else ():
        version = jar.stem.partition("-core_")[2].partition("-")[2]
        if version.split(".")[:2] != pyspark.__version__.split(".")[:2]:
            raise PlatformError(
                f"SPARK_HOME is {home}, which is Spark {version}, but pyspark {pyspark.__version__} is installed: "
                "unset SPARK_HOME, or install the pyspark of that version"
            )


def names_sources() -> bool:
    """Return `True` if sources have names in a checkpoint. Older versions number them."""
    return spark_version() >= (4, 2)


def plans_with_limits() -> bool:
    """Return `True` if Spark passes the start and a limit of a batch to a source in Python, when it asks for the latest
    offset.
    """
    return spark_version() >= (4, 2)


def wakes_while_ending() -> bool:
    """Return `True` if a run with the available-now trigger plans batches for wake-ups that become due during the run.
    Older versions plan the only batch of a source in Python when the run starts.
    """
    return spark_version() >= (4, 2)


def file_manager() -> str:
    """Return the class that writes a local checkpoint without starting processes."""
    package = "" if spark_version() < (4, 1) else ".checkpointing"
    return f"{_EXECUTION}{package}.FileSystemBasedCheckpointFileManager"


def batch_logger() -> str:
    """Return the name of the logger of the class that runs batches."""
    package = "" if spark_version() < (4, 1) else ".runtime"
    return f"{_EXECUTION}{package}.MicroBatchExecution"


def prints_broken_pipes() -> bool:
    """Return `True` if a worker prints a traceback when Spark closes its connection. Older versions end silently."""
    return spark_version() >= _ALL


def logs_json() -> bool:
    """Return `True` if Spark can log JSON lines. Older versions lack log4j's layout for them."""
    return spark_version() >= _ALL


def session_settings(spark: Any) -> dict[str, str]:
    """Return the settings of a session."""
    if spark_version() < _ALL:
        return {row.key: row.value for row in spark.sql("SET").collect()}
    return dict(spark.conf.getAll)


def frame_of_arrow(spark: Any, table: Any) -> Any:
    """Return the rows of an Arrow table as a DataFrame.

    :param spark: a `SparkSession`
    :param table: a `pyarrow.Table`
    """
    if spark_version() >= _ALL:
        return spark.createDataFrame(table)
    import pyarrow as pa
    from pyspark.sql.pandas.types import from_arrow_schema

    packed = pa.BufferOutputStream()
    with pa.ipc.new_stream(packed, table.schema) as stream:
        stream.write_table(table)
    frame = spark.createDataFrame([(packed.getvalue().to_pybytes(),)], "packed binary")
    return frame.mapInArrow(_unpacked, from_arrow_schema(table.schema, prefer_timestamp_ntz=True))


def _unpacked(batches: Iterable[Any]) -> Iterator[Any]:
    import pyarrow as pa

    for batch in batches:
        for packed in batch.column(0):
            yield from pa.ipc.open_stream(packed.as_py())
