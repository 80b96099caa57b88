"""Expires state that has a time to live (`semantics.md` 16)."""

from typing import Any

from amadou import Key, Subject
from amadou_runtime.core.key_group import KeyGroup


def expired_keys(with_ttl: list[Any], group: KeyGroup, watermark: int | None) -> dict[str, list[Key]]:
    """Return the keys whose state has expired at a watermark or has no expiry time yet, grouped by spec.

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
    """Remove from loaded state everything that has expired by the watermark. Call this function only after all due
    timers have fired.
    """
    for spec in with_ttl:
        table = group.tables.get(spec.name)
        if table is not None:
            for state in table.states.values():
                spec.expire(state, watermark)


def clean_up(with_ttl: list[Any], expired: dict[str, list[Key]], subject: Subject) -> None:
    """Remove the expired state of keys, even if no callback has accessed this state (`semantics.md` 16).

    :param expired: the keys with expired state, by spec; see `expired_keys`
    """
    if subject.watermark is not None:
        subject.timestamp = subject.watermark  # determines the expiry time of state that has none
    for spec in with_ttl:
        for subject.key in expired.get(spec.name, ()):
            spec.clean_up(subject)
