"""What a job's state is made of, as plain data that is kept with it, and whether another job can read that state."""

from collections.abc import Mapping
from typing import Any, TypeAlias

from amadou import Job

Structure: TypeAlias = list[Any]
Known: TypeAlias = dict[str, list[Structure]]
"""The structures that each spec has had, by its name."""
_OF_TYPES = {"ValueSpec", "MapSpec", "ListSpec"}
"""The specs of which `shown_type` tells types; of others it tells what their state means."""
_PLAIN = {"str", "int", "float", "bool", "bytes", "datetime", "date", "timedelta", "Decimal", "UUID", "NoneType"}


def described(job: Job) -> dict[str, Structure]:
    """Kind, type and version of each state spec of a job."""
    return {name: [type(spec).__name__, spec.shown_type(), spec.version] for name, spec in job.specs.items()}


def with_structures(known: Mapping[str, list[Structure]], now: Mapping[str, Structure]) -> Known:
    """What is known, and what is now."""
    return {**known, **{name: [structure] for name, structure in now.items()}}


def state_problem(job: str, known: Mapping[str, list[Structure]], now: Mapping[str, Structure]) -> str | None:
    """Why a job cannot take state over, and what to do; `None` where it can.

    :param job: its name
    :param known: what `with_structures` gave for the jobs that left the state
    """
    misfits = [
        f"{name} was {_shown(before)} and is now {_shown(now[name])}"
        for name, structures in known.items()
        for before in structures
        if name in now and not _fits(before, now[name])
    ]
    if not misfits:
        return None
    return (
        f"the state of {job!r} no longer fits its specs: {'; '.join(misfits)}. "
        "Give the spec its old type back, version= and migrate=, or another name"
    )


def _shown(spec: list[Any]) -> str:
    kind, type_, version = spec
    return f"{kind} {type_} version {version}" if version else f"{kind} {type_}"


def _fits(stored: list[Any], now: list[Any]) -> bool:
    """Whether state can be read; classes are not looked into, their state tells when it is touched."""
    if stored[0] not in _OF_TYPES:
        return stored == now
    if stored[0] != now[0] or stored[2] > now[2]:
        return False
    if stored[2] < now[2]:
        return True  # its migrate= knows
    for old, new in zip(stored[1].split(" → "), now[1].split(" → "), strict=True):
        members, wider = set(old.split(" | ")), set(new.split(" | "))
        if members <= wider or (members == {"int"} and "float" in wider):
            continue
        if members & _PLAIN or wider & _PLAIN or "[" in old + new:
            return False
    return True
