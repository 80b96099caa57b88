"""Counts of channels and minutes, from a topic into two topics, a table and files at once."""

from datetime import datetime, timedelta, timezone

from attrs import frozen

from amadou import Handler, Job, KeyedEvent, MapSpec, Param, SinkSpec, Subject, truncate
from amadou_plugins.connectors import JsonLinesSink, KafkaRecord, KafkaSink, KafkaSource, PostgresSink
from amadou_runtime import main

BEGIN = datetime(2025, 1, 1, tzinfo=timezone.utc)
MINUTE = timedelta(minutes=1)


@frozen
class Sum:
    channel: str
    minute: datetime
    sum: int


class Minutes(Handler):
    counts = MapSpec(datetime, int)
    to_topic = SinkSpec(Sum)
    to_table = SinkSpec(Sum)
    to_files = SinkSpec(Sum)

    def key_event(self, record: KafkaRecord) -> KeyedEvent[None]:
        channel, _, millis = (record.value or b"").decode().partition(" ")
        return KeyedEvent(channel, BEGIN + timedelta(milliseconds=int(millis)))

    def on_event(self, subject: Subject, event: KeyedEvent[None]) -> None:
        counts = self.counts.state_for(subject)
        minute = truncate(event.timestamp, MINUTE)
        counts[minute] = counts.get(minute, 0) + 1
        subject.set_timer(minute + MINUTE)

    def on_timer_expired(self, subject: Subject, timestamp: datetime) -> None:
        counts = self.counts.state_for(subject)
        for minute in sorted(minute for minute in counts if minute < timestamp):
            found = Sum(str(subject.key), minute, counts.pop(minute))
            for port in (self.to_topic, self.to_table, self.to_files):
                port.collect(subject, found)


KAFKA = {"username": Param("KAFKA_USER"), "password": Param("KAFKA_PASSWORD", secret=True)}

job = Job(
    "minutes",
    handler=Minutes(),
    sources={"in": KafkaSource(Param("TOPIC"), Param("KAFKA"), max_records_per_batch=60_000, **KAFKA)},
    sinks={
        "to_topic": [
            KafkaSink(Param("OUT"), Param("KAFKA"), key="channel", **KAFKA),
            KafkaSink(Param("ONCE"), Param("KAFKA"), key="channel", exactly_once=True, **KAFKA),
        ],
        "to_table": PostgresSink(
            Param("POSTGRES"), "minutes", username=Param("PGUSER"), password=Param("PGPASSWORD", secret=True)
        ),
        "to_files": JsonLinesSink(Param("FILES")),
    },
    watermark_delay=timedelta(seconds=10),
)

if __name__ == "__main__":
    main(job)
