"""Savepoints in file systems that only Spark can access, such as HDFS and S3.

Workers have no access to Spark's file systems from Python. So tasks send the state to the driver, which uploads the
files: first the state, and last the manifest, without which a directory is not a savepoint. To read a savepoint, Spark
copies it to each machine that needs it.
"""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from amadou.errors import SavepointError
from amadou.paths import is_remote
from amadou.remote_files import RemoteDirectory
from amadou_runtime.savepoint.job_savepoint import JobSavepoint
from amadou_runtime.savepoint.manifest import MANIFEST, parsed_manifest, read_manifest, savepoint_path


def open_savepoint(spark: Any, directory: str) -> JobSavepoint:
    """Return a savepoint to read.

    :param spark: the `SparkSession`
    :param directory: the savepoint's directory, as a path or a URI
    :raises SavepointError: the directory is not a savepoint that this release can read, or cannot be read
    """
    if not is_remote(directory):
        return JobSavepoint(directory)
    from pyspark import SparkFiles

    place = directory.rstrip("/")
    copy = Path(SparkFiles.get(place.rpartition("/")[2]))
    with _explained(directory, "read"):
        manifest = RemoteDirectory(place, spark.sparkContext).read(MANIFEST)
        if manifest is None:
            raise SavepointError(directory, f"there is no {MANIFEST}: it is not a savepoint, or its copy is incomplete")
        if not copy.exists():
            spark.sparkContext.addFile(place, recursive=True)
    if (copy / MANIFEST).read_bytes() != manifest:
        why = f"this Spark session has read another savepoint named {copy.name}: use a new session, or another name"
        raise SavepointError(directory, why)
    return JobSavepoint(copy)


def savepoint_id(spark: Any, directory: str) -> str | None:
    """Return the id of a savepoint; `None` if it cannot be read, for example because it has been removed.

    :param directory: the savepoint's directory, as a path or a URI
    """
    try:
        if not is_remote(directory):
            return read_manifest(savepoint_path(directory)).id
        manifest = RemoteDirectory(directory.rstrip("/"), spark.sparkContext).read(MANIFEST)
        return None if manifest is None else parsed_manifest(manifest, directory).id
    except (SavepointError, OSError):
        return None


def remove_savepoint(spark: Any, directory: str) -> None:
    """Remove a savepoint.

    :param directory: the savepoint's directory, as a path or a URI
    :raises OSError: the directory does not exist, or cannot be removed
    """
    if is_remote(directory):
        RemoteDirectory(directory, spark.sparkContext).remove("")
    else:
        shutil.rmtree(savepoint_path(directory))


def sent_path(directory: Path) -> str:
    """Return the path of a savepoint from `open_savepoint` in the form for `received`."""
    from pyspark import SparkFiles

    root = SparkFiles.getRootDirectory()
    return str(directory.relative_to(root) if directory.is_relative_to(root) else directory.absolute())


def received(path: str) -> str:
    """Return the path of a savepoint on this machine, in a task.

    :param path: the result of `sent_path`
    """
    from pyspark import SparkFiles

    return path if path.startswith("/") else SparkFiles.get(path)


@contextmanager
def uploaded(spark: Any, directory: str) -> Iterator[Path]:
    """Yield a path that does not exist. When the block ends, the savepoint that it has written there is uploaded.

    :param directory: a new directory, as a URI
    :raises SavepointError: the directory is not empty, or cannot be written
    """
    with _explained(directory, "written"):
        remote = RemoteDirectory(directory.rstrip("/"), spark.sparkContext)
        if remote.names():
            raise SavepointError(directory, "the path is not empty: use a new directory")
    with TemporaryDirectory(prefix="amadou-savepoint-") as temporary:
        local = Path(temporary, "savepoint")
        yield local
        files = [path for path in local.rglob("*") if path.is_file()]
        with _explained(directory, "written"):
            for path in sorted(files, key=lambda path: path == local / MANIFEST):
                remote.upload(str(path), str(path.relative_to(local)))


@contextmanager
def _explained(directory: str, what: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise SavepointError(directory, f"it cannot be {what}: {error}") from error
