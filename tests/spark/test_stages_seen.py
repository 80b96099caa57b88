"""What users see of a job with several stages on Spark."""

from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from tests.top_pages import MINUTE, PageSum, Top, Views, top_pages, view

from amadou import KeyedEvent, MemorySink, MemorySource, Subject, truncate
from amadou_runtime import start
from amadou_runtime._run import replay
from amadou_runtime.core.dead_letter_files import read_letters

pytestmark = pytest.mark.spark

VIEWS = [
    view("/a", 1),
    b"[nonsense",
    view("/b", -5),
    view("/bad", 2),
    view("/late", 70),
    view("/odd", 130),
    view("/a", 400),
]


class FixedViews(Views):
    """Takes each record."""

    def key_event(self, record: bytes) -> KeyedEvent[int]:
        return super().key_event(view("/fixed", 190) if record == b"[nonsense" else record)

    def on_event(self, subject: Subject, event: KeyedEvent[int]) -> None:
        self.sums.collect(subject, PageSum(subject.key, truncate(event.timestamp, MINUTE), 1))


class FixedTop(Top):
    """Takes each page."""

    def key_event(self, record: PageSum) -> KeyedEvent[PageSum]:
        return KeyedEvent(record.minute.isoformat(), record.minute + MINUTE, record)

    def on_event(self, subject: Subject, event: KeyedEvent[PageSum]) -> None:
        self.top.collect(subject, event.value)

    def on_timer_expired(self, subject: Subject, timestamp: datetime) -> None:
        self.top.collect(subject, self.best.state_for(subject).value)


def test_the_dead_letters_of_each_stage_are_replayed_into_it_once(spark: Any, tmp_path: Path) -> None:
    checkpoint, source = str(tmp_path / "checkpoint"), MemorySource(VIEWS)
    failing, fixed = MemorySink(), MemorySink()
    start(top_pages(source, failing, on_error="dead_letter"), spark, checkpoint=checkpoint).await_termination()
    directories = [Path(checkpoint) / f"{stage}.dead_letters" for stage in ("views", "top")]
    letters = read_letters(directories)
    assert sorted((letter.fields["job"], letter.fields["callback"]) for letter in letters) == [
        ("top-pages.top", "key_event"),
        ("top-pages.top", "on_event"),
        ("top-pages.top", "on_timer_expired"),
        ("top-pages.views", "key_event"),
        ("top-pages.views", "on_event"),
    ]
    job = top_pages(source, fixed, handlers=(FixedViews(), FixedTop()), on_error="dead_letter")
    outcome = replay(job, letters, checkpoint=checkpoint)
    assert (outcome.letters, outcome.before) == (5, 0)
    assert sorted(each.page for each in fixed.records) == ["/b", "/bad", "/fixed", "/late", "/odd"]
    again = replay(job, letters, checkpoint=checkpoint)
    assert (again.letters, again.before, len(fixed.records)) == (0, 5, 5)
