"""The engines on which scripts are run: the embedded one on each store, and Spark on each store."""

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from tests.conformance.conftest import ON_SPARK
from tests.conformance.stores import IN_PROCESS, embedded_on
from tests.qualify.fuzz.scripts import Script

from amadou_runtime.testing.test_run import defaults

STORES = {"embedded": IN_PROCESS, "spark": tuple(ON_SPARK), "both": (*IN_PROCESS, *ON_SPARK)}
"""The stores of each choice of an engine."""
IN_MEMORY = Path("/dev/shm")


@contextmanager
def files_in_memory() -> Iterator[None]:
    """Temporary files are in memory, where there is a directory for it: views of logs are many small files."""
    before = tempfile.tempdir
    if IN_MEMORY.is_dir():
        tempfile.tempdir = str(IN_MEMORY)
    try:
        yield
    finally:
        tempfile.tempdir = before


def is_on_spark(store: str) -> bool:
    return store in ON_SPARK


def can_run(store: str, script: Script) -> bool:
    """Whether a store can have the stages of a script; see `ON_SPARK`."""
    return store != "spark-groups" or len(script.stages) == 1


@contextmanager
def engine_on(store: str, spark: Any) -> Iterator[dict[str, Any]]:
    """Test runs in this block have their state on a store. Yield the arguments of `TestRun`.

    :param spark: the session; only needed for stores on Spark
    """
    if not is_on_spark(store):
        with files_in_memory(), embedded_on(store):
            yield {"engine": "embedded"}
        return
    from amadou_runtime.testing.spark_engine import SparkEngine

    before = defaults.spark_engine
    defaults.spark_engine = partial(SparkEngine, **ON_SPARK[store])
    try:
        yield {"engine": "spark", "spark": spark}
    finally:
        defaults.spark_engine = before
