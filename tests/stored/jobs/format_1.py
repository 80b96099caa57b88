"""The jobs of the savepoints of format 1, which later versions must read. Fixtures were made with them: never change
them, nor their names.
"""

import json
from datetime import date, datetime, timedelta, timezone
from decimal import Decimal
from enum import Enum
from typing import Any
from uuid import UUID

from attrs import frozen

from amadou import (
    DependsOn,
    Handler,
    Job,
    KeyedEvent,
    ListSpec,
    MapSpec,
    MemorySink,
    MemorySource,
    SinkSpec,
    Subject,
    ValueSpec,
)
from amadou_plugins.aggregates import Count, Mean
from amadou_plugins.connectors import JsonLinesSink, LinesSource
from amadou_plugins.windows import SessionWindow, TumblingWindow, Window, windowed

BEGIN = datetime(2025, 1, 1, tzinfo=timezone.utc)
MINUTE = timedelta(minutes=1)


class Color(Enum):
    RED = "red"
    BLUE = 2


@frozen
class Item:
    """Has fields of all kinds of types."""

    text: str
    number: int
    real: float
    flag: bool
    data: bytes
    at: datetime
    day: date
    span: timedelta
    price: Decimal
    id: UUID
    color: Color
    tags: frozenset[str]
    pairs: tuple[int, str]
    many: list[dict[str, int]]
    other: "Item | None" = None


def item(number: int, other: Item | None = None) -> Item:
    return Item(
        f"text {number}",
        number << 40 if number % 2 else -number,
        number / 3,
        bool(number % 2),
        bytes([number % 256, 0, 255]),
        BEGIN + number * MINUTE,
        date(2025, 1, 1),
        number * timedelta(microseconds=1),
        Decimal(number) / 100,
        UUID(int=number),
        Color.RED if number % 2 else Color.BLUE,
        frozenset({"a", "b"}),
        (number, "x"),
        [{"n": number}],
        other,
    )


class Values(Handler):
    """Uses all kinds of state."""

    item = ValueSpec(Item)
    anything = ValueSpec(Any)
    versioned = ValueSpec(int, version=2, migrate=lambda old, version: int(old))
    minutes = MapSpec(datetime, int, ttl=timedelta(hours=1))
    by_pair = MapSpec(tuple[int, str], list[int])
    recent = ListSpec(str, ttl=timedelta(days=1))
    sessions = SessionWindow(gap=10 * MINUTE, value={"n": Count(), "mean": Mean("value")})
    out = SinkSpec(list)

    def key_event(self, record: Any) -> KeyedEvent:
        key, minute, number = record
        return KeyedEvent(key, BEGIN + minute * MINUTE, {"value": number})

    def on_event(self, subject: Subject, event: KeyedEvent) -> None:
        number = event.value["value"]
        self.item.state_for(subject).value = item(number, item(1))
        self.anything.state_for(subject).value = {"list": [1, None], "at": event.timestamp, "set": {1, 2}}
        self.versioned.state_for(subject).value = number
        self.minutes.state_for(subject)[event.timestamp] = number
        self.by_pair.state_for(subject)[number, "x"] = [number]
        self.recent.state_for(subject).append(str(number))
        self.sessions.add(subject, event)
        subject.set_timer(event.timestamp + 30 * MINUTE)
        subject.set_timer(event.timestamp + 60 * MINUTE, "tag")
        self.out.collect(subject, ["event", str(subject.key), subject.source, number])

    def on_timer_expired(self, subject: Subject, timestamp: datetime) -> None:
        minutes = list(self.minutes.state_for(subject).values())
        shown = [self.item.state_for(subject).value == item(minutes[-1], item(1)) if minutes else None]
        shown += [self.versioned.state_for(subject).value, minutes, list(self.recent.state_for(subject))]
        shown += [sorted(self.by_pair.state_for(subject).items())]
        self.out.collect(subject, ["timer", str(subject.key), subject.timer_tag, shown])

    @sessions.on_close
    def closed(self, subject: Subject, window: Window, result: Any) -> None:
        self.out.collect(subject, ["session", str(window.key), str(window.start), result])


KEYS: tuple[Any, ...] = ("a", "é", 1, -7, 1 << 40, b"\x00\xff", ("a", 1))
values_job = Job(
    "kept",
    Values(),
    {"events": MemorySource(), "needed": MemorySource()},
    {"out": MemorySink()},
    dependencies=[DependsOn("events", on="needed", threshold=10 * MINUTE)],
)


def columns_job(inputs: str, out: str) -> Job:
    """A vectorised window, whose state is stored for whole key groups."""
    window = TumblingWindow(size=MINUTE, value={"n": Count(), "mean": Mean("value")})
    return Job(
        "kept columns",
        windowed(key="key", timestamp="timestamp", window=window),
        {"in": LinesSource(inputs)},
        {"results": JsonLinesSink(out)},
        key_groups=4,
    )


def column_lines() -> str:
    records = (
        {"key": f"k{at % 20}", "timestamp": (BEGIN + at * MINUTE / 60).isoformat(), "value": at} for at in range(90)
    )
    return "".join(f"{json.dumps(record)}\n" for record in records)
