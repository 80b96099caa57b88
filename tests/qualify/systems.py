"""The systems that a run reads from and writes to: services, a cluster, remote file systems."""

import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyspark
from attrs import field, frozen
from tests.services import KafkaLogin, Storage, kafka_login, need
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
    return {"kafka": need("Kafka", "AMADOU_KAFKA"), "login": kafka_login()}


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


def on_remote(storage: Storage, spark: Any) -> dict[str, Any]:
    """Settings of a run whose files are in a remote file system.

    :param spark: a session with which this process reads and writes there
    """
    return {"remote": storage.opened(spark), "remote_url": storage.directory, "conf": storage.conf}
