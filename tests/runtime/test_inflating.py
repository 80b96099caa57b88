"""Compressed data: small data cannot become large, and what amadou has compressed can be read."""

from typing import Any

import pyarrow as pa
import pytest

from amadou.engine import pack
from amadou_runtime.formats.compressed import pack_compressed, unpack_compressed
from amadou_runtime.formats.inflating import deflated, inflated
from amadou_runtime.spark.savepoints.state_files import _BLOCK, _MAGIC, UnknownFilesError, _decompressed

LARGE = [
    [{"id": 1, "name": "x" * 10}] * 250_000,
    {f"user-{number}": [number, 1.5, None] for number in range(50_000)},
    [[]] * 1_100_000,
    ["lorem ipsum"] * 900_000,
    "lorem ipsum " * 1_000_000,
    bytes(20_000_000),
    [(1, 2)] * 250_000,
]


@pytest.mark.parametrize("value", LARGE)
def test_large_data_can_be_read_after_it_was_compressed(value: Any) -> None:
    packed = pack({"k": pack(value)})
    assert inflated(deflated(packed, 1)) == packed
    assert unpack_compressed(pack_compressed({"k": pack(value)})) == {"k": pack(value)}


def test_a_changelog_of_spark_is_decompressed_up_to_the_same_size() -> None:
    block = bytes(2 << 20)
    small = pa.compress(block, codec="lz4_raw", asbytes=True)
    part, end = _BLOCK.pack(_MAGIC, 0x20, len(small), len(block), 0) + small, _BLOCK.pack(_MAGIC, 0x10, 0, 0, 0)
    assert _decompressed(part * 4 + end) == block * 4
    with pytest.raises(UnknownFilesError, match="would be more than 8,388,608 bytes when decompressed"):
        _decompressed(part * 5 + end)
    with pytest.raises(UnknownFilesError, match="would be more than 8,388,608 bytes when decompressed"):
        _decompressed(_BLOCK.pack(_MAGIC, 0x20, 3, (1 << 31) - 1, 0) + b"abc")
