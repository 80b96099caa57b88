from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from tests.conformance.stores import IN_PROCESS, embedded_on

from amadou import Job
from amadou_runtime import TestRun
from amadou_runtime.store.log.forms import ENTRY_PER_KEY, ONE_ENTRY
from amadou_runtime.testing.test_run import defaults

MakeRun = Callable[..., TestRun]
HERE = Path(__file__).parent

ON_SPARK = {
    "spark-groups": {"store": "groups"},
    "spark-log-packed": {"store": "log", "forms": ONE_ENTRY},
    "spark-log-by-key": {"store": "log", "forms": ENTRY_PER_KEY},
}
"""Stores on Spark, and the arguments of `SparkEngine`."""
ON_ANY_STORE = {
    "classes travel",
    "dead letters of workers",
    "dependencies",
    "errors of workers",
    "lookups",
    "references",
    "secrets in workers",
    "stages",
}
"""What Spark can change in the same way whatever the store is: these cases run on the log with an entry per key, and on
the other stores with `scripts/qualify`.
"""
IN_ANY_FORM = {
    "commit",
    "given state",
    "order across partitions",
    "restart",
    "values travel",
    "wake-ups",
}
"""What Spark can change in the same way however the log stores a key group: these cases run on both stores, and with
one entry for a key group of the log with `scripts/qualify`. Most tests of runs on Spark have one entry.
"""


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run each case that makes test runs on each store."""
    if "stored_in" in metafunc.fixturenames:
        has_stages = metafunc.definition.get_closest_marker("several_stages") is not None
        on_spark = [name for name in ON_SPARK if not (has_stages and name == "spark-groups")]
        marks = {name: [pytest.mark.spark] for name in on_spark}
        for name, arguments in ON_SPARK.items():
            if arguments["store"] == "log":
                marks[name].append(pytest.mark.needs_spark(4))
        params = [*IN_PROCESS, *(pytest.param(name, marks=marks[name]) for name in on_spark)]
        metafunc.parametrize("stored_in", params, indirect=True)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Leave cases on Spark to `scripts/qualify` unless a mark says what Spark can change, and how state is stored can
    matter.
    """
    for item in items:
        if isinstance(item, pytest.Function) and item.path.parent == HERE and hasattr(item, "callspec"):
            params = {value for value in item.callspec.params.values() if isinstance(value, str)}
            if params & left_out(item.get_closest_marker("on_spark")):
                item.add_marker(pytest.mark.qualify)


def left_out(mark: pytest.Mark | None) -> set[str]:
    """Return the names of the stores on which a case runs only with `scripts/qualify`."""
    if mark is None:
        return {"spark", *ON_SPARK}
    (reason,) = mark.args
    if reason in ON_ANY_STORE:
        return {"spark-groups", "spark-log-packed"}
    return {"spark-log-packed"} if reason in IN_ANY_FORM else set()


@pytest.fixture(params=["embedded", pytest.param("spark", marks=pytest.mark.spark)])
def engine(request: pytest.FixtureRequest) -> str:
    """The name of an engine, for cases with real runs."""
    if request.param == "spark":
        request.getfixturevalue("spark")
    return str(request.param)


@pytest.fixture
def stored_in(request: pytest.FixtureRequest) -> str:
    """The name of a store: a rule must hold on each."""
    return str(request.param)


@pytest.fixture
def test_run(stored_in: str, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[MakeRun]:
    """Makes test runs whose state is on a store."""
    made: list[TestRun] = []
    settings: dict[str, Any] = {"engine": "embedded"}
    if stored_in in ON_SPARK:
        from amadou_runtime.testing.spark_engine import SparkEngine

        settings = {"engine": "spark", "spark": request.getfixturevalue("spark")}
        monkeypatch.setattr(defaults, "spark_engine", partial(SparkEngine, **ON_SPARK[stored_in]))

    def make(job: Job, **more: Any) -> TestRun:
        made.append(TestRun(job, **settings, **more))
        return made[-1]

    with ExitStack() as stack:
        if stored_in in IN_PROCESS:
            stack.enter_context(embedded_on(stored_in))
        yield make
        for run in made:
            run.close()
