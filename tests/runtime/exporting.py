"""A job with values of any type, and what its state is after `amadou state export` and `import --into`."""

import enum
import json
from datetime import datetime, timedelta, timezone
from decimal import Decimal
from pathlib import Path
from typing import Any, NamedTuple, TypedDict

import attrs
from tests.commands import output
from tests.conformance.handlers import EventHandler

from amadou import KeyedEvent, ListSpec, MapSpec, SinkSpec, Subject, ValueSpec
from amadou_runtime import TestRun
from amadou_runtime.savepoint.job_savepoint import JobSavepoint


class Color(enum.Enum):
    RED = "red"
    LATE = datetime(2025, 1, 1, tzinfo=timezone.utc)
    BRIEF = timedelta(microseconds=1)


class Marks(enum.Flag):
    NEW = 1
    OLD = 4


class Rights(enum.IntFlag):
    READ = 1
    WRITE = 2


class Pair(NamedTuple):
    left: timedelta
    right: Any = None


class Typed(TypedDict):
    at: datetime


@attrs.frozen
class Item:
    name: str
    price: Decimal | None = None
    tags: frozenset[str] = frozenset()
    by_time: dict[datetime, bytes] = attrs.field(factory=dict)
    color: Color | int = 0
    anything: Any = None
    others: "list[Item]" = attrs.field(factory=list)


class Stores(EventHandler):
    """Has state of a type: a value, a map and a list. Collects the value."""

    seen = SinkSpec(object)

    def __init__(self, type_: Any, key_type: Any = str, default: Any = None, **settings: Any) -> None:
        self.one: Any = ValueSpec(type_, default, name="one", **settings)
        self.by_key: Any = MapSpec(key_type, type_, name="by_key", **settings)
        self.items: Any = ListSpec(type_, name="items", **settings)

    def on_event(self, subject: Subject, event: KeyedEvent[Any]) -> None:
        self.seen.collect(subject, self.one.state_for(subject).value)

    def on_timer_expired(self, subject: Subject, timestamp: datetime) -> None:
        self.seen.collect(subject, [timestamp, subject.timer_tag])


NAMES = ("one", "by_key", "items")
SETTINGS: list[dict[str, Any]] = [
    {},
    {"ttl": timedelta(days=1)},
    {"version": 2, "migrate": str},
    {"version": 2, "migrate": str, "ttl": timedelta(days=1)},
]


def exported(savepoint: Path, suffix: str = "jsonl") -> Path:
    """Export all state of a savepoint."""
    file = savepoint.with_name(f"{savepoint.name}.{suffix}")
    output("state", "export", str(savepoint), str(file))
    return file


def imported(savepoint: Path, file: Path) -> Path:
    """Import rows into a savepoint. Return the new savepoint."""
    new = savepoint.with_name(f"{savepoint.name}-{file.suffix[1:]}")
    output("state", "import", str(file), str(new), "--into", str(savepoint))
    return new


def rows_of(savepoint: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in exported(savepoint).read_bytes().splitlines()]


def state_in(savepoint: Path) -> dict[str, dict[Any, Any]]:
    """Return what a savepoint stores: packed state and times by spec and key, and timers by key."""
    found: dict[str, dict[Any, Any]] = {}
    for block in JobSavepoint(savepoint).stages[""].blocks():
        for name, table in block.tables.items():
            for key, packed in table.packed.items():
                found.setdefault(name, {})[key] = packed, table.expires.get(key), table.next_timers.get(key)
        for key, *timer in zip(*block.timers, strict=True):
            found.setdefault("timers", {}).setdefault(key, []).append(timer)
    return found


def same_again(savepoint: Path, suffix: str) -> Path:
    """Import what is exported from a savepoint into it. Check that the new savepoint, which is returned, has the same
    rows and the same state.
    """
    file = exported(savepoint)
    new = imported(savepoint, file if suffix == "jsonl" else exported(savepoint, suffix))
    assert exported(new).read_bytes() == file.read_bytes()
    assert state_in(new) == state_in(savepoint)
    return new


def saved(run: TestRun, directory: Path) -> Path:
    run.run()
    run.savepoint(directory / "saved")
    return directory / "saved"


def shown(run: TestRun) -> list[str]:
    with run:
        result = run.run()
    keys = result.keys()
    return sorted(repr([key, *(result.state(name, key) for name in NAMES), result.timers(key)]) for key in keys)
