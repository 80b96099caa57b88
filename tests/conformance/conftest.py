from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from tests.conformance.stores import stores

from amadou import Job
from amadou_runtime import TestRun
from amadou_runtime.spark.log.forms import ENTRY_PER_KEY, ONE_ENTRY
from amadou_runtime.spark.session import check_log_store
from amadou_runtime.testing.engines import EmbeddedEngine
from amadou_runtime.testing.test_run import defaults

MakeRun = Callable[..., TestRun]

IN_PROCESS = ("memory", "groups", "log-packed", "log-by-key")
"""Stores of the embedded engine; see `tests.conformance.stores`."""
ON_SPARK = {
    "spark-groups": {"store": "groups"},
    "spark-log-packed": {"store": "log", "forms": ONE_ENTRY},
    "spark-log-by-key": {"store": "log", "forms": ENTRY_PER_KEY},
}
"""Stores on Spark, and the arguments of `SparkEngine`."""


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run each case that uses an engine on each store without Spark. Cases with the mark `on_spark` also run on Spark;
    `scripts/qualify` runs all cases there.
    """
    if "stored_in" not in metafunc.fixturenames:
        return
    marks = [pytest.mark.spark]
    if metafunc.definition.get_closest_marker("on_spark") is None:
        marks.append(pytest.mark.qualify)
    params = [*IN_PROCESS, *(pytest.param(name, marks=marks) for name in ON_SPARK)]
    metafunc.parametrize("stored_in", params, indirect=True)


@pytest.fixture
def stored_in(request: pytest.FixtureRequest) -> str:
    """The name of a store: a rule must hold on each."""
    return str(request.param)


@pytest.fixture
def engine(
    stored_in: str, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> Iterator[str]:
    """The name of the engine of a store. Test runs on this engine use the store."""
    if stored_in in IN_PROCESS:
        with ExitStack() as stack:
            state_of = stores(tmp_path, stack)[stored_in]
            monkeypatch.setattr(defaults, "embedded_engine", partial(EmbeddedEngine, state_of=state_of))
            yield "embedded"
        return
    request.getfixturevalue("spark")
    from amadou_runtime.testing.spark_engine import SparkEngine

    if ON_SPARK[stored_in]["store"] == "log":
        check_log_store()
    monkeypatch.setattr(defaults, "spark_engine", partial(SparkEngine, **ON_SPARK[stored_in]))
    yield "spark"


@pytest.fixture
def test_run(engine: str, request: pytest.FixtureRequest) -> Iterator[MakeRun]:
    """Makes test runs on an engine."""
    made: list[TestRun] = []
    settings: dict[str, Any] = {"engine": engine}
    if engine == "spark":
        settings["spark"] = request.getfixturevalue("spark")

    def make(job: Job, **more: Any) -> TestRun:
        made.append(TestRun(job, **settings, **more))
        return made[-1]

    yield make
    for run in made:
        run.close()
