"""Decompresses data that may come from somebody else."""

import zlib
from typing import Final

_LEAST: Final = 64 << 20
_RATIO: Final = 100


def inflated(data: bytes) -> bytes:
    """Decompress data, up to 64 MiB or 100 times its size.

    :raises ValueError: the data is damaged, or larger than that
    """
    limit = max(_LEAST, _RATIO * len(data))
    inflating = zlib.decompressobj()
    try:
        found = inflating.decompress(data, limit)
    except zlib.error as error:
        raise ValueError(str(error)) from error
    if not inflating.eof:
        has_more = len(found) == limit
        raise ValueError(f"it decompresses to more than {limit:,} bytes" if has_more else "its compressed data is cut")
    return found
