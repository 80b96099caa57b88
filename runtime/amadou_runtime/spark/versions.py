"""What differs between the versions of Spark that amadou supports."""

from typing import Final

from amadou.errors import PlatformError

OLDEST: Final = (4, 0)
_EXECUTION: Final = "org.apache.spark.sql.execution.streaming"


def spark_version() -> tuple[int, int]:
    """Return the major and the minor version of the installed pyspark."""
    import pyspark

    major, minor, *_ = pyspark.__version__.split(".")
    return int(major), int(minor)


def check_spark_version() -> None:
    """Raise a `PlatformError` if the installed pyspark is too old."""
    if spark_version() < OLDEST:
        import pyspark

        oldest = ".".join(map(str, OLDEST))
        raise PlatformError(
            f"pyspark {pyspark.__version__} is installed, but amadou needs pyspark {oldest} or newer: install the "
            "version of the cluster, or choose a platform with a newer Spark"
        )


def names_sources() -> bool:
    """Return `True` if sources have names in a checkpoint. Older versions number them."""
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
