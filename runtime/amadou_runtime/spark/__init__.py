"""The Spark engine. Only this package imports pyspark, and only when it is called."""

from amadou_runtime.spark._player import SparkPlayer
from amadou_runtime.spark._query import RunningJob, start
from amadou_runtime.spark._session import session

__all__ = ["RunningJob", "SparkPlayer", "session", "start"]
