"""Packed data that would become many objects is refused before it is unpacked."""

import tracemalloc
import zlib

import msgpack
import pyarrow as pa
import pytest

from amadou.engine import unpack_stored
from amadou_runtime.formats.compressed import unpack_compressed
from amadou_runtime.formats.inflating import inflated
from amadou_runtime.formats.unpacked_size import _Scan, unpacks_within

ITEMS = (
    b"\x80",
    b"\x90",
    b"\x81\x00\x00",
    b"\x91\x00",
    b"\xd4\x02\x90",
    b"\xa2ab",
    b"\xcd\x03\xe8",
    b"\xe0",
    b"\xd6\xff" + bytes(4),
    b"\xc7\x05\x09\x92\xa1x\x80\xc0",
    b"\x86" + b"".join(bytes((key, 0)) for key in range(6)),
    b"\xde\x00\x56" + b"".join(bytes((key, 0)) for key in range(86)),
    b"\xa4\xf0\x9f\x98\x80",
)


def many(item: bytes, number: int) -> bytes:
    return b"\xdd" + number.to_bytes(4, "big") + item * number


@pytest.mark.parametrize(("item", "is_inside"), [*((item, False) for item in ITEMS), (b"\x91\x00", True)])
def test_what_becomes_many_objects_is_refused(item: bytes, *, is_inside: bool) -> None:
    packed = many(item, 5_000_000 // len(item))
    packed = msgpack.packb({"k": packed}) if is_inside else packed
    with pytest.raises(ValueError, match=r"its objects would take more than 67,108,864 bytes of memory"):
        inflated(zlib.compress(packed))


@pytest.mark.parametrize("item", [each for each in ITEMS if each[0] not in (0xC7,)])
def test_the_estimated_memory_is_near_the_real_one(item: bytes) -> None:
    packed = many(item, 20_000 // len(item))
    tracemalloc.start()
    try:
        value = unpack_stored(packed)
        size, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert value
    scan = _Scan(packed, 1 << 40)
    assert scan.is_within()
    assert 0.75 * size < (1 << 40) - scan._left < 2.5 * size
    assert (1 << 40) - scan._left <= 100 * len(packed) + 100


def test_data_that_becomes_many_objects_is_refused_in_a_checkpoint() -> None:
    packed = many(b"\x80", 8_000_000)
    with pytest.raises(ValueError, match=r"its objects would take more than"):
        unpack_compressed(len(packed).to_bytes(8, "big") + pa.compress(packed, "lz4", asbytes=True))


@pytest.mark.parametrize("packed", [b"\xdd\xff", b"\xc7\x05", b"\xdb\xff\xff\xff\xff", b"\xc1"])
def test_data_that_nothing_can_unpack_is_left_to_the_reader(packed: bytes) -> None:
    assert unpacks_within(packed + b"\x00" * 700_000, 64 << 20)
