"""The pytest plugin, in a user's suite of its own."""

import pytest

pytest_plugins = ["pytester"]

SUITE = """
from datetime import UTC, datetime, timedelta

from amadou import Handler, Job, KeyedEvent, MemorySink, MemorySource, SinkSpec, ValueSpec
from amadou_runtime import TestRun

NOON = datetime(2025, 1, 1, 12, tzinfo=UTC)


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


def test_a_suite_plays_on_the_embedded_engine_and_says_nothing(pytester: pytest.Pytester) -> None:
    suite(pytester)
    result = pytester.runpytest_subprocess()
    result.assert_outcomes(passed=2)
    assert "trace of test run" not in result.stdout.str()


def test_a_failing_test_shows_the_trace_with_state_timers_and_outputs(pytester: pytest.Pytester) -> None:
    suite(pytester, expected=3)
    result = pytester.runpytest_subprocess()
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
    result = pytester.runpytest_subprocess()
    result.assert_outcomes(passed=1, failed=1)
    result.stdout.fnmatch_lines(
        ["*trace of test run 1*", "*on_event (keys)  key='bad'", "    ✗ ValueError: not this one"]
    )


def test_help_names_the_option(pytester: pytest.Pytester) -> None:
    pytester.runpytest_subprocess("--help").stdout.fnmatch_lines(["*--amadou-engine={embedded,spark,both}*"])


@pytest.mark.spark
def test_a_suite_can_be_played_on_both_engines_which_fails_where_they_differ(pytester: pytest.Pytester) -> None:
    suite(pytester)
    pytester.runpytest_subprocess("--amadou-engine=both").assert_outcomes(passed=2)
    suite(pytester, step="1 if 'pyspark.worker' not in __import__('sys').modules else 5")
    result = pytester.runpytest_subprocess("--amadou-engine=both")
    result.assert_outcomes(passed=1, failed=1)
    result.stdout.fnmatch_lines(["*the engines differ in the trace of a batch:*"])
