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

from amadou import Handler, Job, KeyedEvent, MemorySource, Param, SinkSpec, Subject
from amadou.errors import SinkError
from amadou.plugins import SinkBatch
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
    """Records calls, and has a lock, which cannot be pickled."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.calls: list[tuple[list[Any], SinkBatch]] = []

    def take(self, values: list[Any], batch: SinkBatch) -> None:
        with self.lock:
            self.calls.append((values, batch))


def refuse(values: list[Any], batch: SinkBatch) -> None:
    raise OSError(f"no room for {len(values)}")


def test_function_sink_calls_its_function_with_the_values_of_a_batch() -> None:
    recorder = Recorder()
    run(job(FunctionSink(recorder.take), 1, 2), engine="embedded")
    ((values, batch),) = recorder.calls
    assert values == [Reading(1, START), Reading(2, START)]
    assert (batch.job, batch.port, batch.number) == ("readings", "readings", 0)


def test_function_sink_calls_its_function_once_with_all_parts_of_a_batch_in_order() -> None:
    recorder = Recorder()
    sink = FunctionSink(recorder.take)
    batch = SinkBatch("run", "job", "readings", 3, sink.codec(int))
    sink.commit(batch, [[1, 2], [3]])
    assert recorder.calls == [([1, 2, 3], batch)]


def test_function_sink_does_not_call_its_function_for_a_batch_without_values() -> None:
    recorder = Recorder()
    run(job(FunctionSink(recorder.take)), engine="embedded")
    assert recorder.calls == []


def test_function_sink_calls_its_function_only_at_the_commit() -> None:
    recorder = Recorder()
    sink = FunctionSink(recorder.take)
    writer = sink.open(SinkBatch("run", "job", "readings", 3, sink.codec(int)), "00000")
    writer.write([1])
    writer.finish()
    assert recorder.calls == []


def test_a_function_can_recognize_a_reprocessed_batch_by_run_and_number() -> None:
    stored: dict[tuple[str, int], list[int]] = {}

    def take(values: list[int], batch: SinkBatch) -> None:
        stored[batch.run, batch.number] = values

    sink = FunctionSink(take)
    for number in (0, 1, 1):
        sink.commit(SinkBatch("run", "job", "readings", number, sink.codec(int)), [[number]])
    assert stored == {("run", 0): [0], ("run", 1): [1]}
    assert sink.guarantee == "at-least-once"


def test_the_error_of_a_function_of_function_sink_names_function_and_batch() -> None:
    message = r"test_function_sink\.refuse failed with the values of port 'readings' in batch 0: OSError: no room for 2"
    with pytest.raises(SinkError, match=message) as caught:
        run(job(FunctionSink(refuse), 1, 2), engine="embedded")
    assert isinstance(caught.value.__cause__, OSError)
    assert "in refuse" in "".join(traceback.format_exception(caught.value))


async def waiting(values: list[Any], batch: SinkBatch) -> None: ...


def test_function_sink_with_an_async_function_is_an_error() -> None:
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
def test_function_sink_refuses_functions_without_the_parameters_values_and_batch(function: Any, why: str) -> None:
    with pytest.raises(SinkError, match=rf"FunctionSink needs function\(values, batch\), {why}"):
        FunctionSink(function)


def test_function_sink_accepts_functions_with_optional_or_unknown_parameters() -> None:
    def with_more(function: Any) -> Any:
        @functools.wraps(function)
        def called(*arguments: Any) -> Any:
            return function("more", *arguments)

        return called

    FunctionSink(print)
    FunctionSink(max)
    FunctionSink(Recorder().take)
    FunctionSink(with_more(lambda more, values, batch: None))
    FunctionSink(lambda values, batch, more=None: None)


def test_describe_and_repr_show_the_name_of_the_function_of_function_sink() -> None:
    out = io.StringIO()
    describe(job(FunctionSink(refuse)), {}, Console(file=out, width=200))
    assert f"FunctionSink({__name__}.refuse)" in out.getvalue()
    assert repr(FunctionSink(refuse)) == f"FunctionSink(function={__name__}.refuse)"


def test_the_function_of_function_sink_can_be_named_as_text(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from amadou_runtime.jobs.named_connectors import with_connectors

    (tmp_path / "recorded_here.py").write_text("calls = []\ndef take(values, batch):\n    calls.extend(values)\n")
    monkeypatch.syspath_prepend(tmp_path)
    run(
        with_connectors(job(FunctionSink(refuse), 1), {}, {"readings": ["function:recorded_here:take"]}),
        engine="embedded",
    )
    run(job(FunctionSink(Param("TAKE")), 2), engine="embedded", params={"TAKE": "recorded_here:take"})
    import recorded_here  # type: ignore[import-not-found]

    assert [reading.number for reading in recorded_here.calls] == [1, 2]
    with pytest.raises(SinkError, match="the function recorded_here:give cannot be loaded: AttributeError"):
        FunctionSink("recorded_here:give")


def test_a_pickled_function_sink_does_not_contain_its_function() -> None:
    assert "lock" not in repr(pickle.dumps(FunctionSink(Recorder().take)))
    parameter = FunctionSink(Param("TAKE"))
    assert pickle.loads(pickle.dumps(parameter)) == parameter


@pytest.mark.spark
def test_on_spark_function_sink_calls_its_function_in_the_driver(spark: Any) -> None:
    recorder = Recorder()
    sinks = [FunctionSink(recorder.take), FunctionSink(refuse)]
    with pytest.raises(SinkError, match=r"refuse failed with the values of port 'readings' in batch 0: OSError"):
        run(Job("readings", Readings(), {"in": MemorySource([1, 2])}, {"readings": sinks}))
    assert [values for values, _ in recorder.calls] == [[Reading(1, START), Reading(2, START)]]
