"""Files in the file systems that Spark accesses through Hadoop, such as HDFS and S3: for sinks and for amadou itself.

Only the driver can use them, because workers have no access to Spark's file systems from Python. Needs pyspark.
"""

import os
import re
import uuid
from collections.abc import Callable, Iterator
from functools import cached_property, partial
from pathlib import Path
from typing import Any, Final, TypeVar

__all__ = ["RemoteDirectory", "advice_on", "java_message", "running_context"]

_Result = TypeVar("_Result")
_ADVICE: Final = (
    (r'No FileSystem for scheme "[^"]*[A-Z]', "write the scheme in lower case"),
    (r'No FileSystem for scheme "s3n?"', "write s3a:// rather than s3://, which only Amazon EMR has"),
    (
        r"No FileSystem for scheme|ClassNotFoundException",
        "add the file system's package to Spark with spark.jars.packages{package}",
    ),
    (
        r"NoAuthWithAWS|NoAwsCredentials|Unable to load credentials",
        "no credentials were found: set spark.hadoop.fs.s3a.access.key and spark.hadoop.fs.s3a.secret.key, or give the "
        "machine a role",
    ),
    (
        r"Incomplete HDFS URI",
        "write the host, as in hdfs://HOST:8020/path, or set HADOOP_CONF_DIR to the directory with the cluster's files "
        "core-site.xml and hdfs-site.xml",
    ),
    (r"bucket does not exist|NoSuchBucket", "create the bucket, or correct its name"),
    (
        r"AccessDenied|AccessControlException|Forbidden|\b403\b|InvalidAccessKeyId|SignatureDoesNotMatch"
        r"|Permission denied",
        "check the credentials, and that the user {user} may read and write there",
    ),
    (
        r"ConnectException|UnknownHost|Connection refused|ConnectTimeout|Unable to connect",
        "check the address, and that the service is running",
    ),
)

_PACKAGES: Final = {"s3a": "hadoop-aws", "abfs": "hadoop-azure", "abfss": "hadoop-azure", "gs": "hadoop-gcp"}
"""Hadoop's packages by scheme. Hadoop before 3.5 has none for gs."""
_REPLACED: Final = ".amadou-replaced"
"""The end of a file's hidden name while the file is replaced."""


def running_context() -> Any:
    """Return the running `SparkContext`.

    :raises OSError: there is none
    """
    try:
        from pyspark import SparkContext
    except ImportError as error:
        raise OSError("only Spark can access this file system: run pip install 'amadou[spark]'") from error
    if SparkContext._active_spark_context is None:
        raise OSError("only Spark can access this file system: run the job with engine='spark'")
    return SparkContext._active_spark_context


def java_message(error: Exception) -> str:
    """Return the first line of the message of an error that Spark's Java process raised."""
    return f"{getattr(error, 'java_exception', error)}".strip().partition("\n")[0]


def advice_on(reason: str, package: str = "") -> str | None:
    """Return what to do about an error of one of Spark's file systems; `None` if it is not known.

    :param reason: the error's message, and those of its causes
    :param package: a text that names the package of the file system, such as ``, such as org.apache.hadoop:hadoop-aws``
    """
    for pattern, advice in _ADVICE:
        if re.search(pattern, reason):
            user = os.environ.get("HADOOP_USER_NAME") or os.environ.get("USER") or "of the run"
            return advice.format(package=package, user=user)
    return None


def _unless_missing(do: Callable[[], _Result]) -> _Result | None:
    """Return `None` if Hadoop raises an error because a file does not exist.

    To look for the file first would cost a request, and another process may remove the file in between.
    """
    try:
        return do()
    except Exception as error:  # py4j wraps all Hadoop errors
        if java_message(error).startswith("java.io.FileNotFoundException"):
            return None
        raise


def _final_name(name: str) -> str:
    return name[1:].removesuffix(_REPLACED) if name.endswith(_REPLACED) else name


