"""The Spark engine: the only package that imports pyspark, and only when it is called."""

from amadou_runtime.spark.query import start
from amadou_runtime.spark.running_job import RunningJob
from amadou_runtime.spark.session import session

__all__ = ["RunningJob", "session", "start"]
