"""Kafka, the schema registry, PostgreSQL, HDFS and S3 as `scripts/services` runs them."""

import json
import os
import shlex
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import Any, NoReturn
from urllib.parse import urlsplit
from uuid import uuid4

import attrs
import pytest

from amadou.remote_files import RemoteDirectory

SCRIPT = Path(__file__).resolve().parent.parent / "scripts" / "services"


def unavailable(reason: str) -> NoReturn:
    """Skips the test that needs what is not there; fails it in CI, which must have everything."""
    if os.environ.get("CI") == "true":
        pytest.fail(reason, pytrace=False)
    pytest.skip(reason)


def need(service: str, variable: str) -> str:
    """Return the address that `scripts/services` or `scripts/test` has set; skip the test if neither has."""
    value = os.environ.get(variable)
    if not value:
        unavailable(f"{service} is not there: run scripts/services start and source .services/env, or run scripts/test")
    return value


@attrs.frozen
class KafkaLogin:
    address: str
    user: str
    password: str


def kafka_login() -> KafkaLogin:
    """The broker that all tests share, as it is reached with SASL PLAIN over plain text."""
    return KafkaLogin(*(need("Kafka", f"AMADOU_KAFKA{name}") for name in ("_SASL", "_USER", "_PASSWORD")))


@contextmanager
def new_database() -> Iterator[str]:
    """The URL of a new PostgreSQL database, with the name and password of a superuser. The database is dropped at the
    end.
    """
    import psycopg

    server, name = need("PostgreSQL", "AMADOU_POSTGRES"), f"test_{uuid4().hex}"
    with psycopg.connect(server, autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {name}")
    try:
        yield urlsplit(server)._replace(path=f"/{name}").geturl()
    finally:
        with psycopg.connect(server, autocommit=True) as connection:
            connection.execute(f"DROP DATABASE {name} WITH (FORCE)")


@attrs.frozen
class Bucket:
    """A bucket of a server with the S3 API.

    :param url: the server's URL
    :param name: the bucket's name
    :param key: login that may read and write the bucket
    :param secret: the login's secret
    :param jars: the jars that Spark needs for `s3a://` paths, separated by commas
    """

    url: str
    name: str
    key: str
    secret: str
    jars: str

    @property
    def spark_conf(self) -> dict[str, str]:
        """Settings with which Spark reads and writes `s3a://` paths in the bucket."""
        s3a = {
            "endpoint": self.url,
            "access.key": self.key,
            "secret.key": self.secret,
            "path.style.access": "true",
            "connection.ssl.enabled": "false",
        }
        return {"spark.jars": self.jars, **{f"spark.hadoop.fs.s3a.{name}": value for name, value in s3a.items()}}


def bucket() -> Bucket:
    """The bucket that all tests share."""
    return Bucket(*(need("S3", f"AMADOU_S3{name}") for name in ("", "_BUCKET", "_KEY", "_SECRET", "_JARS")))


@attrs.frozen
class Storage:
    """A directory in a file system of Spark, as a URI.

    :param conf: Spark's settings for it
    """

    directory: str
    conf: dict[str, str]

    def opened(self, spark: Any) -> RemoteDirectory:
        for name, value in self.conf.items():
            spark._jsc.hadoopConfiguration().set(name.removeprefix("spark.hadoop."), value)
        return RemoteDirectory(self.directory, spark.sparkContext)


def mounted(scheme: str, directory: str) -> Storage:
    """A directory, given as a URI, in another file system that is not local, as far as Hadoop tells.

    `viewfs` has an `AbstractFileSystem`. `other` has none, as file systems of some vendors.
    """
    name = uuid4().hex
    conf = {
        f"spark.hadoop.fs.viewfs.mounttable.{name}.link./data": directory,
        "spark.hadoop.fs.other.impl": "org.apache.hadoop.fs.viewfs.ViewFileSystemOverloadScheme",
    }
    return Storage(f"{scheme}://{name}/data", conf)


def new_storage(kind: str, directory: Path) -> Storage:
    """A new directory on `hdfs`, on `s3`, or on a file system that can replace no file (`other`).

    :param directory: a local directory, for `other`
    """
    name = f"test-{uuid4().hex[:12]}"
    if kind == "other":
        return mounted("other", (directory / name).as_uri())
    if kind == "hdfs":
        return Storage(f"{need('HDFS', 'AMADOU_HDFS')}/{name}", {})
    of = bucket()
    return Storage(f"s3a://{of.name}/{name}", of.spark_conf)


class OwnService:
    """A service that a test may stop and start as it likes.

    :param name: the service's, as `scripts/services` has it
    :param directory: where it lives
    """

    def __init__(self, name: str, directory: Path) -> None:
        self._name = name
        self._directory = directory

    def start(self) -> None:
        """Start it at the address it had, and wait until it is ready."""
        self._do("start")

    def stop(self) -> None:
        """Stop it; its data stays."""
        self._do("stop")

    def kill(self) -> None:
        """Stop it as a power cut would."""
        pid = int((self._directory / self._name / "pid").read_text())
        os.kill(pid, signal.SIGQUIT if self._name == "postgres" else signal.SIGKILL)
        self.stop()

    def set_properties(self, properties: dict[str, Any]) -> None:
        """Set properties of Kafka's broker, for its next start."""
        file = self._directory / self._name / "settings.json"
        file.write_text(json.dumps(json.loads(file.read_text()) | {"properties": properties}))

    @property
    def address(self) -> str:
        """Host and port."""
        return self.variables["AMADOU_KAFKA"] if self._name == "kafka" else self.url.split("@")[1].split("/")[0]

    @property
    def url(self) -> str:
        """PostgreSQL's database, with user and password."""
        return self.variables["AMADOU_POSTGRES"]

    def _do(self, command: str) -> None:
        call = [sys.executable, SCRIPT, command, self._name, "--directory", self._directory]
        done = subprocess.run(call, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        assert done.returncode == 0, done.stdout

    @cached_property
    def variables(self) -> dict[str, str]:
        """The variables of the file env. They stay the same while the service is stopped."""
        words = shlex.split((self._directory / "env").read_text())
        return dict(word.split("=", 1) for word in words if word != "export")


def own_service(name: str, directory: Path) -> Iterator[OwnService]:
    service = OwnService(name, directory)
    service.start()
    yield service
    service.stop()
    shutil.rmtree(directory)