class RemoteDirectory:
    """A directory in one of Spark's file systems.

    All methods raise an `OSError` of one line, which says what to do, if the file system raises an error.

    :param path: the directory, as a URI, or as an absolute path in Hadoop's default file system
    :param context: the `SparkContext`; by default the one that is running
    :raises OSError: there is no running `SparkContext`, or Spark does not know the file system
    """

    def __init__(self, path: str, context: Any = None) -> None:
        context = context or running_context()
        jvm = context._jvm
        self._hadoop = jvm.org.apache.hadoop.fs
        self._path_class = self._hadoop.Path  # finding a Java class by name takes longer than using it
        self._read = jvm.org.apache.commons.io.IOUtils.toByteArray
        self._version = jvm.org.apache.hadoop.util.VersionInfo.getVersion
        self._java_gateway = context._gateway
        self._conf = context._jsc.hadoopConfiguration()
        self.path = path
        """The directory, as a URI unless it is in the local file system."""
        self._system: Any = self._try(lambda: self._path_class(path).getFileSystem(self._conf))
        if path.startswith("/") and self.local is None:
            self.path = str(self._qualified())

    def _qualified(self) -> Any:
        return self._try(lambda: self._system.makeQualified(self._path_class(self.path)))

    @property
    def local(self) -> Path | None:
        """The path of the directory if it is in the local file system, and `None` otherwise."""
        is_local = self._try(lambda: self._system.getScheme() == "file")
        return Path(str(self._qualified().toUri().getPath())) if is_local else None

    def exists(self, name: str) -> bool:
        """Return `True` if a file or directory with this name exists."""
        return self._try(lambda: any(self._system.exists(path) for path in self._places(name)))

    def names(self, directory: str = "") -> list[str]:
        """Return the names of a directory's entries; an empty list if the directory does not exist."""
        path = self._located(directory)

        def names() -> list[str]:
            return [str(status.getPath().getName()) for status in self._system.listStatus(path)]

        return [*dict.fromkeys(map(_final_name, self._try(lambda: _unless_missing(names) or [])))]

    def read(self, name: str) -> bytes | None:
        """Return the content of a file; `None` if the file does not exist."""

        def read(path: Any) -> bytes:
            stream = self._system.open(path)
            try:
                return bytes(self._read(stream))
            finally:
                stream.close()

        contents = (_unless_missing(partial(read, path)) for path in self._places(name))
        return self._try(lambda: next((content for content in contents if content is not None), None))

    def write(self, name: str, content: bytes) -> None:
        """Write a small file. Readers never see a partly written file. An older file is replaced at once on HDFS and on
        object stores that show a file only when it is whole, such as S3. On other file systems, such as ``abfss``, the
        older file is renamed first, and the methods of this class find it under both names until the new file has its
        place, even if the process is killed. Only `move` and `download` need the file's own name.
        """

        def fill(path: Any) -> None:
            stream = self._system.create(path, True)
            stream.write(bytearray(content))
            stream.close()

        self._try(lambda: self._put(name, fill))

    def upload(self, local: str, name: str) -> None:
        """Copy a local file of any size to a file in the directory; see `write`."""
        source = self._path_class(f"file://{os.path.abspath(local)}")
        self._try(lambda: self._put(name, lambda path: self._system.copyFromLocalFile(False, True, source, path)))

    def download(self, name: str, local: str) -> None:
        """Copy a file, or a directory with all its files, to a local path that does not exist."""
        target = self._path_class(f"file://{os.path.abspath(local)}")
        self._try(lambda: self._system.copyToLocalFile(False, self._located(name), target, True))

    def remove(self, name: str) -> None:
        """Remove a file, or a directory with all files in it, if it exists."""

        def remove() -> None:
            if name and self._renames_older:  # first, because it is found if the file is missing
                self._system.delete(self._beside(name, _REPLACED), False)
            self._system.delete(self._located(name), True)

        self._try(remove)

    def move(self, name: str, to: str) -> None:
        """Move a file or a directory. On object stores, a directory moves file by file. The new name must not exist,
        unless an earlier call was interrupted: then the rest moves.
        """
        self._try(lambda: self._move(self._located(name), self._located(to)))

    def _move(self, source: Any, target: Any) -> None:
        if self._system.exists(target):
            if self._system.getFileStatus(source).isDirectory():
                for status in list(self._system.listStatus(source)):
                    self._move(status.getPath(), self._path_class(f"{target}/{status.getPath().getName()}"))
                self._system.delete(source, False)
                return
            self._system.delete(target, False)
        self._system.mkdirs(target.getParent())
        self._rename(source, target)

    def make(self) -> None:
        """Create the directory if it is missing, and check that files can be written to it."""
        probe = f".probe-{uuid.uuid4().hex}"
        self._try(lambda: self._system.mkdirs(self._path_class(self.path)))
        self.write(probe, b"")
        self.remove(probe)

    def _put(self, name: str, fill: Callable[[Any], None]) -> None:
        """Write a file and make it visible as a whole."""
        if not self.writes_partial_files:
            fill(self._located(name))
            return
        hidden = self._beside(name, f".{uuid.uuid4().hex}")
        try:
            fill(hidden)
            if self._replaces_at_once:
                self._context.rename(hidden, self._located(name), self._overwriting)
            else:
                self._replace(hidden, name)
        except Exception:
            self._system.delete(hidden, False)
            raise

    def _replace(self, hidden: Any, name: str) -> None:
        """Give a file its name. Until then, an older file keeps its name or has its hidden name; see `_places`."""
        path, older = self._located(name), self._beside(name, _REPLACED)
        if self._system.exists(path):
            self._system.delete(older, False)
            self._rename(path, older)
        self._rename(hidden, path)
        self._system.delete(older, False)

    def _rename(self, path: Any, to: Any) -> None:
        if not self._system.rename(path, to):
            raise OSError(f"cannot rename {path} to {to}")

    def _places(self, name: str) -> Iterator[Any]:
        """Yield the paths that a file can have, in the order in which to look for it; see `_replace`."""
        path = self._located(name)
        yield path
        if name and self._renames_older:
            yield self._beside(name, _REPLACED)
            yield path  # it may have been replaced in between

    @cached_property
    def writes_partial_files(self) -> bool:
        """`True` if a process that is killed in `write` or `upload` can leave the file ``.<name>.<id>``. `False` on
        object stores, where a file appears when its upload has ended, and a rename is a copy.
        """
        if self.path.startswith("gs:"):  # does not have the ability
            return False
        ability = self._hadoop.CommonPathCapabilities.ABORTABLE_STREAM
        return not self._system.hasPathCapability(self._path_class(self.path), ability)

    @cached_property
    def _renames_older(self) -> bool:
        """`False` if no file can have the hidden name that `_replace` gives it."""
        return self.writes_partial_files and not self.path.startswith("hdfs:")

    @cached_property
    def _replaces_at_once(self) -> bool:
        """`True` if a rename replaces a file at once: on HDFS, with or without ViewFS. The directory must exist."""
        return str(self._system.resolvePath(self._path_class(f"{self.path}/")).toUri().getScheme()) == "hdfs"

    @cached_property
    def _context(self) -> Any:
        """The interface of Hadoop that can replace a file by a rename. Each instance has connections of its own."""
        return self._hadoop.FileContext.getFileContext(self._path_class(self.path).toUri(), self._conf)

    @cached_property
    def _overwriting(self) -> Any:
        options = self._java_gateway.new_array(self._hadoop.Options.Rename, 1)
        options[0] = self._hadoop.Options.Rename.OVERWRITE
        return options

    def _beside(self, name: str, end: str) -> Any:
        """Return the path of a hidden file in the directory of a file."""
        return self._located(os.path.join(os.path.dirname(name), f".{os.path.basename(name)}{end}"))

    def _located(self, name: str) -> Any:
        return self._path_class(f"{self.path}/{name}" if name else self.path)

    def _try(self, do: Callable[[], _Result]) -> _Result:
        try:
            return do()
        except Exception as error:  # py4j wraps all Hadoop errors
            raise OSError(self._explained(error)) from error

    def _explained(self, error: Exception) -> str:
        """Return the first line of an error, and what to do."""
        reason = java_message(error)
        advice = advice_on(reason, self._package())
        return reason if advice is None else f"{reason}: {advice}"

    def _package(self) -> str:
        """Return a text that names the package of the file system, if it is known."""
        scheme, version = self.path.partition(":")[0], str(self._version())
        if scheme == "gs" and tuple(map(int, version.split(".")[:2])) < (3, 5):
            return ", such as com.google.cloud.bigdataoss:gcs-connector"
        return f", such as org.apache.hadoop:{_PACKAGES[scheme]}:{version}" if scheme in _PACKAGES else ""
