import functools
import io
import pickle
import threading
import traceback
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import pytest
from attrs import frozen
from rich.console import Console

from amadou import Handler, Job, KeyedEvent, MemorySource, Param, SinkBatch, SinkSpec, Subject
from amadou.errors import SinkError
from amadou_plugins.connectors import FunctionSink
from amadou_runtime import run
from amadou_runtime.command.describe import describe

START = datetime(2025, 1, 1, tzinfo=timezone.utc)


@frozen
class Reading:
    number: int
    at: datetime


class Readings(Handler):
    readings = SinkSpec(Reading)

    def key_event(self, record: int) -> KeyedEvent[int]:
        return KeyedEvent("a", START, record)

    def on_event(self, subject: Subject, event: KeyedEvent[int]) -> None:
        self.readings.collect(subject, Reading(event.value, event.timestamp))


def job(sink: FunctionSink, *records: int) -> Job:
    return Job("readings", Readings(), {"in": MemorySource(records)}, {"readings": sink})


class Recorder:
    """Takes values, and holds what cannot travel."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.calls: list[tuple[list[Any], SinkBatch]] = []

    def take(self, values: list[Any], batch: SinkBatch) -> None:
        with self.lock:
            self.calls.append((values, batch))


def refuse(values: list[Any], batch: SinkBatch) -> None:
    raise OSError(f"no room for {len(values)}")


def test_the_function_gets_the_values_of_a_batch_as_they_were_collected() -> None:
    recorder = Recorder()
    run(job(FunctionSink(recorder.take), 1, 2), engine="embedded")
    ((values, batch),) = recorder.calls
    assert values == [Reading(1, START), Reading(2, START)]
    assert (batch.job, batch.port, batch.number) == ("readings", "readings", 0)


def test_the_parts_of_a_batch_come_in_one_call_and_in_order() -> None:
    recorder = Recorder()
    sink = FunctionSink(recorder.take)
    batch = SinkBatch("run", "job", "readings", 3, sink.codec(int))
    sink.commit(batch, [[1, 2], [3]])
    assert recorder.calls == [([1, 2, 3], batch)]


def test_a_batch_without_values_calls_nothing() -> None:
    recorder = Recorder()
    run(job(FunctionSink(recorder.take)), engine="embedded")
    assert recorder.calls == []


def test_nothing_is_called_before_the_batch_is_complete() -> None:
    recorder = Recorder()
    sink = FunctionSink(recorder.take)
    writer = sink.open(SinkBatch("run", "job", "readings", 3, sink.codec(int)), "00000")
    writer.write([1])
    writer.finish()
    assert recorder.calls == []


def test_a_function_that_knows_its_batches_makes_it_exactly_once() -> None:
    taken: dict[tuple[str, int], list[int]] = {}

    def take(values: list[int], batch: SinkBatch) -> None:
        taken[batch.run, batch.number] = values

    sink = FunctionSink(take)
    for number in (0, 1, 1):
        sink.commit(SinkBatch("run", "job", "readings", number, sink.codec(int)), [[number]])
    assert taken == {("run", 0): [0], ("run", 1): [1]}
    assert sink.guarantee == "at-least-once"


def test_a_function_that_fails_is_named_and_ends_the_run() -> None:
    told = r"test_function_sink\.refuse failed with the values of port 'readings' in batch 0: OSError: no room for 2"
    with pytest.raises(SinkError, match=told) as caught:
        run(job(FunctionSink(refuse), 1, 2), engine="embedded")
    assert isinstance(caught.value.__cause__, OSError)
    assert "in refuse" in "".join(traceback.format_exception(caught.value))


async def waiting(values: list[Any], batch: SinkBatch) -> None: ...


def test_a_function_of_which_nothing_ran_fails() -> None:
    with pytest.raises(SinkError, match=r"test_function_sink\.waiting returned a coroutine, so its code did not run"):
        run(job(FunctionSink(waiting), 1), engine="embedded")


def bare(values: list[Any]) -> None: ...


@pytest.mark.parametrize(
    ("function", "why"),
    [
        (5, "not 5"),
        ([].extend, r"but list\.extend takes \(iterable, /\)"),
        (bare, r"but .*test_function_sink\.bare takes \(values: "),
        (lambda values, batch, more: None, r"but .*<lambda> takes \(values, batch, more\)"),
    ],
)
def test_what_takes_no_values_and_batch_is_refused(function: Any, why: str) -> None:
    with pytest.raises(SinkError, match=rf"FunctionSink needs function\(values, batch\), {why}"):
        FunctionSink(function)


def test_functions_that_take_more_or_do_not_tell_are_taken() -> None:
    def with_more(function: Any) -> Any:
        @functools.wraps(function)
        def called(*given: Any) -> Any:
            return function("more", *given)

        return called

    FunctionSink(print)
    FunctionSink(max)
    FunctionSink(Recorder().take)
    FunctionSink(with_more(lambda more, values, batch: None))
    FunctionSink(lambda values, batch, more=None: None)


def test_the_function_is_shown_by_its_name() -> None:
    out = io.StringIO()
    describe(job(FunctionSink(refuse)), {}, Console(file=out, width=200))
    assert f"FunctionSink({__name__}.refuse)" in out.getvalue()
    assert repr(FunctionSink(refuse)) == f"FunctionSink(function={__name__}.refuse)"


def test_a_function_can_be_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from amadou_runtime.command.named_connectors import with_connectors

    (tmp_path / "taken_here.py").write_text("taken = []\ndef take(values, batch):\n    taken.extend(values)\n")
    monkeypatch.syspath_prepend(tmp_path)
    run(
        with_connectors(job(FunctionSink(refuse), 1), {}, {"readings": ["function:taken_here:take"]}), engine="embedded"
    )
    run(job(FunctionSink(Param("TAKE")), 2), engine="embedded", params={"TAKE": "taken_here:take"})
    import taken_here  # type: ignore[import-not-found]

    assert [reading.number for reading in taken_here.taken] == [1, 2]
    with pytest.raises(SinkError, match="the function taken_here:give cannot be loaded: AttributeError"):
        FunctionSink("taken_here:give")


def test_the_function_stays_behind_when_the_sink_travels() -> None:
    assert "lock" not in repr(pickle.dumps(FunctionSink(Recorder().take)))
    parameter = FunctionSink(Param("TAKE"))
    assert pickle.loads(pickle.dumps(parameter)) == parameter


@pytest.mark.spark
def test_on_spark_the_function_is_called_where_the_run_was_started(spark: Any) -> None:
    recorder = Recorder()
    run(job(FunctionSink(recorder.take), 1, 2))
    assert [values for values, _ in recorder.calls] == [[Reading(1, START), Reading(2, START)]]
    with pytest.raises(SinkError, match=r"refuse failed with the values of port 'readings' in batch 0: OSError"):
        run(job(FunctionSink(refuse), 1, 2))
