"""Creates Spark sessions with the settings that amadou needs."""

import importlib.util
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
from contextlib import nullcontext
from pathlib import Path
from types import MappingProxyType
from typing import Any

from amadou.errors import PlatformError
from amadou_runtime.spark.files import local_path
from amadou_runtime.spark.java import without_incubator_modules
from amadou_runtime.spark.versions import batch_logger, check_spark_version, file_manager

JAVA_VERSIONS = (17, 21)
TEST_MASTER = "local[*,1]"
"""Spark's master URL for test runs. Tasks are not retried: a retry would repeat a simulated crash (`TestRun.crash`)."""

_ROCKSDB = "spark.sql.streaming.stateStore.rocksdb"
_SQL_SETTINGS = {
    "spark.sql.streaming.stateStore.providerClass": (
        "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
    ),
    f"{_ROCKSDB}.changelogCheckpointing.enabled": "true",
    "spark.sql.session.timeZone": "UTC",
    # Each Arrow batch costs one pass of the keying loop and one row per key range: fewer batches are cheaper.
    "spark.sql.execution.arrow.maxRecordsPerBatch": "100000",
    # Spark's operators process few but large rows here; generating code for these operators took 20 ms of every batch.
    "spark.sql.codegen.wholeStage": "false",
    # Splits a batch's files evenly across the cores. With Spark's default, one of two cores got two thirds of 16 MB;
    # with zero, a single leftover byte became a separate task.
    "spark.sql.files.openCostInBytes": "4096",
}
_FILE_MANAGER = "spark.sql.streaming.checkpointFileManagerClass"
_LAUNCH_SETTINGS = {
    "spark.ui.showConsoleProgress": "false",
    "spark.python.worker.reuse": "true",
    # Over TCP, the end of a task's data waited 40 ms for an acknowledgement, twice in every batch.
    "spark.python.unix.domain.socket.enabled": "true",
}


def session(app_name: str, *, master: str | None = None, conf: Mapping[str, str] = MappingProxyType({})) -> Any:
    """Return the running `SparkSession`, or create one with amadou's settings.

    :param app_name: the application's name
    :param master: Spark's master URL; by default the URL that `spark-submit` sets, or `local[*]` without `spark-submit`
    :param conf: additional Spark settings, which override amadou's settings
    :raises PlatformError: pyspark, pandas or pyarrow is not installed, no Java that Spark supports was found,
        or Spark cannot start
    """
    check_pyspark()
    from pyspark.sql import SparkSession

    submitted = "PYSPARK_GATEWAY_PORT" in os.environ
    launches = SparkSession.getActiveSession() is None and not submitted
    java = check_java() if launches else None
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    builder = SparkSession.builder.appName(app_name)
    settings = {**_LAUNCH_SETTINGS, **conf}
    master = settings.get("spark.master") or master or (None if submitted else "local[*]")
    if master is not None:  # otherwise spark-submit sets it
        settings["spark.master"] = _with_retries(master, settings.get("spark.task.maxFailures", "4"))
    if not submitted:
        log = Path(__file__).absolute().with_name("log4j2.properties").as_uri()
        # Java reads these options before the user's spark.driver.extraJavaOptions, which therefore take precedence.
        default = settings.get("spark.driver.defaultJavaOptions", "")
        settings["spark.driver.defaultJavaOptions"] = f"-Dlog4j2.configurationFile={log} {default}".rstrip()
    for name, value in settings.items():
        builder = builder.config(name, value)
    try:
        with nullcontext() if java is None else without_incubator_modules(java):
            spark = builder.getOrCreate()
    except Exception as error:  # py4j and pyspark raise many kinds of errors here
        raise PlatformError(f"Spark cannot start: {error}") from error
    _import_wheels(spark.sparkContext)
    return spark


