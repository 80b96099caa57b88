"""Finds the first difference between the engines' results for a batch of a test run, for the error message."""

from collections.abc import Mapping
from typing import Any, Final

import attrs

from amadou.components import in_key_order
from amadou.engine import pack
from amadou.errors import AmadouError, EngineDifferenceError
from amadou.text import shown_value
from amadou_runtime.core.key_group import KeyGroup
from amadou_runtime.store.packed_group import PackedGroup, packed_group
from amadou_runtime.testing.trace import RawEntry

_SHOWN: Final = 300
_BEFORE: Final = 60
"""Maximum length of the common text that an error shows before the first difference. The entire text shown for a value
has at most `_SHOWN` characters.
"""
_NOTHING: Any = type("Nothing", (), {"__repr__": lambda self: "nothing"})()


def difference(embedded: Any, spark: Any, stage: str = "") -> EngineDifferenceError | None:
    """Return an error that reports the difference between the engines' outcomes; `None` if the outcomes are equal.

    An outcome is a batch's result or an error.

    :param stage: the name of the stage; empty in a job with one handler
    """
    if embedded == spark:
        return None
    if isinstance(embedded, AmadouError) or isinstance(spark, AmadouError):
        outcomes = (repr(outcome) if isinstance(outcome, AmadouError) else "no error" for outcome in (embedded, spark))
        return EngineDifferenceError("outcome", *_shortened(*outcomes))
    for field in attrs.fields(type(embedded)):
        differing = first_difference(getattr(embedded, field.name), getattr(spark, field.name))
        if differing is not None:
            where, ours, theirs = differing
            return EngineDifferenceError(field.name, ours, theirs, f" in the stage {stage}{where}" if stage else where)
    return None


def first_difference(
    ours: Any, theirs: Any, entries: str = "entries: {:,} on the embedded engine, {:,} on Spark"
) -> tuple[str, str, str] | None:
    """Return the position of the first difference between two values, and both values at this position, as text.
    Return `None` if the values are equal.

    :param entries: format string that shows the number of entries in each value
    """
    if _same(ours, theirs):
        return None
    if isinstance(ours, list) and isinstance(theirs, list):
        ours, theirs = dict(enumerate(ours)), dict(enumerate(theirs))
    if not (isinstance(ours, Mapping) and isinstance(theirs, Mapping)):
        return "", *_shortened(shown_value(ours), shown_value(theirs))
    pairs = ((name, ours.get(name, _NOTHING), theirs.get(name, _NOTHING)) for name in {**ours, **theirs})
    first = next((pair for pair in pairs if not _same(*pair[1:])), None)
    if first is None:  # the same entries in a different order
        return None
    name, our, their = first
    where = f"entry {name!r}"
    count = entries.format(len(ours), len(theirs))
    if isinstance(our, RawEntry) and isinstance(their, RawEntry):
        where += f": {our.callback} of {shown_value(our.key, _BEFORE)}"
        return f", first in {where} ({count})", *_shortened(_fields(our, their), _fields(their, our))
    return f", first in {where} ({count})", *_shortened(shown_value(our), shown_value(their))


def _fields(entry: RawEntry, other: RawEntry) -> str:
    """Return the fields of an entry that differ from the fields of another entry, as text."""
    parts = {field.name: getattr(entry, field.name) for field in attrs.fields(RawEntry)}
    return ", ".join(
        f"{name}={shown_value(part)}" for name, part in parts.items() if not _same(part, getattr(other, name))
    )


def _shortened(ours: str, theirs: str) -> tuple[str, str]:
    """Return two strings, shortened to the part around the first difference."""
    shorter = min(len(ours), len(theirs))
    common = next((at for at in range(shorter) if ours[at] != theirs[at]), shorter)
    start = max(common - _BEFORE, 0) if max(len(ours), len(theirs)) > _SHOWN else 0

    def cut(text: str) -> str:
        end = start + _SHOWN
        return ("…" if start else "") + text[start:end] + ("…" if len(text) > end else "")

    return cut(ours), cut(theirs)


def _same(ours: Any, theirs: Any) -> bool:
    return bool(ours == theirs) or _packed(ours) == _packed(theirs)  # NaN is unequal to itself


def _packed(value: Any) -> Any:
    """Return the packed form of a value; the value itself if it cannot be packed."""
    entries = isinstance(value, list) and all(type(entry) is RawEntry for entry in value)
    entry = attrs.astuple(value, recurse=False) if type(value) is RawEntry else value
    try:
        return pack([attrs.astuple(entry, recurse=False) for entry in value] if entries else entry)
    except AmadouError:
        return value


def in_fixed_order(packed: bytes | None) -> bytes | None:
    """Return a packed group whose keys, names and timers are in an order that does not depend on the batches that have
    stored them, for comparisons.
    """
    group = KeyGroup(PackedGroup(packed))
    for tables in (group.tables, group.kept):
        for name, table in sorted(tables.items()):
            table.packed = {key: table.packed[key] for key in in_key_order(table.packed)}
            tables[name] = tables.pop(name)
    timers = group.timers
    timers.plain = {at: dict.fromkeys(in_key_order(timers.plain[at])) for at in sorted(timers.plain)}
    timers.tagged = {
        at: {key: timers.tagged[at][key] for key in in_key_order(timers.tagged[at])} for at in sorted(timers.tagged)
    }
    return packed_group(group)
