"""The Spark engine. Only this package imports pyspark, and only when it is called."""

from amadou_runtime.spark.query import RunningJob, start
from amadou_runtime.spark.session import session

__all__ = ["RunningJob", "session", "start"]
