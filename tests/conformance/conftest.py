from collections.abc import Callable, Iterator
from typing import Any

import pytest

from amadou import Job
from amadou_runtime import TestRun

MakeRun = Callable[..., TestRun]


@pytest.fixture(params=["embedded", pytest.param("spark", marks=pytest.mark.spark)])
def test_run(request: pytest.FixtureRequest) -> Iterator[MakeRun]:
    """Makes test runs: what holds must hold on every engine."""
    made: list[TestRun] = []
    settings: dict[str, Any] = {"engine": request.param}
    if request.param == "spark":
        settings["spark"] = request.getfixturevalue("spark")

    def make(job: Job, **more: Any) -> TestRun:
        made.append(TestRun(job, **settings, **more))
        return made[-1]

    yield make
    for run in made:
        run.close()
