"""The tumbling-window job, with a stop in the middle of a batch: there it waits until it is killed."""

import os
import time
from datetime import timedelta
from pathlib import Path

from views import ViewsPerMinute

from amadou import Job, KeyedEvent, Param, Subject
from amadou_plugins.connectors import JsonLinesSink, LinesSource
from amadou_runtime import main


class SlowViews(ViewsPerMinute):
    """Waits at the event of the channel `stop` while the file HERE does not exist."""

    def __init__(self) -> None:
        self.here = Param("HERE")

    def on_event(self, subject: Subject, event: KeyedEvent) -> None:
        super().on_event(subject, event)
        here = Path(str(self.here))
        if subject.key == "stop" and not here.exists():
            here.write_text(str(os.getpid()))
            time.sleep(600)


job = Job(
    "slow-views",
    handler=SlowViews(),
    sources={"views": LinesSource(Param("VIEWS"), max_files_per_batch=1)},
    sinks={"sums": JsonLinesSink(Param("SUMS"))},
    watermark_delay=timedelta(seconds=5),
    key_groups=4,
)

if __name__ == "__main__":
    main(job)