def _with_retries(master: str, tries: str) -> str:
    """Return Spark's master URL, with `tries` attempts per task if the URL is local and does not set the number of
    attempts. By default, a local master attempts each task only once, so the loss of a single worker would end the run.
    """
    local = re.fullmatch(r"local(?:\[([^,\]]+)\])?", master)
    return master if local is None else f"local[{local[1] or 1},{tries}]"


def _import_wheels(context: Any) -> None:
    """Let workers import modules from the wheels in `--py-files`. Spark sends wheels to the workers, but does not add
    them to the import path.
    """
    for path in context.getConf().get("spark.submit.pyFiles", "").split(","):
        name = path.rpartition("/")[2]
        if name.endswith(".whl") and name not in context._python_includes:
            context._python_includes.append(name)


def own_session(spark: Any, key_groups: int, checkpoint: str, conf: Mapping[str, str]) -> Any:
    """Create a separate session for one query. The user's settings override amadou's settings.

    :param conf: settings for this query, which override all other settings
    """
    own = spark.newSession()
    given = {**dict(spark.sparkContext.getConf().getAll()), **dict(spark.conf.getAll), **conf}
    # More partitions than cores slow down a batch; fewer leave cores idle. A checkpoint's first run fixes the number.
    partitions = str(min(key_groups, spark.sparkContext.defaultParallelism))
    settings = {**_SQL_SETTINGS, "spark.sql.shuffle.partitions": partitions}
    if local_path(own, checkpoint) is not None:
        # By default, Spark starts a process for each access to a local file: this costs 20 ms per log in every batch.
        settings[_FILE_MANAGER] = file_manager()
    for name, value in {**settings, **given}.items():
        if name in settings or (name.startswith("spark.sql.") and own.conf.isModifiable(name)):
            own.conf.set(name, value)
    log4j = spark._jvm.org.apache.logging.log4j
    # The run's error already reports why a query ended.
    log4j.core.config.Configurator.setLevel(batch_logger(), log4j.Level.OFF)
    return own


def partitions_of(own: Any) -> int:
    """Return the number of shuffle partitions of a session from `own_session`."""
    return int(own.conf.get("spark.sql.shuffle.partitions"))


def check_pyspark() -> None:
    """Raise a `PlatformError` unless pyspark, pandas and pyarrow are installed in a supported version."""
    _check_installed("the Spark engine", "pyspark", "pandas", "pyarrow")
    check_spark_version()


def check_log_store() -> None:
    """Raise a `PlatformError` unless the packages that the log store needs are installed."""
    _check_installed('the store "log"', "lmdb", "google.protobuf")


def _check_installed(what: str, *modules: str) -> None:
    missing = [name for name in modules if not _is_installed(name)]
    if missing:
        raise PlatformError(f"{what} needs {', '.join(missing)}: run pip install 'amadou[spark]'")


def _is_installed(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except ModuleNotFoundError:  # of the parent package
        return False


def check_java() -> str:
    """Return the path of the Java executable that starts Spark.

    :raises PlatformError: no Java that Spark supports was found
    """
    wanted = " or ".join(map(str, JAVA_VERSIONS))
    home = os.environ.get("JAVA_HOME")
    java = str(Path(home) / "bin" / "java") if home else shutil.which("java")
    advice = f"install Java {wanted} (on Debian: apt-get install openjdk-17-jre-headless) or point JAVA_HOME to it"
    if java is None:
        raise PlatformError(f"no Java was found, but Spark needs Java {wanted}: {advice}")
    try:
        output = subprocess.run([java, "-version"], capture_output=True, text=True, check=False, timeout=60)
    except OSError as error:
        raise PlatformError(f"{java} cannot be started ({error}): {advice}") from error
    found = re.search(r'version "(?:1\.)?(\d+)', output.stderr + output.stdout)
    version = int(found.group(1)) if found else None
    if version not in JAVA_VERSIONS:
        raise PlatformError(f"the version of {java} is {version or 'unknown'}, but Spark needs Java {wanted}: {advice}")
    return java
