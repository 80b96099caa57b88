from collections.abc import Callable, Iterator
from typing import Any

import pytest

from amadou import Job
from amadou_runtime import TestRun

MakeRun = Callable[..., TestRun]


@pytest.fixture(params=["embedded", pytest.param("spark", marks=pytest.mark.spark)])
def engine(request: pytest.FixtureRequest) -> str:
    """The name of an engine: a rule must hold on each."""
    if request.param == "spark":
        request.getfixturevalue("spark")
    return str(request.param)


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
