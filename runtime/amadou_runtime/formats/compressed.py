"""Packs and compresses data that passes through Spark or is stored in Spark state: Spark copies this data often."""

from typing import Any

from amadou.engine import pack, unpack
from amadou_runtime.formats.inflating import check_objects, may_become, most_inflated

_CODEC = "lz4"
_SIZE = 8
_PLAIN = bytes(_SIZE)
"""In place of the size: the data is not compressed."""


def pack_compressed(value: Any) -> bytes:
    """Return the compressed msgpack bytes of a value.

    :raises EncodeError: see `pack`
    """
    import pyarrow as pa

    packed = pack(value)
    data: bytes = pa.compress(packed, _CODEC, asbytes=True)
    return len(packed).to_bytes(_SIZE, "big") + data if may_become(data, packed) else _PLAIN + packed


def unpack_compressed(data: bytes) -> Any:
    """Return the value that `pack_compressed` encoded as these bytes.

    :raises ValueError: the bytes are damaged
    :raises StateDecodeError: likewise
    """
    import pyarrow as pa

    if data[:_SIZE] == _PLAIN:
        return unpack(data[_SIZE:])
    size = int.from_bytes(data[:_SIZE], "big")
    if size > most_inflated(len(data)):
        raise ValueError(f"{len(data):,} bytes would be {size:,} bytes when they are decompressed")
    try:
        packed = pa.decompress(memoryview(data)[_SIZE:], size, _CODEC, asbytes=True)
    except (OSError, MemoryError) as error:
        raise ValueError(f"the bytes are damaged ({error})") from error
    check_objects(data, packed)
    return unpack(packed)
