"""Handlers with a vectorised path: a test run compares the results of this path with those of single events."""

from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any

import pytest
from tests.conformance.conftest import MakeRun
from tests.conformance.handlers import at

from amadou import Job, Key, MemorySink, MemorySource, Subject
from amadou.components import EventColumns, KeyGroupState
from amadou.errors import AmadouError
from amadou_plugins.aggregates import Count, Sum
from amadou_plugins.windows import TumblingWindow, windowed
from amadou_runtime import run, start

TEN = timedelta(seconds=10)


def records(*numbers: int) -> list[dict[str, Any]]:
    return [{"key": f"k{number % 2}", "at": at(number), "n": number} for number in numbers]


def job(window: TumblingWindow, **settings: Any) -> Job:
    handler = windowed(key="key", timestamp="at", window=window)
    return Job("summing", handler, {"in": MemorySource()}, {"results": MemorySink()}, **settings)


class LosesEvent(TumblingWindow):
    """Loses an event on the vectorised path."""

    def add_columns(self, subject: Subject, whole: KeyGroupState, events: EventColumns) -> None:
        super().add_columns(subject, whole, events.where(value["n"] != 3 for value in events.values))


class FailsAtThree(TumblingWindow):
    """Fails on the vectorised path if one of the events is 3."""

    def add_columns(self, subject: Subject, whole: KeyGroupState, events: EventColumns) -> None:
        if any(value["n"] == 3 for value in events.values):
            raise ZeroDivisionError("three")
        super().add_columns(subject, whole, events)


class LosesWindow(TumblingWindow):
    """Loses a window on the vectorised path if it closes several."""

    def on_timers(self, subject: Subject, whole: KeyGroupState, watermark: int) -> int:
        whole.value = {pane: value for pane, value in whole.value.items() if pane != min(whole.value)} or whole.value
        return super().on_timers(subject, whole, watermark)


@pytest.mark.on_spark("classes travel")
def test_the_vectorised_path_and_the_path_per_event_give_the_same_results(test_run: MakeRun) -> None:
    run = test_run(job(TumblingWindow(TEN, Sum("n"))))
    result = run.add_records(records(1, 2, 3)).add_watermark().add_records(records(4, 12)).add_watermark(at(20)).run()
    assert [(each.key, each.value) for each in result.records("results")] == [("k0", 6), ("k1", 4), ("k0", 12)]
    assert [entry.callback for entry in result.trace] == ["on_event"] * 5 + ["window"] * 3


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        (
            LosesEvent,
            [
                r"the vectorised path of window.* differ in the state of a batch",
                "vectorised .*6",
                "per event .*6",
            ],
        ),
        (
            FailsAtThree,
            ["differ in the outcome of a batch", "vectorised +ZeroDivisionError: three", "per event +no error"],
        ),
    ],
)
def test_a_different_result_of_the_vectorised_path_is_an_error_that_shows_both_results(
    test_run: MakeRun, kind: type[TumblingWindow], message: list[str]
) -> None:
    run = test_run(job(kind(TEN, Sum("n"))))
    run.add_records(records(1, 2)).end_batch().run()
    with pytest.raises(AmadouError, match="(?s)" + ".*".join(message)) as caught:
        run.add_records(records(3, 4)).run()
    assert "VectorizedPathError" in (type(caught.value).__name__ + str(caught.value))


def test_different_closed_windows_of_the_vectorised_path_are_an_error(test_run: MakeRun) -> None:
    run = test_run(job(LosesWindow(TEN, Sum("n"))))
    with pytest.raises(AmadouError, match=r"differ in the outputs of a batch, first in entry 'results'"):
        run.add_records(records(1, 12)).add_watermark(at(20)).run()


def test_an_invalid_record_is_not_reported_as_a_difference_of_the_vectorised_path(test_run: MakeRun) -> None:
    broken = [*records(1), {"key": "k", "at": "yesterday", "n": 1}, *records(2)]
    with pytest.raises(AmadouError, match="the timestamp cannot be read") as caught:
        test_run(job(TumblingWindow(TEN, Sum("n")))).add_records(broken).run()
    assert "vectorised" not in str(caught.value)
    result = test_run(job(TumblingWindow(TEN, Count()), on_error="dead_letter")).add_records(broken).run(flush=True)
    assert [(each.key, each.value) for each in result.records("results")] == [("k0", 1), ("k1", 1)]
    assert len(result.dead_letters) == 1


def test_different_keys_of_the_vectorised_path_are_an_error(test_run: MakeRun, monkeypatch: pytest.MonkeyPatch) -> None:
    failing = job(TumblingWindow(TEN, Sum("n")))
    failing.handler.key_batch = other_keys
    with pytest.raises(AmadouError, match=r"path of key_event, used when the job runs, .* differ in the events"):
        test_run(failing).add_records(records(1, 2)).run()


def other_keys(records: list[Any]) -> tuple[list[Key], list[datetime], list[Any]]:
    return ["k" for _ in records], [record["at"] for record in records], records


@pytest.fixture(params=["embedded", pytest.param("spark", marks=pytest.mark.spark)])
def summary_of(request: pytest.FixtureRequest) -> Callable[[Job], Any]:
    def run_to_end(job: Job) -> Any:
        if request.param == "embedded":
            return run(job, engine="embedded", flush=True)
        running = start(job, request.getfixturevalue("spark"), trigger="available-now")
        running.await_termination()
        return running.summary

    return run_to_end


def test_a_run_counts_the_fallbacks_of_its_vectorised_path(summary_of: Callable[[Job], Any]) -> None:
    failing = job(FailsAtThree(TEN, Sum("n")))
    source, sink = failing.sources["in"], failing.sinks["results"]
    source.add(*records(1, 2, 3, 14))  # type: ignore[attr-defined]
    summary = summary_of(failing)
    assert summary.counts.vectorized_fallbacks == {"window": 1}
    assert "vectorized fallbacks: window 1;" in str(summary)
    first = {each.key: each.value for each in sink.records if each.start == at(0)}
    assert first == {"k0": 2, "k1": 4}  # type: ignore[union-attr]


def test_records_of_mixed_formats_are_processed_one_by_one(test_run: MakeRun) -> None:
    mixed = [b'{"key": "k", "at": "2025-01-01T00:00:01Z", "n": 1}', *records(2), {"key": "k", "at": at(3).isoformat()}]
    result = test_run(job(TumblingWindow(TEN, Count()))).add_records(mixed).run(flush=True)
    assert [(each.key, each.value) for each in result.records("results")] == [("k", 2), ("k0", 1)]
