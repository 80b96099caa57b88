"""Packs and compresses data that passes through Spark or is stored in Spark state: Spark copies this data often."""

from typing import Any

from amadou.engine import pack, unpack

_CODEC = "lz4"
_MOST = 256
"""LZ4 makes data smaller by at most this factor."""
_SIZE = 8


def pack_compressed(value: Any) -> bytes:
    """Return the compressed msgpack bytes of a value.

    :raises EncodeError: see `pack`
    """
    import pyarrow as pa

    packed = pack(value)
    return len(packed).to_bytes(_SIZE, "big") + pa.compress(packed, _CODEC, asbytes=True)  # type: ignore[no-any-return]


def unpack_compressed(data: bytes) -> Any:
    """Return the value that `pack_compressed` encoded as these bytes.

    :raises ValueError: the bytes are damaged
    """
    import pyarrow as pa

    size = int.from_bytes(data[:_SIZE], "big")
    if size > _MOST * len(data):
        raise ValueError(f"{len(data):,} bytes cannot be {size:,} bytes when they are decompressed")
    try:
        packed = pa.decompress(memoryview(data)[_SIZE:], size, _CODEC, asbytes=True)
    except (OSError, MemoryError) as error:
        raise ValueError(f"the bytes are damaged ({error})") from error
    return unpack(packed)
