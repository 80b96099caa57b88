"""Packs and compresses data that goes through Spark or stays in its state, since Spark copies it several times."""

from typing import Any

from amadou.engine import pack, unpack

_CODEC = "lz4"
_SIZE = 8


def pack_compressed(value: Any) -> bytes:
    """Return the compressed msgpack bytes of a value.

    :raises EncodeError: see `pack`
    """
    import pyarrow as pa

    packed = pack(value)
    return len(packed).to_bytes(_SIZE) + pa.compress(packed, _CODEC, asbytes=True)  # type: ignore[no-any-return]


def unpack_compressed(data: bytes) -> Any:
    """Return the value that `pack_compressed` turned into these bytes."""
    import pyarrow as pa

    size = int.from_bytes(data[:_SIZE])
    return unpack(pa.decompress(memoryview(data)[_SIZE:], size, _CODEC, asbytes=True))
