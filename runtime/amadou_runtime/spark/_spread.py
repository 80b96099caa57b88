"""Which number each key group has in Spark, so that groups spread evenly over partitions."""

from functools import lru_cache

_MASK = 0xFFFFFFFF


@lru_cache(maxsize=8)
def group_numbers(groups: int) -> tuple[int, ...]:
    """A number for each key group.

    Spark puts a number into the partition `murmur3(number) mod partitions`. These numbers are chosen so that the hash
    of the number of group `g` is `g` modulo `groups`: each partition gets the same share where their count divides
    `groups`, and nearly the same elsewhere.
    """
    found: dict[int, int] = {}
    number = 0
    while len(found) < groups:
        found.setdefault(spark_hash(number) % groups, number)
        number += 1
    return tuple(found[group] for group in range(groups))


def spark_hash(number: int) -> int:
    """Spark's hash of a 32-bit integer (murmur3, seed 42)."""
    mixed = number * 0xCC9E2D51 & _MASK
    mixed = (mixed << 15 | mixed >> 17) * 0x1B873593 & _MASK
    value = 42 ^ mixed
    value = ((value << 13 | value >> 19) * 5 + 0xE6546B64) & _MASK
    value ^= 4
    value = (value ^ value >> 16) * 0x85EBCA6B & _MASK
    value = (value ^ value >> 13) * 0xC2B2AE35 & _MASK
    value ^= value >> 16
    return value - (1 << 32) if value >> 31 else value
