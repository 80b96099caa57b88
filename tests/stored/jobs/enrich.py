"""Enriches people's runs and rides with the weather, and corrects records if weather closer in time arrives."""

from datetime import datetime, timedelta
from typing import Any

import orjson
from attrs import evolve, frozen

from amadou import DependencyChange, DependsOn, Handler, Job, KeyedEvent, MapSpec, Param, SinkSpec, Subject
from amadou_plugins.connectors import JsonLinesSink, LinesSource
from amadou_runtime import main


@frozen
class Reading:
    at: datetime
    celsius: float
    sky: str


@frozen
class Enriched:
    id: str
    who: str
    sport: str
    city: str
    at: datetime
    weather: Reading | None
    revision: int = 0


@frozen
class Notice:
    """A source went down or has recovered. Records later than `since` may be corrected if a batch from `first_batch` to
    `last_batch` emitted them.

    :param since: time of the source's newest event before it went down
    :param until: if the source went down, time of the dependent source's newest event; if the source has recovered,
        time of the recovered source's newest event
    :param first_batch: number of the batch with the source's newest event before it went down
    :param last_batch: number of the batch with the dependent source's newest event when the source went down
    """

    what: str
    source: str
    since: datetime
    until: datetime
    first_batch: int
    last_batch: int


class Enrich(Handler):
    """Emits each activity immediately, with the newest known weather of its city up to the activity's time.

    Emitted records are stored until the watermark has passed their time, because weather closer to this time may arrive
    before then.
    """

    readings = MapSpec(datetime, Reading)
    sent = MapSpec(str, Enriched)
    enriched = SinkSpec(Enriched)
    notices = SinkSpec(Notice)

    def key_event(self, record: bytes) -> KeyedEvent[dict[str, Any]] | None:
        fields = orjson.loads(record)
        if "error" in fields:  # the weather service did not answer
            return None
        return KeyedEvent(fields["city"], datetime.fromisoformat(fields["at"]), fields)

    def on_event(self, subject: Subject, event: KeyedEvent[dict[str, Any]]) -> None:
        if subject.source == "weather":
            self.weather(subject, Reading(event.timestamp, event.value["celsius"], event.value["sky"]))
        else:
            self.activity(subject, event.timestamp, event.value)

    def activity(self, subject: Subject, at: datetime, fields: dict[str, Any]) -> None:
        readings = self.readings.state_for(subject)
        before = max((time for time in readings if time <= at), default=None)
        weather = None if before is None else readings[before]
        self.send(subject, Enriched(fields["id"], fields["who"], fields["sport"], subject.key, at, weather))

    def weather(self, subject: Subject, reading: Reading) -> None:
        self.readings.state_for(subject)[reading.at] = reading
        subject.set_timer(reading.at + timedelta(seconds=1))
        for each in list(self.sent.state_for(subject).values()):
            if reading.at <= each.at and (each.weather is None or each.weather.at < reading.at):
                self.send(subject, evolve(each, weather=reading, revision=each.revision + 1))

    def send(self, subject: Subject, enriched: Enriched) -> None:
        self.enriched.collect(subject, enriched)
        if subject.set_timer(enriched.at + timedelta(seconds=1)):
            self.sent.state_for(subject)[enriched.id] = enriched

    def on_timer_expired(self, subject: Subject, timestamp: datetime) -> None:
        sent, readings = self.sent.state_for(subject), self.readings.state_for(subject)
        for id in [id for id, each in sent.items() if each.at < timestamp]:
            del sent[id]
        for at in sorted(at for at in readings if at < timestamp)[:-1]:  # later activities need the last of these
            del readings[at]

    def on_dependency_down(self, change: DependencyChange) -> None:
        self.notify("down", change, until=change.reached)

    def on_dependency_recovered(self, change: DependencyChange) -> None:
        self.notify("recovered", change, until=change.newest)

    def notify(self, what: str, change: DependencyChange, until: datetime) -> None:
        batches = change.since_batch, change.reached_batch
        self.notices.collect(change.subject, Notice(what, change.source, change.since, until, *batches))


job = Job(
    "weather",
    handler=Enrich(),
    sources={
        "activities": LinesSource(Param("ACTIVITIES", default="activities/"), max_files_per_batch=1),
        "weather": LinesSource(Param("WEATHER", default="weather/"), max_files_per_batch=1),
    },
    sinks={
        "enriched": JsonLinesSink(Param("ENRICHED", default="enriched/")),
        "notices": JsonLinesSink(Param("NOTICES", default="notices/")),
    },
    dependencies=[DependsOn("activities", on="weather", threshold=timedelta(minutes=10))],
)

if __name__ == "__main__":
    main(job)
