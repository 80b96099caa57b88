"""Creates Spark sessions with the settings that amadou needs."""

import importlib.util
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Mapping
from contextlib import nullcontext
from glob import glob
from pathlib import Path
from types import MappingProxyType
from typing import Any

from amadou.errors import PlatformError
from amadou.paths import local_path
from amadou.spark_versions import (
    batch_logger,
    check_has_all,
    check_spark_home,
    check_spark_version,
    file_manager,
    logs_json,
    session_settings,
)
from amadou_runtime.formats.json_logs import EXECUTOR_LOG_FORMAT
from amadou_runtime.runs.files import is_local
from amadou_runtime.spark.java import adapted_launcher
from amadou_runtime.spark.java_output import JavaOutput
from amadou_runtime.spark.spark_connect import check_session, check_settings
from amadou_runtime.spark.spark_errors import start_errors, start_problem

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
    # Otherwise, a run that ends would plan one batch if a source does not support the trigger (Spark 4.0 and 4.1: every
    # source in Python), and no batch for the timers that this batch makes due.
    "spark.sql.streaming.triggerAvailableNowWrapper.enabled": "true",
    # Spark 4.2 and newer otherwise end the run if a lost executor makes a task run again whose output differs from that
    # of the first time, in any order. It always does: rows with a task's results contain how long the task took.
    # Each of the two settings computes the checksum.
    "spark.sql.shuffle.orderIndependentChecksum.enabled": "false",
    "spark.sql.shuffle.orderIndependentChecksum.enableFullRetryOnMismatch": "false",
}
_FILE_MANAGER = "spark.sql.streaming.checkpointFileManagerClass"
_HDFS_WAIT = "spark.hadoop.dfs.client.block.write.locateFollowingBlock"
_LAUNCH_SETTINGS = {
    "spark.ui.showConsoleProgress": "false",
    "spark.python.worker.reuse": "true",
    # Over TCP, the end of a task's data waited 40 ms for an acknowledgement, twice in every batch.
    "spark.python.unix.domain.socket.enabled": "true",
    # By default, HDFS waits 400 ms at the end of each file, and a batch writes several. The total wait is the same.
    f"{_HDFS_WAIT}.initial.delay.ms": "10",
    f"{_HDFS_WAIT}.retries": "10",
    # By default, S3A of Hadoop 3.4.3 and newer remembers each object that it has read until the process ends
    # (HADOOP-20058). Older versions ignore the setting.
    "spark.hadoop.fs.s3a.input.stream.type": "classic",
}
# The default, Java's temporary directory, is in the container's directory. Its path is too long for a socket's name.
_YARN_SETTINGS = {"spark.python.unix.domain.socket.dir": "/tmp"}


def session(app_name: str, *, master: str | None = None, conf: Mapping[str, str] = MappingProxyType({})) -> Any:
    """Return the running `SparkSession`, or create one with amadou's settings.

    :param app_name: the application's name
    :param master: Spark's master URL; by default the URL that `spark-submit` sets, or `local[*]` without `spark-submit`
    :param conf: additional Spark settings, which override amadou's settings
    :raises PlatformError: pyspark, pandas or pyarrow is not installed, no Java that Spark supports was found,
        the settings select Spark Connect, or Spark cannot start
    """
    check_pyspark()
    check_settings(master, conf)
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    submitted = "PYSPARK_GATEWAY_PORT" in os.environ
    launches = SparkSession.getActiveSession() is None and not submitted
    java = check_java() if launches else None
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    settings = _application_settings(app_name, master, conf, _submitted_conf() if submitted else None)
    builder = SparkSession.builder.appName(app_name).config(map={**settings})
    _check_jars(settings.get("spark.jars", ""))
    output = JavaOutput() if launches and SparkContext._gateway is None else None
    try:
        with nullcontext() if java is None else adapted_launcher(java, unzipped=_has_installed_pyspark(settings)):
            if output is not None:
                output.launch({"spark.app.name": app_name, **settings})
            spark = builder.getOrCreate()
    except Exception as error:  # py4j and pyspark raise many kinds of errors here
        problem = start_problem(error, list if output is None else output.end)
        raise PlatformError(f"Spark cannot start: {problem}") from error
    if output is not None:
        output.started()
    check_session(spark)
    _import_wheels(spark.sparkContext)
    return spark


