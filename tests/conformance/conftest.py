from collections.abc import Callable, Iterator
from typing import Any

import pytest

from amadou import Job
from amadou_runtime import TestRun
from amadou_runtime.spark import checkpoint
from amadou_runtime.spark.session import check_log_store
from amadou_runtime.testing import spark_engine

MakeRun = Callable[..., TestRun]


@pytest.fixture(
    params=["embedded", pytest.param("groups", marks=pytest.mark.spark), pytest.param("log", marks=pytest.mark.spark)]
)
def engine(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """The name of an engine: a rule must hold on each, and on Spark on each store."""
    if request.param == "embedded":
        return "embedded"
    request.getfixturevalue("spark")
    if request.param == "log":
        check_log_store()
    for module in (checkpoint, spark_engine):
        monkeypatch.setattr(module, "store_of", lambda job: request.param)
    return "spark"


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
