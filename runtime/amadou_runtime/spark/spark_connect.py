"""Refuses Spark Connect, whose sessions have no JVM in reach of this process."""

import os
from collections.abc import Mapping
from typing import Any, Final

from amadou.errors import PlatformError

_VARIABLES: Final = ("SPARK_REMOTE", "SPARK_CONNECT_MODE_ENABLED")
_ADVICE: Final = (
    "amadou needs a classic session, in the driver: run the job on a machine of the cluster, for example with "
    "spark-submit. On Databricks, use classic compute with the dedicated access mode"
)


def check_settings(master: str | None, conf: Mapping[str, str]) -> None:
    """Raise a `PlatformError` if settings make new sessions clients of Spark Connect.

    :param master: Spark's master URL, if it is set
    """
    api = conf.get("spark.api.mode", os.environ.get("SPARK_API_MODE", ""))
    found = {
        "spark.remote": "spark.remote" in conf,
        "the master": (conf.get("spark.master") or master or "").startswith("sc://"),
        "spark.api.mode (or SPARK_API_MODE)": api.lower() == "connect",
        **{name: name in os.environ for name in _VARIABLES},
    }
    for name, is_set in found.items():
        if is_set:
            raise PlatformError(f"{name} selects Spark Connect, but {_ADVICE}. Otherwise, remove this setting")


def check_session(spark: Any) -> None:
    """Raise a `PlatformError` if a session is a client of Spark Connect."""
    if type(spark).__module__.startswith("pyspark.sql.connect."):
        raise PlatformError(f"the session is a client of Spark Connect, but {_ADVICE}")
