"""A job that counts events by name and minute, in one stage or two, from and to any connector; and the model of it."""

import random
from collections import Counter, defaultdict
from collections.abc import Sequence
from datetime import datetime, timedelta, timezone
from hashlib import shake_256
from typing import Any

from attrs import evolve, frozen
from tests.qualify.moments import Moment, Moments

from amadou import FromPort, Handler, Job, KeyedEvent, MapSpec, Param, SinkSpec, Stage, Subject, ValueSpec, truncate
from amadou.plugins import Sink
from amadou_plugins.connectors import JsonLinesSink, KafkaRecord, KafkaSink, KafkaSource, LinesSource, PostgresSink

BEGIN = datetime(2025, 1, 1, tzinfo=timezone.utc)
MINUTE = timedelta(minutes=1)
DELAY = timedelta(seconds=10)
MILLIS_LATE = 5000
"""How much later than its place an event's time can be."""
GROUPS = 5
STAGES = ("counts", "totals")


@frozen
class Sum:
    """The events of a name in a minute.

    :param total: the events of the name up to the end of this minute
    """

    name: str
    minute: datetime
    sum: int
    total: int


@frozen
class Known:
    """A name's state.

    :param noise: bytes that do not compress
    """

    total: int
    noise: bytes


def group_of(name: str) -> str:
    return f"group-{int(name) % GROUPS}"


class Counts(Handler):
    """Counts the events of each name.

    :param padding: number of bytes to add to the state of each name
    :ivar after: how long after its minute a count is complete
    """

    after = timedelta(0)
    known = ValueSpec(Known)
    counts = MapSpec(datetime, int)
    sums = SinkSpec(Sum)

    def __init__(self, padding: int = 0) -> None:
        self.padding = padding

    def key_event(self, record: KafkaRecord | bytes) -> KeyedEvent[None]:
        value = record if isinstance(record, bytes) else record.value or b""
        name, _, millis = value.decode().partition(" ")
        return KeyedEvent(name, BEGIN + timedelta(milliseconds=int(millis)))

    def on_event(self, subject: Subject, event: KeyedEvent[None]) -> None:
        self.add(subject, truncate(event.timestamp, MINUTE), 1)

    def add(self, subject: Subject, minute: datetime, count: int) -> None:
        counts = self.counts.state_for(subject)
        counts[minute] = counts.get(minute, 0) + count
        subject.set_timer(minute + MINUTE + self.after)

    def on_timer_expired(self, subject: Subject, timestamp: datetime) -> None:
        minute, name = timestamp - self.after - MINUTE, str(subject.key)
        known, count = self.known.state_for(subject), self.counts.state_for(subject).pop(minute)
        before = known.value or Known(0, shake_256(name.encode()).digest(self.padding))
        known.value = after = evolve(before, total=before.total + count)
        self.sums.collect(subject, Sum(name, minute, count, after.total))


class Totals(Counts):
    """Adds the counts of the names of each group. They come at the end of their minute."""

    after = timedelta(microseconds=1)

    def key_event(self, record: Sum) -> KeyedEvent[Sum]:  # type: ignore[override]
        return KeyedEvent(group_of(record.name), record.minute + MINUTE, record)

    def on_event(self, subject: Subject, event: KeyedEvent[Sum]) -> None:  # type: ignore[override]
        self.add(subject, event.value.minute, event.value.sum)


def job_of(
    source: str, sinks: Sequence[str], directory: str, *, stages: int, padding: int, pace: int, moments: bool
) -> Job:
    """Return the job.

    :param source: `files` or `kafka`
    :param sinks: some of `files`, `kafka`, `once` (Kafka, exactly-once) and `postgres`
    :param directory: where `Moments` are
    :param stages: 1 or 2
    :param padding: see `Counts`
    :param pace: number of events in a batch
    :param moments: `False` for a job without sinks that can end their process
    """
    login: Any = {"username": Param("KAFKA_USER"), "password": Param("KAFKA_PASSWORD", secret=True)}
    read: Any = (
        LinesSource(Param("IN"), max_files_per_batch=1)
        if source == "files"
        else KafkaSource(Param("IN"), Param("KAFKA"), max_records_per_batch=pace, **login)
    )

    def sink_of(stage: str, kind: str) -> Sink:
        place = Param(f"{stage}_{kind}".upper())
        if kind == "files":
            return JsonLinesSink(place)
        if kind == "postgres":
            return PostgresSink(
                Param("POSTGRES"), place, username=Param("PGUSER"), password=Param("PGPASSWORD", secret=True)
            )
        return KafkaSink(place, Param("KAFKA"), key="name", exactly_once=kind == "once", **login)

    def sinks_of(stage: str) -> list[Sink]:
        all_sinks = [sink_of(stage, kind) for kind in sinks]
        if not moments:
            return all_sinks
        between = [Moment(f"{stage} {number}", directory) for number in range(len(sinks) + 1)]
        return [between[0], *(each for pair in zip(all_sinks, between[1:], strict=True) for each in pair)]

    counts, plugins = Counts(padding), [Moments(directory)]
    if stages == 1:
        return Job(
            "counts",
            counts,
            {"events": read},
            {"sums": sinks_of("counts")},
            watermark_delay=DELAY,
            key_groups=8,
            plugins=plugins,
        )
    by_name = {
        "counts": Stage(counts, {"events": read}, {"sums": sinks_of("counts")}, watermark_delay=DELAY),
        "totals": Stage(Totals(), {"counts": FromPort("counts", "sums")}, {"sums": sinks_of("totals")}),
    }
    return Job("counts", stages=by_name, key_groups=8, plugins=plugins)


class Model:
    """Draws events, and knows what the job writes for them.

    :param names: number of different names
    :param millis_apart: between two events that follow each other
    """

    def __init__(self, names: int, seed: int, millis_apart: int) -> None:
        self._names = names
        self._millis_apart = millis_apart
        self._drawn = random.Random(seed)
        self._counts: Counter[tuple[str, datetime]] = Counter()
        self.events = 0

    def draw(self, count: int) -> list[bytes]:
        """Return the next events, as records."""
        records = []
        for number in range(self.events, self.events + count):
            name = str(self._drawn.randrange(self._names))
            millis = number * self._millis_apart + self._drawn.randrange(MILLIS_LATE)
            self._counts[name, BEGIN + millis // 60_000 * MINUTE] += 1
            records.append(f"{name} {millis}".encode())
        self.events += count
        return records

    def sums(self, stage: str) -> Counter[Sum]:
        """Return what a stage writes: each of these once."""
        counts = self._counts
        if stage == "totals":
            counts = Counter()
            for (name, minute), count in self._counts.items():
                counts[group_of(name), minute] += count
        totals: defaultdict[str, int] = defaultdict(int)
        sums: Counter[Sum] = Counter()
        for (name, minute), count in sorted(counts.items(), key=lambda each: each[0][1]):
            totals[name] += count
            sums[Sum(name, minute, count, totals[name])] += 1
        return sums
