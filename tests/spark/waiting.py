"""A job that stays in the middle of a batch until it may go on."""

import time
from datetime import datetime, timezone
from pathlib import Path

from amadou import Handler, Job, KeyedEvent, Param, SinkSpec, Subject
from amadou_plugins.connectors import JsonLinesSink, LinesSource
from amadou_runtime import main


class Waiting(Handler):
    """Waits at the event `wait` until the directory PLACE has the file `go`; fails at the event `fail`."""

    texts = SinkSpec(str)

    def __init__(self) -> None:
        self.place = Param("PLACE")

    def key_event(self, record: bytes) -> KeyedEvent:
        return KeyedEvent("all", datetime(2025, 1, 1, tzinfo=timezone.utc), record.decode())

    def on_event(self, subject: Subject, event: KeyedEvent[str]) -> None:
        place = Path(str(self.place))
        if event.value == "wait":
            (place / "here").touch()
            while not (place / "go").exists():
                time.sleep(0.05)
        if event.value == "fail":
            raise ValueError("asked to fail")
        self.texts.collect(subject, event.value)


job = Job(
    "waiting",
    handler=Waiting(),
    sources={"records": LinesSource(Param("RECORDS"))},
    sinks={"texts": JsonLinesSink(Param("TEXTS"))},
    key_groups=4,
)

if __name__ == "__main__":
    main(job)
