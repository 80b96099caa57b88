"""Expires state that has a time to live (`semantics.md` 16)."""

from typing import Any

from amadou import Key, Subject
from amadou.engine import StateTable
from amadou_runtime.core.key_group import KeyGroup


def expired_keys(with_ttl: list[Any], group: KeyGroup, watermark: int | None) -> dict[str, list[Key]]:
    """Return the keys of which stored state has expired at a watermark or has no expiry time yet, by spec.

    :param with_ttl: the specs with a time to live
    """
    if watermark is None:
        return {}
    tables = {spec.name: group.tables[spec.name] for spec in with_ttl if spec.name in group.tables}
    return {name: _expired(table, watermark) for name, table in tables.items()}


def remove_expired(with_ttl: list[Any], group: KeyGroup, subject: Subject) -> None:
    """Remove everything that has expired by the watermark, at the end of a batch."""
    watermark = subject.watermark_micros
    if watermark is None:
        return
    assert subject.watermark is not None
    subject.timestamp = subject.watermark
    for spec in with_ttl:
        table = group.tables.get(spec.name)
        if table is None:
            continue
        for subject.key in dict.fromkeys([*_expired(table, watermark), *table.unstored()]):
            spec.state_for(subject)
            if spec.expire(table.states[subject.key], watermark) and spec.counts_expired:
                spec.count_expired(subject)


def _expired(table: StateTable, watermark: int) -> list[Key]:
    return [key for key in table.packed if table.expires.get(key, watermark) <= watermark]
