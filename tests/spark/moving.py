"""Jobs that are moved between stores, engines and numbers of key groups."""

import json
import os
import shutil
from collections.abc import Mapping
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

from attrs import evolve

from amadou import DependsOn, Handler, Job, KeyedEvent, ListSpec, MapSpec, SinkSpec, Subject, ValueSpec
from amadou_plugins.aggregates import Count, Sum
from amadou_plugins.connectors import JsonLinesSink, LinesSource
from amadou_plugins.windows import SessionWindow, TumblingWindow, Window, windowed
from amadou_runtime import run

BEGIN = datetime(2025, 1, 1, tzinfo=timezone.utc)
SECOND = timedelta(seconds=1)


def record_of(key: str, second: int, value: int) -> dict[str, Any]:
    return {"key": key, "timestamp": (BEGIN + second * SECOND).isoformat(), "value": value}


def keyed(record: bytes) -> KeyedEvent[int]:
    fields = json.loads(record)
    return KeyedEvent(fields["key"], datetime.fromisoformat(fields["timestamp"]), fields["value"])


class Everything(Handler):
    """Uses all kinds of state, and windows."""

    total = ValueSpec(int, default=0)
    recent = MapSpec(int, int, ttl=timedelta(seconds=20))
    last = ListSpec(int)
    sessions = SessionWindow(gap=timedelta(seconds=7), value=Sum(), late="drop")
    out = SinkSpec(list)

    def key_event(self, record: bytes) -> KeyedEvent[int]:
        return keyed(record)

    def on_event(self, subject: Subject, event: KeyedEvent[int]) -> None:
        total, recent, last = (spec.state_for(subject) for spec in (self.total, self.recent, self.last))
        total.value += event.value
        second = (event.timestamp - BEGIN) // SECOND
        recent[second % 5] = second
        last.append(second)
        if len(last) > 3:
            last.pop(0)
        self.sessions.add(subject, event)
        subject.set_timer(event.timestamp + event.value * SECOND, "" if event.value % 2 else f"tag {event.value}")
        self.out.collect(subject, ["event", subject.key, total.value, sorted(recent.items()), list(last)])

    def on_timer_expired(self, subject: Subject, timestamp: datetime) -> None:
        total = self.total.state_for(subject)
        self.out.collect(subject, ["timer", subject.key, str(timestamp), subject.timer_tag, total.value])
        if total.value > 20:
            total.clear()

    @sessions.on_close
    def closed(self, subject: Subject, window: Window, result: int) -> None:
        self.out.collect(subject, ["session", window.key, str(window.start), str(window.end), result])


class Waiting(Handler):
    """Holds events of one source until the other has caught up."""

    newest = ValueSpec(int, default=-1)
    out = SinkSpec(list)

    def key_event(self, record: bytes) -> KeyedEvent[int]:
        return keyed(record)

    def on_event(self, subject: Subject, event: KeyedEvent[int]) -> None:
        newest = self.newest.state_for(subject)
        self.out.collect(subject, [subject.source, subject.key, event.value, newest.value])
        if subject.source == "b":
            newest.value = event.value


def handler_of(kind: str) -> Handler:
    if kind == "windows":
        window = TumblingWindow(size=timedelta(seconds=5), value={"n": Count(), "sum": Sum("value")})
        return windowed(window=window, key="key", timestamp="timestamp", port="out")
    return Everything() if kind == "everything" else Waiting()


def job_of(kind: str, inputs: Mapping[str, str], out: str, **settings: Any) -> Job:
    """A job that reads a directory of lines for each source."""
    waits = {"dependencies": [DependsOn("a", on="b", threshold=timedelta(seconds=5))]} if kind == "waiting" else {}
    return Job(
        f"moving {kind}",
        handler=handler_of(kind),
        sources={name: LinesSource(path) for name, path in inputs.items()},
        sinks={"out": JsonLinesSink(out)},
        watermark_delay=timedelta(seconds=2),
        **waits,
        **settings,
    )


class Place:
    """A job of the kind `everything` with its directories."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.input = directory / "in"
        self.input.mkdir(parents=True)

    def job(self, **settings: Any) -> Job:
        return job_of("everything", {"a": f"{self.input}/"}, str(self.directory / "out"), key_groups=4, **settings)

    def job_with_a_batch_for_each_file(self, **settings: Any) -> Job:
        source = LinesSource(f"{self.input}/", max_files_per_batch=1)
        return evolve(self.job(), sources={"a": source}, **settings)

    def add(self, *keys: str, second: int = 0) -> None:
        """Add a file with an event of each key, which is read after the files that exist."""
        new, number = self.directory / "new", len(list(self.input.iterdir())) + 1
        new.write_text("".join(f"{json.dumps(record_of(key, second, 1))}\n" for key in keys))
        os.utime(new, (1_700_000_000 + number, 1_700_000_000 + number))  # Spark reads older files first
        new.rename(self.input / f"{number}.jsonl")

    def outputs(self) -> list[Any]:
        texts = [path.read_text() for path in self.directory.glob("out/*.jsonl")]
        return sorted((json.loads(line) for text in texts for line in text.splitlines()), key=str)

    def totals(self, *keys: str) -> list[Any]:
        """The keys of the processed events, each with its total at that time.

        :param keys: only these keys; without any, all keys
        """
        of_events = [[key, total] for kind, key, total, *_ in self.outputs() if kind == "event"]
        return [each for each in of_events if not keys or each[0] in keys]

    def path(self, name: str) -> str:
        return str(self.directory / name)

    def run(self, checkpoint: str, **more: Any) -> None:
        run(self.job(), checkpoint=self.path(checkpoint), trigger="available-now", **more)


class SavedPlace(Place):
    """A place whose files can be put back to how they were. Its checkpoints work only in the directory in which they
    were made, because they contain the paths of the input.
    """

    def save(self) -> None:
        """Store the files as they are now."""
        shutil.copytree(self.directory, self._stored)

    def restore(self) -> None:
        """Put the files back to how they were when they were stored."""
        shutil.rmtree(self.directory)
        shutil.copytree(self._stored, self.directory)

    @property
    def _stored(self) -> Path:
        return self.directory.with_name(f"{self.directory.name}-stored")
