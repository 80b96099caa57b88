"""Assigns numbers to key ranges so that Spark spreads the ranges across shuffle partitions."""

from functools import lru_cache

_MASK = 0xFFFFFFFF


@lru_cache(maxsize=8)
def range_numbers(ranges: int) -> tuple[int, ...]:
    """Return the number by which Spark identifies each key range.

    Spark puts the rows with range number `n` into partition `murmur3(n) mod partitions`. The numbers are chosen so that
    the hash of range `r`'s number, modulo `ranges`, is `r`. So if `ranges` is a multiple of the number of partitions,
    each partition gets the same number of ranges. Otherwise, some partitions get more ranges than others.
    """
    found: dict[int, int] = {}
    number = 0
    while len(found) < ranges:
        found.setdefault(spark_hash(number) % ranges, number)
        number += 1
    return tuple(found[position] for position in range(ranges))


def range_groups(position: int, groups: int, ranges: int) -> range:
    """Return the numbers of the key groups in a key range.

    :param position: the range's position among the ranges
    """
    return range(-(-position * groups // ranges), -(-(position + 1) * groups // ranges))


def spark_hash(number: int) -> int:
    """Return Spark's hash of a 32-bit integer (murmur3, seed 42)."""
    mixed = number * 0xCC9E2D51 & _MASK
    mixed = (mixed << 15 | mixed >> 17) * 0x1B873593 & _MASK
    value = 42 ^ mixed
    value = ((value << 13 | value >> 19) * 5 + 0xE6546B64) & _MASK
    value ^= 4
    value = (value ^ value >> 16) * 0x85EBCA6B & _MASK
    value = (value ^ value >> 13) * 0xC2B2AE35 & _MASK
    value ^= value >> 16
    return value - (1 << 32) if value >> 31 else value
