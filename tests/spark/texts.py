"""A job that stores texts of wanted sizes."""

import json
import os
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

from amadou import Handler, Job, KeyedEvent, Subject, ValueSpec
from amadou_plugins.connectors import LinesSource

BEGIN = datetime(2025, 1, 1, tzinfo=timezone.utc)
HOUR = timedelta(hours=1)


class Texts(Handler):
    """Stores a text of the size that an event names, and a timer an hour later. Without a size, the key's text is
    removed, and the timer removes it, too, if the key begins with "short".
    """

    text = ValueSpec(str)

    def key_event(self, record: bytes) -> KeyedEvent[int]:
        key, hour, size = json.loads(record)
        return KeyedEvent(tuple(key) if isinstance(key, list) else key, BEGIN + hour * HOUR, size)

    def on_event(self, subject: Subject, event: KeyedEvent[int]) -> None:
        text = self.text.state_for(subject)
        if event.value:
            text.value = "x" * event.value
            subject.set_timer(event.timestamp + HOUR)
        else:
            text.clear()

    def on_timer_expired(self, subject: Subject, timestamp: datetime) -> None:
        if str(subject.key).startswith("short"):
            self.text.state_for(subject).clear()


def texts_job(directory: Path, **settings: Any) -> Job:
    """Return a job that reads the directory's files, one in each batch."""
    directory.mkdir(exist_ok=True)
    return Job("texts", Texts(), {"in": LinesSource(f"{directory}/", max_files_per_batch=1)}, {}, **settings)


def add_texts(directory: Path, *events: tuple[Any, int, int]) -> None:
    """Write a file of events, which is read after those that exist: keys, hours and sizes."""
    new, number = directory.with_name(f"{directory.name}-new"), len(list(directory.iterdir()))
    new.write_text("".join(f"{json.dumps(event)}\n" for event in events))
    os.utime(new, (1_700_000_000 + number, 1_700_000_000 + number))  # Spark reads older files first
    new.rename(directory / f"{number}.jsonl")
