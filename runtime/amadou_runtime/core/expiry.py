"""Expiring state that has a time to live (`semantics.md` 16)."""

from collections.abc import Iterator
from typing import Any, Final

from amadou import Key, Subject
from amadou.event_time import MICROSECOND
from amadou_runtime.core.key_group import KeyGroup

_SWEEPS: Final = 8
"""Most clean-ups in a time to live: expired state may stay stored for an eighth of it longer."""


def expired_keys(with_ttl: list[Any], group: KeyGroup, watermark: int | None) -> dict[str, list[Key]]:
    """Return the keys with state that has expired by a watermark, or has no expiry yet, by spec.

    :param with_ttl: the specs with a time to live
    """
    if watermark is None:
        return {}
    tables = {spec.name: group.tables[spec.name] for spec in with_ttl if spec.name in group.tables}
    return {
        name: [key for key in table.packed if table.expires.get(key, watermark) <= watermark]
        for name, table in tables.items()
    }


def expire(with_ttl: list[Any], group: KeyGroup, watermark: int) -> None:
    """Drop the expired parts of loaded state that had not expired yet when the timers fired."""
    for spec in with_ttl:
        table = group.tables.get(spec.name)
        if table is not None:
            for state in table.states.values():
                spec.expire(state, watermark)


def clean_up(with_ttl: list[Any], expired: dict[str, list[Key]], subject: Subject) -> None:
    """Remove expired state that nothing has touched (`semantics.md` 16): touched state drops it when it is opened."""
    if subject.watermark is not None:
        subject.timestamp = subject.watermark  # state without an expiry gets one
    for spec in with_ttl:
        for subject.key in expired.get(spec.name, ()):
            spec.clean_up(subject)


def clean_up_times(with_ttl: list[Any], group: KeyGroup) -> Iterator[int]:
    """Yield when the group must be called to be cleaned up: for each spec, soon after its first state expires."""
    for spec in with_ttl:
        table = group.tables.get(spec.name)
        if table is not None and table.expires:
            step = max(spec.ttl // MICROSECOND // _SWEEPS, 1)
            yield -(-min(table.expires.values()) // step) * step
