"""Compresses data, and decompresses data that may come from somebody else."""

import zlib
from typing import Final

_LEAST: Final = 8 << 20
_RATIO: Final = 100


def deflated(data: bytes, level: int = -1) -> bytes:
    """Compress data, unless it became so small that `inflated` would refuse it."""
    found = zlib.compress(data, level)
    return found if len(data) <= most_inflated(found) else zlib.compress(data, 0)


def inflated(data: bytes) -> bytes:
    """Decompress data, up to 8 MiB or 100 times its size.

    :raises ValueError: the data is damaged, or larger than that
    """
    limit = most_inflated(data)
    inflating = zlib.decompressobj()
    try:
        found = inflating.decompress(data, limit)
    except zlib.error as error:
        raise ValueError(str(error)) from error
    if not inflating.eof:
        has_more = len(found) == limit
        raise ValueError(f"it decompresses to more than {limit:,} bytes" if has_more else "its compressed data is cut")
    return found


def most_inflated(data: bytes) -> int:
    """Return the maximum size of compressed data after it has been decompressed."""
    return max(_LEAST, _RATIO * len(data))
