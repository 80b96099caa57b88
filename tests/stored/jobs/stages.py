"""A job with several stages. Fixtures were made with it: never change it."""

import json
from datetime import datetime, timedelta, timezone
from typing import Any

from attrs import frozen

from amadou import FromPort, Handler, Job, KeyedEvent, MapSpec, ReferenceSpec, SinkSpec, Stage, Subject, ValueSpec
from amadou_plugins.aggregates import Count, Sum
from amadou_plugins.connectors import JsonLinesSink, LinesSource
from amadou_plugins.windows import TumblingWindow, windowed

BEGIN = datetime(2025, 1, 1, tzinfo=timezone.utc)
STEP = timedelta(seconds=10)


@frozen
class Total:
    """The total of a key until a time."""

    key: str
    timestamp: datetime
    value: int


def group_of(total: Total) -> str:
    return f"group {total.key[-1]}"


def event_of(record: bytes) -> KeyedEvent[int]:
    key, time, value = json.loads(record)
    return KeyedEvent(key, datetime.fromisoformat(time), value)


class Totals(Handler):
    """Adds up the values of each key, and collects the total so far every ten seconds in which the key has events."""

    total = ValueSpec(int, default=0)
    pending = MapSpec(datetime, int)
    factors = ReferenceSpec(str, int, source="factors")
    totals = SinkSpec(Total)

    def key_event(self, record: bytes) -> KeyedEvent[int]:
        return event_of(record)

    def on_event(self, subject: Subject, event: KeyedEvent[int]) -> None:
        pending, until = self.pending.state_for(subject), BEGIN + ((event.timestamp - BEGIN) // STEP + 1) * STEP
        pending[until] = pending.get(until, 0) + event.value * self.factors.get(subject, "all", 1)
        subject.set_timer(until)

    def on_timer_expired(self, subject: Subject, timestamp: datetime) -> None:
        total = self.total.state_for(subject)
        total.value += self.pending.state_for(subject).pop(timestamp)
        self.totals.collect(subject, Total(subject.key, timestamp, total.value))


class Groups(Handler):
    """Collects what has arrived for a group and a time, twenty seconds later."""

    pending = MapSpec(datetime, int)
    out = SinkSpec(list)

    def key_event(self, record: bytes) -> KeyedEvent[int]:
        return event_of(record)

    def on_event(self, subject: Subject, event: KeyedEvent[Any]) -> None:
        pending, value = self.pending.state_for(subject), event.value
        number = value.value if isinstance(value, Total) else value
        pending[event.timestamp] = pending.get(event.timestamp, 0) + number
        subject.set_timer(event.timestamp + 2 * STEP)

    def on_timer_expired(self, subject: Subject, timestamp: datetime) -> None:
        value = self.pending.state_for(subject).pop(timestamp - 2 * STEP)
        self.out.collect(subject, [subject.key, str(timestamp), value])


def stages_job(place: str, out: str, key_groups: int) -> Job:
    inputs = {
        name: LinesSource(f"{place}/in/{name}/", max_files_per_batch=1, key_event=event_of)
        for name in ("in", "extra", "factors")
    }
    window = TumblingWindow(3 * STEP, {"n": Count(), "sum": Sum("value")})
    return Job(
        "stages",
        stages={
            "windows": Stage(
                windowed(key="key", timestamp="timestamp", window=window),
                {"totals": FromPort("totals", "totals", key="key")},
                {"results": JsonLinesSink(f"{out}/results")},
            ),
            "groups": Stage(
                Groups(),
                {"totals": FromPort("totals", "totals", key=group_of), "extra": inputs["extra"]},
                {"out": JsonLinesSink(f"{out}/out")},
            ),
            "totals": Stage(Totals(), {name: inputs[name] for name in ("in", "factors")}),
        },
        key_groups=key_groups,
    )
