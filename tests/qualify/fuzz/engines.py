"""The engines on which scripts are played: the embedded one on each store, and Spark on each store."""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

from tests.conformance.conftest import ON_SPARK
from tests.conformance.stores import IN_PROCESS, embedded_on

from amadou_runtime.testing.test_run import defaults

SPARK = tuple(name for name in ON_SPARK if name != "spark-groups")
"""The store `groups` cannot have several stages."""
STORES = {"embedded": IN_PROCESS, "spark": SPARK, "both": (*IN_PROCESS, *SPARK)}
"""The stores of each choice of an engine."""


def is_on_spark(store: str) -> bool:
    return store in ON_SPARK


@contextmanager
def engine_on(store: str, spark: Any) -> Iterator[dict[str, Any]]:
    """Test runs in this block have their state on a store. Yield the arguments of `TestRun`.

    :param spark: the session; only needed for stores on Spark
    """
    if not is_on_spark(store):
        with embedded_on(store):
            yield {"engine": "embedded"}
        return
    from amadou_runtime.testing.spark_engine import SparkEngine

    before = defaults.spark_engine
    defaults.spark_engine = partial(SparkEngine, **ON_SPARK[store])
    try:
        yield {"engine": "spark", "spark": spark}
    finally:
        defaults.spark_engine = before
