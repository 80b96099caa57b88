"""Windows to which the handler adds results of other windows when these close. These results are on time."""

from datetime import timedelta
from typing import Any

import pytest
from tests.conformance.conftest import MakeRun
from tests.conformance.handlers import SECOND, START, EventHandler, Mistake, at, event, job

from amadou import KeyedEvent, SinkSpec, Subject
from amadou_plugins.aggregates import Count, Sum
from amadou_plugins.windows import SessionWindow, TumblingWindow, Window

MINUTE = 60


class Feeding(EventHandler):
    """Counts events by minute, sums the counts by five minutes, and counts consecutive busy minutes."""

    results = SinkSpec(tuple)
    by_minute = TumblingWindow(timedelta(minutes=1), Count())
    by_five = TumblingWindow(timedelta(minutes=5), {"minutes": Count(), "events": Sum()})
    # the result of a minute is a minute old when the window closes
    busy = SessionWindow(timedelta(minutes=1), Count(), allowed_lateness=timedelta(minutes=1))

    def on_event(self, subject: Subject, event: KeyedEvent[Any]) -> None:
        self.by_minute.add(subject, event)

    @by_minute.on_close
    def minute_closed(self, subject: Subject, window: Window, count: int) -> None:
        fed = KeyedEvent(subject.key, window.start, count)
        self.by_five.add(subject, fed)
        if count > 1:
            self.busy.add(subject, fed)

    @by_five.on_close
    def five_closed(self, subject: Subject, window: Window, value: Any) -> None:
        self.record("five", subject, window, value)

    @busy.on_close
    def busy_ended(self, subject: Subject, window: Window, minutes: int) -> None:
        self.record("busy", subject, window, minutes)

    def record(self, what: str, subject: Subject, window: Window, value: Any) -> None:
        start, end = ((time - START) / SECOND / MINUTE for time in (window.start, window.end))
        self.results.collect(subject, (what, subject.key, start, end, value))


EVENTS = [event(minute * MINUTE + second) for minute in (0, 4, 5, 6, 9, 12) for second in range(1 + (minute in (5, 6)))]
EXPECTED = [
    ("five", "k", 0, 5, {"minutes": 2, "events": 2}),
    ("busy", "k", 5, 7, 2),
    ("five", "k", 5, 10, {"minutes": 3, "events": 5}),
    ("five", "k", 10, 15, {"minutes": 1, "events": 1}),
]


@pytest.mark.rule(23)
def test_one_watermark_step_closes_windows_and_the_windows_that_they_feed(test_run: MakeRun) -> None:
    result = test_run(job(Feeding())).add_records(EVENTS).add_watermark(at(60 * MINUTE)).run()
    assert result.records("results") == EXPECTED
    assert (result.keys(), result.counters) == ([], {})


@pytest.mark.rule(21, 23)
def test_results_of_windows_that_feed_windows_do_not_depend_on_batches_and_restarts(test_run: MakeRun) -> None:
    run = test_run(job(Feeding()))
    for each in EVENTS[:5]:
        run.add_record(each).end_batch()
    run.restart().add_records(EVENTS[5:]).add_watermark(at(13 * MINUTE)).crash(after=1).restart()
    result = run.add_watermark(at(15 * MINUTE)).run()
    assert result.records("results") == EXPECTED
    assert (result.keys(), result.counters) == ([], {})


@pytest.mark.rule(19)
def test_a_failing_on_close_undoes_the_events_that_it_added_to_other_windows(test_run: MakeRun) -> None:
    class Failing(Feeding):
        def minute_closed(self, subject: Subject, window: Window, count: int) -> None:
            super().minute_closed(subject, window, count)
            if window.start == at(4 * MINUTE):
                raise Mistake("the fifth minute")

    run = test_run(job(Failing(), on_error="dead_letter")).add_records(EVENTS)
    result = run.add_watermark(at(60 * MINUTE)).run()
    assert [dead_letter.callback for dead_letter in result.dead_letters] == ["minute_closed"]
    assert result.records("results") == [("five", "k", 0, 5, {"minutes": 1, "events": 1}), *EXPECTED[1:]]
