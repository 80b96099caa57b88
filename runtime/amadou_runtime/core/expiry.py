"""What a time to live ends (`semantics.md` 16)."""

from collections.abc import Iterator
from typing import Any, Final

from amadou import Key, Subject
from amadou.event_time import MICROSECOND
from amadou_runtime.core.key_group import KeyGroup

_SWEEPS: Final = 8
"""How many sweeps a time to live has at most: what is gone may stay stored for an eighth longer."""


def expired_keys(with_ttl: list[Any], group: KeyGroup, watermark: int | None) -> dict[str, list[Key]]:
    """The keys of which something is gone by a watermark, by spec; and those that did not age yet.

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
    """Let go what is gone by now, and was not at the times that were due."""
    for spec in with_ttl:
        table = group.tables.get(spec.name)
        if table is not None:
            for state in table.states.values():
                spec.expire(state, watermark)


def clean_up(with_ttl: list[Any], expired: dict[str, list[Key]], subject: Subject) -> None:
    """Remove what is gone and was not touched (`semantics.md` 16): state loses it when it is opened."""
    if subject.watermark is not None:
        subject.timestamp = subject.watermark  # what did not age yet begins to
    for spec in with_ttl:
        for subject.key in expired.get(spec.name, ()):
            spec.clean_up(subject)


def clean_up_times(with_ttl: list[Any], group: KeyGroup) -> Iterator[int]:
    """When the group must be called to be swept: each spec some time after its first part is gone."""
    for spec in with_ttl:
        table = group.tables.get(spec.name)
        if table is not None and table.expires:
            step = max(spec.ttl // MICROSECOND // _SWEEPS, 1)
            yield -(-min(table.expires.values()) // step) * step
