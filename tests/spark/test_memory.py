"""Windows with `storage="memory"` on real runs: restarts, a flush, a stream that falls silent."""

import os
import re
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from tests.waits import wait_for

from amadou import Handler, Job, KeyedEvent, MemorySink, MemorySource, SinkSpec, Subject
from amadou_plugins.aggregates import Sum
from amadou_plugins.connectors import LinesSource
from amadou_plugins.windows import TumblingWindow, Window, windowed
from amadou_runtime import run, start

pytestmark = pytest.mark.spark

KEYS = 40
MINUTE = timedelta(minutes=1)


def lines(second: int, keys: range = range(KEYS)) -> str:
    return "".join(f'{{"key": "secret-{key}", "at": "2025-01-01T00:00:{second:02}Z", "n": 1}}\n' for key in keys)


def end() -> str:
    return '{"key": "end", "at": "2025-01-01T00:05:00Z", "n": 1}\n'


class Feed:
    """A job that reads the files of a directory as they come.

    :param handler: `windowed`, which gives many events at a time, or one of the test's
    """

    def __init__(self, spark: Any, directory: Path, handler: Handler) -> None:
        self.sink = MemorySink()
        self._spark = spark
        self._directory = directory
        self._files = 0
        (directory / "in").mkdir()
        source = LinesSource(directory / "in", max_files_per_batch=1)
        self._job = Job("summing", handler, {"in": source}, {"results": self.sink}, idle_timeout=5)
        self.begin()

    def begin(self) -> None:
        checkpoint = str(self._directory / "checkpoint")
        self.running = start(self._job, self._spark, checkpoint=checkpoint, trigger="0 seconds")

    def bring(self, text: str) -> None:
        """Write a file and wait until it is processed."""
        before = self.running.progress.counts.events
        hidden = self._directory / "in" / ".new"
        hidden.write_text(text)
        os.replace(hidden, self._directory / "in" / f"{self._files:03}.jsonl")
        self._files += 1
        wait_for(lambda: self.running.progress.counts.events == before + text.count("\n"))
        self.running.query.processAllAvailable()

    @property
    def sums(self) -> dict[str, int]:
        return {result[0]: result[3] for result in self.sink.records}


class OneByOne(Handler):
    """As `windowed` would be, without taking many events at a time."""

    results = SinkSpec(tuple)
    window = TumblingWindow(MINUTE, Sum("n"), storage="memory")

    def __init__(self) -> None:
        self._read = summing()

    def key_event(self, record: bytes) -> Any:
        return self._read.key_event(record)

    def on_event(self, subject: Subject, event: KeyedEvent[Any]) -> None:
        self.window.add(subject, event)

    @window.on_close
    def closed(self, subject: Subject, window: Window, value: int) -> None:
        self.results.collect(subject, (window.key, window.start, window.end, value))


def summing() -> Any:
    return windowed(key="key", timestamp="at", window=TumblingWindow(MINUTE, Sum("n"), storage="memory"))


@contextmanager
def feeding(spark: Any, directory: Path, handler: Handler) -> Iterator[Feed]:
    feed = Feed(spark, directory, handler)
    try:
        yield feed
    finally:
        feed.running.stop()


@pytest.mark.qualify  # conformance/test_windows.py has this for test runs
def test_windows_in_memory_have_results_while_their_run_lasts(spark: Any, tmp_path: Path) -> None:
    with feeding(spark, tmp_path, OneByOne()) as feed:
        for second in range(3):
            feed.bring(lines(second))
        assert feed.running.progress.counts.keys == KEYS
        feed.bring(end())
        wait_for(lambda: len(feed.sink.records) == KEYS)
        assert feed.sums == {f"secret-{key}": 3 for key in range(KEYS)}
        assert feed.running.summary.counts.counters == {}


def test_windows_in_memory_are_lost_with_their_run_and_a_warning_counts_their_keys(
    spark: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with feeding(spark, tmp_path, summing()) as feed:
        feed.bring(lines(0))
        feed.running.stop()
        feed.begin()
        for second in (1, 2):
            feed.bring(lines(second, range(10)))
        feed.bring(end())
        wait_for(lambda: len(feed.sink.records) == 10)
        assert set(feed.sums.values()) == {2}
        assert feed.running.summary.counts.counters == {"window.lost": KEYS}
    assert lost_keys(caplog.text) == KEYS


@pytest.mark.qualify
def test_windows_in_memory_close_when_a_run_is_flushed(spark: Any, tmp_path: Path) -> None:
    sink = MemorySink()
    source = MemorySource([*lines(0).splitlines(), *lines(1).splitlines()])
    summary = run(Job("summing", summing(), {"in": source}, {"results": sink}), flush=True)
    assert {result[0]: result[3] for result in sink.records} == {f"secret-{key}": 2 for key in range(KEYS)}
    assert (summary.counts.counters, summary.counts.keys) == ({}, 0)


@pytest.mark.qualify  # test_idle.py has this for timers, conformance/test_windows.py without Spark
def test_windows_in_memory_close_when_the_stream_is_idle(spark: Any) -> None:
    sink = MemorySink()
    source = MemorySource(lines(59).splitlines())
    running = start(Job("summing", summing(), {"in": source}, {"results": sink}), spark, trigger="0 seconds")
    try:
        wait_for(lambda: len(sink.records) == KEYS)
        assert running.summary.counts.counters == {}
    finally:
        running.stop()


@pytest.mark.qualify  # test_idle.py has a restart of an idle stream
def test_events_that_arrive_between_runs_are_not_late(spark: Any, tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    handler = windowed(
        key="key", timestamp="at", window=TumblingWindow(timedelta(seconds=1), Sum("n"), storage="memory")
    )
    source, sink = LinesSource(tmp_path / "in"), MemorySink()
    for second in range(2):
        (tmp_path / "in" / f"{second}.jsonl").write_text(lines(second))
        job = Job("summing", handler, {"in": source}, {"results": sink}, idle_timeout=1)
        running = start(job, spark, checkpoint=str(tmp_path / "checkpoint"), trigger="available-now")
        running.await_termination()
        time.sleep(0 if second else 2.5)  # time itself is tested: longer than idle_timeout, by more than a window
    assert running.summary.counts.counters == {"window.lost": KEYS}
    assert (running.summary.counts.late, running.summary.counts.keys) == (0, KEYS)


def lost_keys(log: str) -> int:
    """The number of keys that warnings count as lost."""
    return sum(map(int, re.findall(r"window lost its in-memory state for (\d+) keys", log)))
