"""The Spark engine. In `amadou_runtime`, only this package imports pyspark, and only when the engine is used."""

from amadou_runtime.spark.query import start
from amadou_runtime.spark.running_job import RunningJob
from amadou_runtime.spark.session import session

__all__ = ["RunningJob", "session", "start"]
