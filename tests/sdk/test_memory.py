import pickle
from typing import Any

from amadou import MemorySink, MemorySource
from amadou.plugins import SinkBatch, codec_for


def batch(number: int, run: str = "run", port: str = "port") -> SinkBatch:
    return SinkBatch(run, "job", port, number, codec_for(tuple[int, str]))


def write_and_commit(sink: MemorySink, into: SinkBatch, *parts: list[Any]) -> None:
    """Write and commit a batch like an engine."""
    finished = []
    for number, values in enumerate(parts):
        writer = sink.open(into, f"{number:05}")
        writer.write([into.codec.encode(value) for value in values])
        part = writer.finish()
        finished += [] if part is None else [part]
    sink.commit(into, finished)


def test_a_memory_source_returns_its_records_in_order() -> None:
    source = MemorySource(iter([3, 1]))
    source.add(2, 5)
    assert source.records() == [3, 1, 2, 5]
    assert source.bounded
    assert repr(source) == "MemorySource(4 records)"


def test_changing_the_list_of_records_does_not_change_the_memory_source() -> None:
    source = MemorySource([1])
    source.records().append(2)
    assert source.records() == [1]


def test_a_memory_sink_returns_values_in_order_of_batch_and_part() -> None:
    sink = MemorySink()
    write_and_commit(sink, batch(0), [(1, "a")], [(2, "b")])
    write_and_commit(sink, batch(1))
    write_and_commit(sink, batch(2), [(3, "c")])
    assert sink.records == [(1, "a"), (2, "b"), (3, "c")]
    assert repr(sink) == "MemorySink(3 records)"


def test_a_reprocessed_batch_leaves_no_duplicates_in_a_memory_sink() -> None:
    sink = MemorySink()
    for _ in range(2):
        write_and_commit(sink, batch(0), [(1, "a")])
        write_and_commit(sink, batch(1), [(2, "b")])
    assert sink.records == [(1, "a"), (2, "b")]


def test_a_memory_sink_has_the_values_of_several_runs() -> None:
    sink = MemorySink()
    write_and_commit(sink, batch(0, "first"), [(1, "a")])
    write_and_commit(sink, batch(0, "second"), [(1, "a")])
    assert sink.records == [(1, "a"), (1, "a")]
    sink.clear()
    assert sink.records == []


def test_a_memory_sink_does_not_show_values_that_were_not_committed() -> None:
    sink = MemorySink()
    writer = sink.open(batch(0), "00000")
    writer.write([[1, "a"]])
    writer.abort()
    assert sink.records == []


def test_a_pickled_memory_sink_is_empty() -> None:
    sink = MemorySink()
    write_and_commit(sink, batch(0), [(1, "a")])
    assert pickle.loads(pickle.dumps(sink)).records == []
