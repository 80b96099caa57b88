"""The Spark engine. Only this package imports pyspark, and only when it is called."""

from amadou_runtime.spark.query import RunningJob, start
from amadou_runtime.spark.session import session
from amadou_runtime.testing.spark_player import SparkPlayer

__all__ = ["RunningJob", "SparkPlayer", "session", "start"]
