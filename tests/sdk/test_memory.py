import pickle
from typing import Any

from amadou import MemorySink, MemorySource, SinkBatch, codec_for


def batch(number: int, run: str = "run", port: str = "port") -> SinkBatch:
    return SinkBatch(run, "job", port, number, codec_for(tuple[int, str]))


def bring(sink: MemorySink, into: SinkBatch, *parts: list[Any]) -> None:
    """Write and commit a batch as an engine does."""
    finished = []
    for number, values in enumerate(parts):
        writer = sink.open(into, f"{number:05}")
        writer.write([into.codec.encode(value) for value in values])
        part = writer.finish()
        finished += [] if part is None else [part]
    sink.commit(into, finished)


def test_a_source_gives_its_records_in_their_order() -> None:
    source = MemorySource(iter([3, 1]))
    source.add(2, 5)
    assert source.records() == [3, 1, 2, 5]
    assert source.bounded
    assert repr(source) == "MemorySource(4 records)"


def test_a_source_hands_out_a_list_of_its_own() -> None:
    source = MemorySource([1])
    source.records().append(2)
    assert source.records() == [1]


def test_a_sink_keeps_values_by_batch_and_part() -> None:
    sink = MemorySink()
    bring(sink, batch(0), [(1, "a")], [(2, "b")])
    bring(sink, batch(1))
    bring(sink, batch(2), [(3, "c")])
    assert sink.records == [(1, "a"), (2, "b"), (3, "c")]
    assert repr(sink) == "MemorySink(3 records)"


def test_a_batch_that_is_played_again_leaves_no_duplicate() -> None:
    sink = MemorySink()
    for _ in range(2):
        bring(sink, batch(0), [(1, "a")])
        bring(sink, batch(1), [(2, "b")])
    assert sink.records == [(1, "a"), (2, "b")]


def test_two_runs_do_not_overwrite_each_other() -> None:
    sink = MemorySink()
    bring(sink, batch(0, "first"), [(1, "a")])
    bring(sink, batch(0, "second"), [(1, "a")])
    assert sink.records == [(1, "a"), (1, "a")]
    sink.clear()
    assert sink.records == []


def test_what_was_not_committed_is_not_seen() -> None:
    sink = MemorySink()
    writer = sink.open(batch(0), "00000")
    writer.write([[1, "a"]])
    writer.abort()
    assert sink.records == []


def test_what_was_collected_does_not_travel_with_the_sink() -> None:
    sink = MemorySink()
    bring(sink, batch(0), [(1, "a")])
    assert pickle.loads(pickle.dumps(sink)).records == []
