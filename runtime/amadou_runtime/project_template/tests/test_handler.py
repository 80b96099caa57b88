"""Tests of the job. They need neither Spark nor Java."""

from datetime import datetime, timezone

from amadou_runtime import TestRun

from project_name.handler import EventsPerMinute, MinuteCount
from project_name.job import job


def event(key: str, time: str) -> dict[str, str]:
    return {"key": key, "time": f"2025-01-01T00:{time}Z"}


def minute(number: int) -> datetime:
    return datetime(2025, 1, 1, 0, number, tzinfo=timezone.utc)


def test_counts_the_events_of_each_key_per_minute() -> None:
    run = TestRun(job)
    for key, time in (("a", "01:00"), ("b", "01:30"), ("a", "01:59"), ("a", "02:00")):
        run.add_record(event(key, time))
    run.add_watermark(minute(3))

    counts = run.run().records("counts")

    assert sorted(counts, key=lambda count: (count.key, count.minute)) == [
        MinuteCount("a", minute(1), 2),
        MinuteCount("a", minute(2), 1),
        MinuteCount("b", minute(1), 1),
    ]


def test_a_minute_stays_open_until_it_has_ended() -> None:
    run = TestRun(job)
    run.add_record(event("a", "01:30"))
    run.add_watermark()

    result = run.run()

    assert result.records("counts") == []
    assert result.state(EventsPerMinute.open_minutes, "a") == {minute(1): 1}


def test_a_late_event_is_dropped() -> None:
    run = TestRun(job)
    run.add_record(event("a", "01:00"))
    run.add_watermark(minute(5))
    run.add_record(event("a", "01:30"))
    run.end_batch()

    result = run.run(flush=True)

    assert result.records("counts") == [MinuteCount("a", minute(1), 1)]
    assert result.state(EventsPerMinute.open_minutes, "a") == {}


def test_a_record_without_a_key_becomes_a_dead_letter() -> None:
    run = TestRun(job)
    run.add_record({"time": "2025-01-01T00:01:00Z"})

    (letter,) = run.run().records("dead_letters")

    assert letter.callback == "key_event"
