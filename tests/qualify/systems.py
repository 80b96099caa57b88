"""The systems that a run reads from and writes to: services, a cluster, remote file systems."""

import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit
from uuid import uuid4

import psycopg
import pyspark
from attrs import field, frozen
from tests.services import KafkaLogin, Storage, bucket, mounted, need
from tests.spark.clusters import Cluster

from amadou.remote_files import RemoteDirectory

SPARK_HOME = Path(pyspark.__file__).parent
QUIET = {"spark.ui.enabled": "false"}


@frozen
class Systems:
    """Where a run reads and writes.

    :param kafka: the broker, as it is reached without a login
    :param postgres: a database, with name and password
    :param remote: a directory of a remote file system for the source, the sinks and the checkpoint
    :param remote_url: the URL of this directory
    :param conf: Spark's settings
    :param cluster: `None` for a local master
    :param launcher: see `tests.spark.programs.program`, as are `options`
    :param environment: variables of the program
    :param disk: where checkpoint and outputs are, if not in the run's own directory
    """

    kafka: str = ""
    login: KafkaLogin | None = None
    postgres: str = ""
    remote: RemoteDirectory | None = None
    remote_url: str = ""
    conf: Mapping[str, str] = field(factory=dict)
    cluster: Cluster | None = None
    launcher: Sequence[str] = ()
    options: Sequence[str] = ()
    environment: Mapping[str, str] = field(factory=dict)
    disk: Path | None = None


def shared_kafka() -> dict[str, Any]:
    """Settings of a run on the broker that all tests share."""
    login = KafkaLogin(*(need("Kafka", f"AMADOU_KAFKA{name}") for name in ("_SASL", "_USER", "_PASSWORD")))
    return {"kafka": need("Kafka", "AMADOU_KAFKA"), "login": login}


@contextmanager
def new_database() -> Iterator[str]:
    """The URL of a new PostgreSQL database, with the name and password of a superuser."""
    server, name = need("PostgreSQL", "AMADOU_POSTGRES"), f"qualify_{uuid4().hex}"
    with psycopg.connect(server, autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {name}")
    try:
        yield urlsplit(server)._replace(path=f"/{name}").geturl()
    finally:
        with psycopg.connect(server, autocommit=True) as connection:
            connection.execute(f"DROP DATABASE {name} WITH (FORCE)")


def on_cluster(made: Cluster) -> dict[str, Any]:
    """Settings of a run on a cluster."""
    java = {"spark.executor.extraJavaOptions": os.environ.get("SPARK_SUBMIT_OPTS", "")}
    return {
        "cluster": made,
        "launcher": [sys.executable],
        "options": ["--master", made.url],
        "conf": {"spark.executor.memory": "800m", "spark.driver.host": "127.0.0.1", **java, **QUIET},
        "environment": {"SPARK_HOME": str(SPARK_HOME), "SPARK_LOCAL_IP": "127.0.0.1"},
    }


def storage_of(on: str, directory: Path) -> Storage:
    """A new directory on `hdfs`, on `s3`, or on a file system that can replace no file (`other`)."""
    name = f"qualify-{uuid4().hex[:12]}"
    if on == "other":
        return mounted("other", (directory / name).as_uri())
    if on == "hdfs":
        return Storage(f"{need('HDFS', 'AMADOU_HDFS')}/{name}", {})
    of = bucket()
    return Storage(f"s3a://{of.name}/{name}", of.spark_conf)


def on_remote(storage: Storage, spark: Any) -> dict[str, Any]:
    """Settings of a run whose files are in a remote file system.

    :param spark: a session with which this process reads and writes there
    """
    return {"remote": storage.opened(spark), "remote_url": storage.directory, "conf": storage.conf}
