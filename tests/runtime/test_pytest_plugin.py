"""The pytest plugin, in a user's suite of its own."""

from typing import Any

import pytest

from amadou_runtime.testing.test_run import defaults

pytest_plugins = ["pytester"]

SUITE = """
from datetime import datetime, timedelta, timezone

from amadou import Handler, Job, KeyedEvent, MemorySink, MemorySource, SinkSpec, ValueSpec
from amadou_runtime import TestRun

NOON = datetime(2025, 1, 1, 12, tzinfo=timezone.utc)


class Counter(Handler):
    total = ValueSpec(int, 0)
    sums = SinkSpec(tuple[str, int])

    def key_event(self, record):
        return KeyedEvent(record, NOON)

    def on_event(self, subject, event):
        state = self.total.state_for(subject)
        state.value += {step}
        if subject.key == "bad":
            raise ValueError("not this one")
        subject.set_timer(NOON + timedelta(seconds=1))
        self.sums.collect(subject, (subject.key, state.value))


    def on_timer_expired(self, subject, timestamp): ...


job = Job("counter", Counter(), {{"keys": MemorySource()}}, {{"sums": MemorySink()}})


def test_counts(test_run):
    result = test_run(job).add_records(["a", "a"]).run()
    assert result.records("sums") == [("a", 1), ("a", {expected})]


def test_explicit():
    assert TestRun(job, engine="embedded").add_record("{key}").run().keys() == ["a"]
"""


def suite(pytester: pytest.Pytester, *, step: str = "1", expected: int = 2, key: str = "a") -> None:
    pytester.makepyfile(SUITE.format(step=step, expected=expected, key=key))


def test_a_suite_runs_on_the_embedded_engine_without_output(pytester: pytest.Pytester) -> None:
    suite(pytester)
    result = pytester.runpytest_inprocess()
    result.assert_outcomes(passed=2)
    assert "trace of test run" not in result.stdout.str()


def test_a_failing_test_shows_the_trace_with_state_timers_and_outputs(pytester: pytest.Pytester) -> None:
    suite(pytester, expected=3)
    result = pytester.runpytest_inprocess()
    result.assert_outcomes(passed=1, failed=1)
    result.stdout.fnmatch_lines(
        [
            "*trace of test run 1*",
            "2025-01-01T12:00:00+00:00  on_event (keys)  key='a'",
            "    total: ∅ ⇒ 1",
            "    + timer 2025-01-01T12:00:01+00:00",
            "    → sums: ('a', 1)",
            "    total: 1 ⇒ 2",
            "    → sums: ('a', 2)",
        ]
    )


def test_a_callback_that_raises_is_in_the_trace(pytester: pytest.Pytester) -> None:
    suite(pytester, key="bad")
    result = pytester.runpytest_inprocess()
    result.assert_outcomes(passed=1, failed=1)
    result.stdout.fnmatch_lines(
        ["*trace of test run 1*", "*on_event (keys)  key='bad'", "    ✗ ValueError: not this one"]
    )


CONNECTED = """
import gc
import weakref
from datetime import datetime, timezone

import pytest

from amadou import Handler, Job, KeyedEvent, MemorySink, MemorySource, SinkSpec, ValueSpec
from amadou_runtime import TestRun

NOON = datetime(2025, 1, 1, 12, tzinfo=timezone.utc)
connections = {"open": 0, "most": 0}
runs = weakref.WeakSet()


class Connected(Handler):
    count = ValueSpec(int, 0)

    def open(self):
        connections["open"] += 1
        connections["most"] = max(connections.values())

    def key_event(self, record):
        return KeyedEvent(record, NOON)

    def on_event(self, subject, event):
        self.count.state_for(subject).value += 1

    def close(self):
        assert server, "the server has stopped"
        connections["open"] -= 1


job = Job("connected", Connected(), {"keys": MemorySource()}, {})
server = []


@pytest.fixture
def serving():
    server.append("here")
    yield
    server.clear()


@pytest.mark.usefixtures("serving")
@pytest.mark.parametrize("number", range(10))
def test_one(number):
    run = TestRun(job).add_record("a")
    assert run.run().state("count", "a") == 1
    runs.add(run)


@pytest.fixture(scope="module")
def shared():
    return TestRun(job)


@pytest.mark.usefixtures("serving")
@pytest.mark.parametrize("number", range(3))
def test_another(shared, number):
    assert shared.add_record("a").run().state("count", "a") == number + 1


def test_all_are_closed():
    gc.collect()
    assert connections == {"open": 0, "most": 1}
    assert not runs
"""


def test_each_test_closes_its_runs_before_the_teardown_of_its_fixtures(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(CONNECTED)
    pytester.runpytest_inprocess().assert_outcomes(passed=14)


TEARDOWN = """
import pytest
from test_connected import NOON, Connected, connections, job, server

from amadou_runtime import TestRun


@pytest.fixture(scope="module")
def shared():
    server.append("here")
    run = TestRun(job)
    yield run
    assert run.add_record("a").run().state("count", "a") == 3
    assert connections["open"] == 1


@pytest.fixture
def counted(shared):
    yield shared
    shared.add_record("a").run()
    {fails}


def test_first(counted):
    counted.add_record("a").run()


def test_second():
    assert connections["open"] == 0
"""


def test_runs_of_a_fixture_during_its_teardown_are_closed(pytester: pytest.Pytester) -> None:
    after = "def test_third(): assert connections['open'] == 0"
    for fails, outcome in (("", {"passed": 3}), ("raise OSError", {"passed": 3, "errors": 1})):
        pytester.makepyfile(
            test_connected=CONNECTED,
            test_teardown=TEARDOWN.format(fails=fails),
            test_after=f"from test_connected import connections\n\n\n{after}\n",
        )
        result = pytester.runpytest_inprocess("test_teardown.py", "test_after.py")
        result.assert_outcomes(**outcome)


def test_a_handler_that_fails_to_close_is_an_error_of_its_test(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(CONNECTED.replace('server.append("here")', "pass"))
    result = pytester.runpytest_inprocess("-k", "test_one and 0")
    result.assert_outcomes(passed=1, errors=1)
    result.stdout.fnmatch_lines(["*Connected.close failed: AssertionError: the server has stopped*"])


def test_help_names_the_option(pytester: pytest.Pytester) -> None:
    pytester.runpytest_inprocess("--help").stdout.fnmatch_lines(["*--amadou-engine={embedded,spark,both}*"])


@pytest.mark.spark
def test_a_suite_can_run_on_both_engines_and_fails_if_they_differ(pytester: pytest.Pytester, spark: Any) -> None:
    different = SUITE.format(step="1 if 'pyspark.worker' not in __import__('sys').modules else 5", expected=2, key="a")
    pytester.makepyfile(test_equal=SUITE.format(step="1", expected=2, key="a"), test_different=different)
    result = pytester.runpytest_inprocess("--amadou-engine=both", "-v")
    result.assert_outcomes(passed=3, failed=1)
    result.stdout.fnmatch_lines(["test_different.py::test_counts FAILED*"])
    result.stdout.fnmatch_lines(["*the engines differ in the trace of a batch, first in entry 0: on_event of 'a'*"])
    assert defaults.engine == "embedded", "the option is that of one run of pytest"
