"""What the operator does with the chunks of a batch, which come in no order on Spark."""

from itertools import permutations

from tests.conformance.handlers import at

from amadou._wire import pack
from amadou_runtime._keying import Chunk
from amadou_runtime._operator import in_order


def chunk(source: str, order: int, *values: int) -> Chunk:
    return Chunk(source, order.to_bytes(8), pack([field for value in values for field in ("k", at(1), value)]))


def test_chunks_are_put_into_the_order_of_their_source_however_they_come() -> None:
    for chunks in permutations([chunk("s", 1, 1, 2), chunk("s", 2, 3), chunk("s", 300, 4)]):
        ((source, events),) = in_order(chunks)
        assert (source, events[2::3]) == ("s", [1, 2, 3, 4])


def test_chunks_of_several_sources_are_merged_however_they_come() -> None:
    for chunks in permutations([chunk("b", 1, 3), chunk("a", 1, 1), chunk("a", 2, 2)]):
        assert [(source, events[2::3]) for source, events in in_order(chunks)] == [("a", [1, 2]), ("b", [3])]
