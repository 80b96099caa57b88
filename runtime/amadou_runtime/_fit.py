"""Whether a job can take over what an earlier run stored."""

from typing import Any

from amadou import Job

_OF_TYPES = {"ValueSpec", "MapSpec", "ListSpec"}
"""The specs of which `shown_type` tells types; of others it tells what their state means."""
_PLAIN = {"str", "int", "float", "bool", "bytes", "datetime", "date", "timedelta", "Decimal", "UUID", "NoneType"}


def described_specs(job: Job) -> dict[str, list[Any]]:
    """Kind, type and version of each state spec, by name."""
    return {name: [type(spec).__name__, spec.shown_type(), spec.version] for name, spec in job.specs.items()}


def misfit_of(job: Job, name: str, key_groups: int, stored: dict[str, list[Any]]) -> str | None:
    """Why a job cannot take over what was stored, and what to do; `None` where it can.

    :param name: of the job that stored it
    :param key_groups: how many key groups that job had
    :param stored: the `described_specs` of that job
    """
    if name != job.name:
        return f"it belongs to the job {name!r}, not to {job.name!r}; give each job a directory"
    if key_groups != job.key_groups:
        return f"its first run had key_groups={key_groups}, which cannot change; the job has {job.key_groups}"
    specs = described_specs(job)
    misfits = [
        f"{name} was {_shown(before)} and is now {_shown(specs[name])}"
        for name, before in stored.items()
        if name in specs and not _fits(before, specs[name])
    ]
    if not misfits:
        return None
    return (
        f"the state of {job.name!r} no longer fits its specs: {'; '.join(misfits)}. "
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
