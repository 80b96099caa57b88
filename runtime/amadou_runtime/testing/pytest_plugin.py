"""The pytest plugin: fixtures, the `--amadou-engine` option and traces of failing tests. pytest loads the plugin
automatically.
"""

from collections.abc import Callable, Generator, Iterator
from functools import partial
from typing import Any

import pytest

from amadou.errors import AmadouError
from amadou_runtime import TestRun
from amadou_runtime.testing.test_run import ENGINES, defaults

_RUNS = 3
"""The report of a failing test shows the traces of the test's last `_RUNS` test runs, up to `_LINES` lines each."""
_LINES = 200
_runs = pytest.StashKey[list[TestRun]]()


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("amadou", "stream handlers")
    group.addoption(
        "--amadou-engine",
        choices=ENGINES,
        default="embedded",
        help="Engine for test runs that do not set engine=: embedded (the default), spark, or both. With both, a test "
        "run fails if the results of the engines differ.",
    )


def pytest_configure(config: pytest.Config) -> None:
    config.add_cleanup(partial(setattr, defaults, "engine", defaults.engine))
    defaults.engine = config.getoption("--amadou-engine")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, Any, Any]:
    before, defaults.made = defaults.made, []
    item.stash[_runs] = defaults.made
    try:
        return (yield)
    finally:
        defaults.made = before
        del item.stash[_runs]


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(item: pytest.Item) -> Generator[None, Any, Any]:
    errors = _close_all(item)  # before the teardown of fixtures that handlers may use
    try:
        torn_down = yield
    finally:
        errors += _close_all(item)  # runs that fixtures started during teardown
    if errors:
        raise errors[0]
    return torn_down


def _close_all(item: pytest.Item) -> list[AmadouError]:
    """Close the test runs that a test started, and return the errors."""
    return [error for run in item.stash[_runs] if (error := _closed(run)) is not None]


def _closed(run: TestRun) -> AmadouError | None:
    try:
        run.close()
    except AmadouError as error:
        return error
    return None


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    if report.failed:
        runs = item.stash[_runs]
        for number, run in list(enumerate(runs, start=1))[-_RUNS:]:
            report.sections.append((f"trace of test run {number}", run.trace_text(_LINES)))
    return report


@pytest.fixture
def test_run() -> Callable[..., TestRun]:
    """Function that creates a `TestRun` for a job; it takes the same arguments as `TestRun`."""
    return TestRun


@pytest.fixture(scope="session")
def spark() -> Iterator[Any]:
    """A local `SparkSession`, shared by all tests of the pytest session."""
    from amadou_runtime.spark.session import TEST_MASTER, session

    spark = session("amadou tests", master=TEST_MASTER, conf={"spark.ui.enabled": "false"})
    yield spark
    spark.stop()
