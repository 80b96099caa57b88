"""What the sinks for tables need of Spark: its session, the columns of a table, and its errors in one line."""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any, Final

from amadou.errors import SinkError
from amadou.remote_files import advice_on, java_message

_ADVICE: Final = (
    (
        r"REQUIRES_SINGLE_PART_NAMESPACE|Couldn't find a catalog|CATALOG_NOT_FOUND",
        "the name's catalog is not known to Spark: correct the name, or set --conf spark.sql.catalog.NAME=CLASS",
    ),
    (r"SCHEMA_NOT_FOUND|NoSuchNamespace|NoSuchDatabase", "create the schema, or correct the table's name"),
    (
        r"CANNOT_CREATE_LOG_PATH|Mkdirs failed|NotAuthorized|INSUFFICIENT_PERMISSIONS",
        "check that the run's user may write there",
    ),
    (
        r"NoSuchMethodError|NoClassDefFoundError|NoSuchFieldError|AbstractMethodError|IncompatibleClassChangeError",
        "the package was made for another version of Spark: use the package for Spark {version}",
    ),
)


def running_spark(sink: str) -> Any:
    """Return the running `SparkSession`: in a commit, the session of the query.

    :param sink: description of the sink, for the error
    :raises SinkError: there is no session
    """
    try:
        from pyspark import SparkContext
        from pyspark.sql import SparkSession
    except ImportError as error:
        raise SinkError(f"{sink} needs pyspark and pyarrow: run pip install 'amadou[spark]'") from error
    if SparkContext._active_spark_context is None:
        raise SinkError(f"{sink} needs Spark: run the job with engine='spark', or give the port a different sink")
    return SparkSession.getActiveSession() or SparkSession.builder.getOrCreate()


def spark_release(spark: Any) -> str:
    """Return the part of Spark's version that the names of packages contain, such as ``4.1``."""
    return ".".join(spark.version.split(".")[:2])


def scala_release(spark: Any) -> str:
    """Return the part of Scala's version that the names of packages contain, such as ``2.13``."""
    return ".".join(spark._jvm.scala.util.Properties.versionNumberString().split(".")[:2])


@contextmanager
def explained(spark: Any, problem: str, advice: Sequence[tuple[str, str]]) -> Iterator[None]:
    """Turn an error of Spark into a `SinkError` of one line.

    :param problem: what failed, for the beginning of the message
    :param advice: pairs of a pattern of Spark's errors, and what to do, of this table format
    """
    try:
        yield
    except SinkError:
        raise
    except Exception as error:  # pyspark and py4j raise many types
        reason = java_message(error).rstrip(".: ")
        matching = partial(_matching, reason, spark_release(spark))
        what_to_do = matching(advice) or advice_on(_with_causes(error)) or matching(_ADVICE)
        raise SinkError(": ".join(filter(None, (problem, reason, what_to_do)))) from error


def _matching(reason: str, version: str, advice: Sequence[tuple[str, str]]) -> str | None:
    found = (what_to_do for pattern, what_to_do in advice if re.search(pattern, reason))
    return next((what_to_do.format(version=version) for what_to_do in found), None)


def _with_causes(error: Any) -> str:
    """Return the messages of an error and of its causes in Java."""
    java, messages = getattr(error, "_origin", None) or getattr(error, "java_exception", None), [java_message(error)]
    while java is not None:
        messages.append(str(java.toString()).partition("\n")[0])
        java = java.getCause()
    return "\n".join(messages)


def check_columns(
    wanted: Any, table: Any, problem: str, add_column: Callable[[str], str], *, can_add: bool = False
) -> None:
    """Check that a table has the columns of a port's type. The table can have more columns.

    :param wanted: the `StructType` of the port's type
    :param table: the `StructType` of the table
    :param problem: what does not fit, for the beginning of the message
    :param add_column: function that returns the statement which adds the columns in its argument
    :param can_add: `True` if the sink adds missing columns
    :raises SinkError: a column is missing, or has another type
    """
    existing: Mapping[str, str] = {field.name.lower(): field.dataType.simpleString() for field in table}
    needed = {field.name: field.dataType.simpleString() for field in wanted}
    missing = {name: type_ for name, type_ in needed.items() if name.lower() not in existing}
    if missing and not can_add:
        columns = ", ".join(f"`{name}` {type_.upper()}" for name, type_ in missing.items())
        raise SinkError(f"{problem}: the table has no column {', '.join(missing)}: {add_column(columns)}")
    for name, type_ in needed.items():
        found = existing.get(name.lower(), type_)
        if found != type_:
            raise SinkError(
                f"{problem}: the column {name} is {found.upper()}, but the field needs {type_.upper()}: change the "
                "field's type, or write to another table"
            )
