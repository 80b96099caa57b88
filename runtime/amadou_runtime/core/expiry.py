"""What a time to live ends (`semantics.md` 16)."""

from collections.abc import Iterator
from typing import Any, Final

from amadou import Key, Subject
from amadou.event_time import MICROSECOND
from amadou_runtime.core.key_group import KeyGroup

_SWEEPS: Final = 8
"""How many sweeps a time to live has at most: what is gone may stay stored for an eighth longer."""


def expired_keys(aging: list[Any], group: KeyGroup, watermark: int | None) -> dict[str, list[Key]]:
    """The keys of which something is gone by a watermark, by spec; and those that did not age yet.

    :param aging: the specs with a time to live
    """
    if watermark is None:
        return {}
    columns = {spec.name: group.columns[spec.name] for spec in aging if spec.name in group.columns}
    return {
        name: [key for key in column.packed if column.expires.get(key, watermark) <= watermark]
        for name, column in columns.items()
    }


def age(aging: list[Any], group: KeyGroup, watermark: int) -> None:
    """Let go what is gone by now, and was not at the times that were due."""
    for spec in aging:
        column = group.columns.get(spec.name)
        if column is not None:
            for state in column.states.values():
                spec.age(state, watermark)


def sweep(aging: list[Any], expired: dict[str, list[Key]], subject: Subject) -> None:
    """Remove what is gone and was not touched (`semantics.md` 16): state loses it when it is opened."""
    if subject.watermark is not None:
        subject.timestamp = subject.watermark  # what did not age yet begins to
    for spec in aging:
        for subject.key in expired.get(spec.name, ()):
            spec.clean_up(subject)


def sweep_times(aging: list[Any], group: KeyGroup) -> Iterator[int]:
    """When the group must be called to be swept: each spec some time after its first part is gone."""
    for spec in aging:
        column = group.columns.get(spec.name)
        if column is not None and column.expires:
            step = max(spec.ttl // MICROSECOND // _SWEEPS, 1)
            yield -(-min(column.expires.values()) // step) * step
