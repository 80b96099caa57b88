"""A job with stages: sums of each key and interval feed those of groups, which also have a source of their own. The
outputs do not depend on how records are divided into batches.
"""

import json
import random
from collections.abc import Mapping
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any, TypeAlias

from attrs import frozen

from amadou import (
    FromPort,
    Handler,
    Job,
    KeyedEvent,
    MapSpec,
    MemorySink,
    MemorySource,
    SinkSpec,
    Stage,
    Subject,
    ValueSpec,
)
from amadou.plugins import Sink, Source
from amadou_plugins.connectors import JsonLinesSink, LinesSource
from amadou_runtime import TestRun

BEGIN = datetime(2025, 1, 1, tzinfo=timezone.utc)
STEP = timedelta(seconds=10)


@frozen
class Sum:
    """The sum of a key's values until a time."""

    key: str
    until: datetime
    value: int


def line(key: str, second: float, value: int = 1) -> bytes:
    return json.dumps([key, (BEGIN + timedelta(seconds=second)).isoformat(), value]).encode()


def group_of(each: Sum) -> str:
    return f"group {each.key[-1]}"


Step: TypeAlias = list[tuple[str, bytes]]
"""Records with their sources."""


class Summing(Handler):
    def key_event(self, record: bytes) -> KeyedEvent[int]:
        key, time, value = json.loads(record)
        return KeyedEvent(key, datetime.fromisoformat(time), value)


class Sums(Summing):
    """Sums the values of each key, and collects the sum so far every ten seconds in which the key has events."""

    total = ValueSpec(int, default=0)
    pending = MapSpec(datetime, int)
    sums = SinkSpec(Sum)

    def on_event(self, subject: Subject, event: KeyedEvent[int]) -> None:
        pending, until = self.pending.state_for(subject), BEGIN + ((event.timestamp - BEGIN) // STEP + 1) * STEP
        pending[until] = pending.get(until, 0) + event.value
        subject.set_timer(until)

    def on_timer_expired(self, subject: Subject, timestamp: datetime) -> None:
        total = self.total.state_for(subject)
        total.value += self.pending.state_for(subject).pop(timestamp)
        self.sums.collect(subject, Sum(subject.key, timestamp, total.value))


class Groups(Summing):
    """Collects the sum of what has arrived for a group and a time, 20 seconds later."""

    pending = MapSpec(datetime, int)
    out = SinkSpec(list)

    def on_event(self, subject: Subject, event: KeyedEvent[Any]) -> None:
        pending, value = self.pending.state_for(subject), event.value
        added = value.value if isinstance(value, Sum) else value
        pending[event.timestamp] = pending.get(event.timestamp, 0) + added
        subject.set_timer(event.timestamp + 2 * STEP)

    def on_timer_expired(self, subject: Subject, timestamp: datetime) -> None:
        value = self.pending.state_for(subject).pop(timestamp - 2 * STEP)
        self.out.collect(subject, [subject.key, str(timestamp), value])


class Counts(Handler):
    """Counts the sums of each key."""

    count = ValueSpec(int, default=0)
    counts = SinkSpec(list)

    def on_event(self, subject: Subject, event: KeyedEvent[Sum]) -> None:
        count = self.count.state_for(subject)
        count.value += 1
        self.counts.collect(subject, [subject.key, count.value])


def staged_job(
    sources: Mapping[str, Source],
    sinks: Mapping[str, Sink],
    *,
    counts: bool = False,
    sums: bool = True,
    groups: Handler | None = None,
    **settings: Any,
) -> Job:
    """The job.

    :param sources: the sources `in` and `extra`
    :param sinks: the sinks for `out` and `counts`
    :param counts: `True` to add the stage that counts sums
    :param sums: `False` to leave out the first stage
    :param groups: another handler for the stage `groups`
    """
    stages: dict[str, Stage] = {}
    if counts:
        fed = {"sums": FromPort("sums", "sums", key="key")}
        stages["counts"] = Stage(Counts(), sources=fed, sinks={"counts": sinks["counts"]})
    feeding = {"sums": FromPort("sums", "sums", key=group_of)} if sums else {}
    inputs: dict[str, Source] = {**feeding, "extra": sources["extra"]}
    stages["groups"] = Stage(groups or Groups(), sources=inputs, sinks={"out": sinks["out"]})
    if sums:
        stages["sums"] = Stage(Sums(), sources={"in": sources["in"]})
    return Job("staged", stages=stages, **settings)


def memory_job(**settings: Any) -> Job:
    """The job, for test runs."""
    sources, sinks = {"in": MemorySource(), "extra": MemorySource()}, {"out": MemorySink(), "counts": MemorySink()}
    return staged_job(sources, sinks, **settings)


def steps(chance: random.Random, number: int) -> list[Step]:
    """Records by source, in steps that follow one another in time."""
    return [
        [
            *(("in", line(f"{chance.choice('abc')}{chance.randrange(3)}", 25 * step + second)) for second in range(25)),
            ("extra", line(f"group {step % 3}", 25 * step + 0.5, 100)),
        ]
        for step in range(number)
    ]


def add(test_run: TestRun, step: Step) -> None:
    for source, record in step:
        test_run.add_record(record, source)
    test_run.end_batch()


class Place:
    """A job with its directories."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        for name in ("in", "extra"):
            (directory / name).mkdir()
        self._files = 0

    def job(self, **settings: Any) -> Job:
        sources = {name: LinesSource(f"{self.directory}/{name}/") for name in ("in", "extra")}
        sinks = {name: JsonLinesSink(f"{self.directory}/{name}") for name in ("out", "counts")}
        return staged_job(sources, sinks, **settings)

    def add(self, step: Step) -> None:
        self._files += 1
        for source in ("in", "extra"):
            records = [record for of, record in step if of == source]
            (self.directory / source / f"{self._files}.jsonl").write_bytes(b"".join(b"%s\n" % each for each in records))

    def outputs(self, port: str = "out") -> list[Any]:
        texts = [path.read_text() for path in self.directory.glob(f"{port}/*.jsonl")]
        return sorted(json.loads(text) for each in texts for text in each.splitlines())


def uninterrupted(script: list[Step], *, flush: bool = True) -> list[Any]:
    """The outputs of a test run with all records."""
    with TestRun(memory_job()) as test_run:
        for step in script:
            add(test_run, step)
        return sorted(test_run.run(flush=flush).records("out"))
