"""Counts of channels and minutes from a topic, and totals of these counts by group of channels, into topics."""

from datetime import datetime, timedelta, timezone

from attrs import frozen

from amadou import FromPort, Handler, Job, KeyedEvent, MapSpec, Param, SinkSpec, Stage, Subject, truncate
from amadou_plugins.connectors import KafkaRecord, KafkaSink, KafkaSource
from amadou_runtime import main

BEGIN = datetime(2025, 1, 1, tzinfo=timezone.utc)
MINUTE = timedelta(minutes=1)
GROUPS = 5


@frozen
class Sum:
    name: str
    minute: datetime
    sum: int


def group_of(channel: str) -> str:
    return f"group-{int(channel) % GROUPS}"


class Counts(Handler):
    counts = MapSpec(datetime, int)
    sums = SinkSpec(Sum)

    def key_event(self, record: KafkaRecord) -> KeyedEvent[None]:
        channel, _, millis = (record.value or b"").decode().partition(" ")
        return KeyedEvent(channel, BEGIN + timedelta(milliseconds=int(millis)))

    def on_event(self, subject: Subject, event: KeyedEvent[None]) -> None:
        counts = self.counts.state_for(subject)
        minute = truncate(event.timestamp, MINUTE)
        counts[minute] = counts.get(minute, 0) + 1
        subject.set_timer(minute + MINUTE)

    def on_timer_expired(self, subject: Subject, timestamp: datetime) -> None:
        minute = timestamp - MINUTE
        self.sums.collect(subject, Sum(str(subject.key), minute, self.counts.state_for(subject).pop(minute)))


class Totals(Handler):
    totals = MapSpec(datetime, int)
    sums = SinkSpec(Sum)

    def key_event(self, record: Sum) -> KeyedEvent[Sum]:
        return KeyedEvent(group_of(record.name), record.minute + MINUTE, record)

    def on_event(self, subject: Subject, event: KeyedEvent[Sum]) -> None:
        totals = self.totals.state_for(subject)
        totals[event.value.minute] = totals.get(event.value.minute, 0) + event.value.sum
        subject.set_timer(event.timestamp + timedelta(microseconds=1))

    def on_timer_expired(self, subject: Subject, timestamp: datetime) -> None:
        minute = truncate(timestamp, MINUTE) - MINUTE
        self.sums.collect(subject, Sum(str(subject.key), minute, self.totals.state_for(subject).pop(minute)))


job = Job(
    "totals",
    stages={
        "counts": Stage(
            Counts(),
            {"views": KafkaSource(Param("VIEWS"), Param("KAFKA"), max_records_per_batch=1500)},
            {"sums": KafkaSink(Param("COUNTS"), Param("KAFKA"), key="name", exactly_once=True)},
            watermark_delay=timedelta(seconds=10),
        ),
        "totals": Stage(
            Totals(),
            {"counts": FromPort("counts", "sums")},
            {"sums": KafkaSink(Param("TOTALS"), Param("KAFKA"), key="name", exactly_once=True)},
        ),
    },
)

if __name__ == "__main__":
    main(job)
