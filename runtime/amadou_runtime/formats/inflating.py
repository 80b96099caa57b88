"""Compresses packed data, and decompresses packed data that may come from somebody else."""

import zlib
from typing import Final

from amadou_runtime.formats.unpacked_size import unpacks_within

_LEAST: Final = 8 << 20
_RATIO: Final = 100
_LEAST_MEMORY: Final = 64 << 20
_MEMORY_RATIO: Final = 200
_UNCOMPRESSED_RATIO: Final = 40


def deflated(data: bytes, level: int = -1) -> bytes:
    """Compress packed data, unless it became so small that `inflated` would refuse it."""
    found = zlib.compress(data, level)
    return found if may_become(found, data) else zlib.compress(data, 0)


def inflated(data: bytes) -> bytes:
    """Decompress packed data, up to 8 MiB or 100 times its size. Its objects may take 64 MiB, or 200 times its size.

    :raises ValueError: the data is damaged, or larger than that
    """
    limit = most_inflated(len(data))
    inflating = zlib.decompressobj()
    try:
        found = inflating.decompress(data, limit)
    except zlib.error as error:
        raise ValueError(str(error)) from error
    if not inflating.eof:
        has_more = len(found) == limit
        raise ValueError(f"it decompresses to more than {limit:,} bytes" if has_more else "its compressed data is cut")
    check_objects(data, found)
    return found


def most_inflated(size: int) -> int:
    """Return the maximum size of compressed data of a size after it has been decompressed."""
    return max(_LEAST, _RATIO * size)


def check_objects(data: bytes, packed: bytes) -> None:
    """Check that the objects of decompressed data take no more memory than the compressed data may.

    :param packed: the decompressed data
    :raises ValueError: they do
    """
    _check_memory(packed, _most_memory(data))


def check_uncompressed(packed: bytes) -> None:
    """Check that the objects of packed data that was not compressed take at most 64 MiB, or 40 times its size.

    :raises ValueError: they take more
    """
    _check_memory(packed, max(_LEAST_MEMORY, _UNCOMPRESSED_RATIO * len(packed)))


def may_become(data: bytes, packed: bytes) -> bool:
    """Return `True` if compressed data is not too small for what it contains, so that it can be read again.

    :param packed: the data before compression
    """
    return len(packed) <= most_inflated(len(data)) and unpacks_within(packed, _most_memory(data))


def _most_memory(data: bytes) -> int:
    return max(_LEAST_MEMORY, _MEMORY_RATIO * len(data))


def _check_memory(packed: bytes, most: int) -> None:
    if not unpacks_within(packed, most):
        raise ValueError(f"its objects would take more than {most:,} bytes of memory")