def _check_jars(jars: str) -> None:
    """Raise a `PlatformError` if a local file does not exist. Spark would start without it."""
    for jar in filter(None, map(str.strip, jars.split(","))):
        path = local_path(jar)
        if re.match(r"\w+:", path) is None and not glob(path):
            raise PlatformError(f"spark.jars names {jar}, which does not exist on this machine: correct the path")


def _has_installed_pyspark(settings: Mapping[str, str]) -> bool:
    """Return `True` if Spark's workers run on this machine with this Python, and so have this pyspark."""
    python = settings.get("spark.pyspark.python", os.environ["PYSPARK_PYTHON"])
    is_local = settings.get("spark.master", "").startswith("local[")
    return is_local and python == sys.executable and "SPARK_HOME" not in os.environ


def log_options(job: str, *, as_json: bool) -> str:
    """Return the Java options for the logs of Spark's driver.

    :param job: the job's name
    :param as_json: `True` for JSON lines, if this version of Spark can log them
    """
    options, names = "", ["log4j2.properties"]
    if as_json and logs_json():
        options, names = f"-Damadou.job={shlex.quote(job)} ", [*names, "log4j2-json.properties"]
    log = ",".join(Path(__file__).absolute().with_name(name).as_uri() for name in names)
    return f"{options}-Dlog4j2.configurationFile={log}"


def _submitted_conf() -> dict[str, str]:
    """Return the settings that `spark-submit` passes to the driver."""
    from pyspark import SparkConf, SparkContext

    SparkContext._ensure_initialized()  # otherwise SparkConf does not read them
    return dict(SparkConf().getAll())


def _launch_settings(master: str, submitted_conf: Mapping[str, str]) -> dict[str, str]:
    """Return amadou's settings for a new application, except for those that `spark-submit` sets.

    :param master: Spark's master URL
    """
    settings = _LAUNCH_SETTINGS | (_YARN_SETTINGS if master == "yarn" else {})
    return {name: value for name, value in settings.items() if name not in submitted_conf}


def _application_settings(
    app_name: str, master: str | None, conf: Mapping[str, str], submitted_conf: Mapping[str, str] | None
) -> dict[str, str]:
    """Return all settings for a new application, except for those that `spark-submit` sets.

    :param submitted_conf: the settings that `spark-submit` sets; `None` without `spark-submit`
    """
    master = conf.get("spark.master") or master or ("local[*]" if submitted_conf is None else None)
    submitted = submitted_conf or {}
    settings = {**_launch_settings(master or submitted.get("spark.master", ""), submitted), **conf}
    if master is not None:  # otherwise spark-submit sets it
        settings["spark.master"] = _with_retries(master, settings.get("spark.task.maxFailures", "4"))
    if submitted_conf is None:
        # Java reads these options before the user's spark.driver.extraJavaOptions, which therefore take precedence.
        default = settings.get("spark.driver.defaultJavaOptions", "")
        options = log_options(app_name, as_json=settings.get(EXECUTOR_LOG_FORMAT) == "json")
        settings["spark.driver.defaultJavaOptions"] = f"{options} {default}".rstrip()
    return settings


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
    :raises RunError: Spark refuses a setting
    """
    with start_errors("a session with these settings"):
        return _own_session(spark, key_groups, checkpoint, conf)


def _own_session(spark: Any, key_groups: int, checkpoint: str, conf: Mapping[str, str]) -> Any:
    own = spark.newSession()
    given = {**dict(spark.sparkContext.getConf().getAll()), **session_settings(spark), **conf}
    # More partitions than cores slow down a batch; fewer leave cores idle. A checkpoint's first run fixes the number.
    partitions = str(min(key_groups, spark.sparkContext.defaultParallelism))
    settings = {**_SQL_SETTINGS, "spark.sql.shuffle.partitions": partitions}
    if is_local(own, checkpoint):
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
    check_spark_home()


def check_log_store() -> None:
    """Raise a `PlatformError` unless this version of Spark and the installed packages support the log store."""
    check_has_all('the store "log", which a job with several stages needs,', 'use the store "groups", or a newer Spark')
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
