"""Tests of `enrich.py`."""

from datetime import datetime, timezone
from pathlib import Path

from enrich import Enrich, Notice, job

from amadou_runtime import TestResult, TestRun

FOLDER = Path(__file__).parent


def processed(parts: int, then: datetime | None = None) -> TestResult:
    """Process the first `parts` parts of the sample data, one part per batch; then, if set, the watermark `then`."""
    run = TestRun(job)
    for part in range(1, parts + 1):
        for source in ("activities", "weather"):
            lines = (FOLDER / source / f"part-{part}.jsonl").read_bytes().splitlines()
            run.add_records(lines, source=source)
        run.end_batch()
    return run.run() if then is None else run.add_watermark(then).run()


def at(hour: int, minute: int) -> datetime:
    return datetime(2025, 5, 1, hour, minute, tzinfo=timezone.utc)


def rows(result: TestResult) -> list[tuple[str, str, str, int]]:
    """Return each record's activity id, activity time, weather time and revision."""
    return [
        (each.id, f"{each.at:%H:%M}", f"{each.weather.at:%H:%M}", each.revision) for each in result.records("enriched")
    ]


BEFORE = [
    ("a1", "09:02", "09:00", 0),
    ("a2", "09:07", "09:05", 0),
    ("a3", "09:11", "09:10", 0),
    ("a4", "09:16", "09:15", 0),
    ("a5", "09:19", "09:15", 0),
]
WITHIN_THE_THRESHOLD = [("a6", "09:22", "09:20", 0), ("a7", "09:26", "09:20", 0), ("a8", "09:28", "09:20", 0)]


def test_each_activity_has_the_weather_of_its_city_and_time() -> None:
    result = processed(parts=2)

    assert sorted(rows(result)) == BEFORE
    assert {each.city: each.weather.celsius for each in result.records("enriched")} == {"Delft": 11.8, "Ghent": 12.8}
    assert result.records("notices") == []


def test_while_the_weather_is_silent_activities_that_are_too_far_ahead_of_it_are_held() -> None:
    result = processed(parts=4)

    assert sorted(rows(result)) == sorted(BEFORE + WITHIN_THE_THRESHOLD)
    assert sorted(event.value["id"] for event in result.held("activities")) == ["a10", "a11", "a12", "a13", "a9"]
    assert result.records("notices") == [Notice("down", "weather", at(9, 20), at(9, 36), 1, 2)]


def test_held_activities_have_the_weather_of_their_time_when_the_weather_is_back() -> None:
    result = processed(parts=5)

    assert result.held("activities") == []
    assert sorted(row for row in rows(result) if row not in BEFORE + WITHIN_THE_THRESHOLD and row[-1] == 0) == [
        ("a10", "09:36", "09:35", 0),
        ("a11", "09:48", "09:45", 0),
        ("a12", "10:06", "10:05", 0),
        ("a13", "10:18", "10:15", 0),
        ("a14", "10:21", "10:20", 0),
        ("a15", "10:23", "10:20", 0),
        ("a9", "09:33", "09:30", 0),
    ]
    assert result.records("notices")[1:] == [Notice("recovered", "weather", at(9, 20), at(10, 20), 1, 2)]


def test_activities_that_were_sent_with_old_weather_are_corrected() -> None:
    result = processed(parts=5)

    corrected = sorted(row for row in rows(result) if row[-1])
    assert corrected == [("a7", "09:26", "09:25", 1), ("a8", "09:28", "09:25", 1)]  # a6 already had the right weather


def test_the_last_revision_of_each_activity_does_not_depend_on_the_outage() -> None:
    at_once = TestRun(job)
    for source in ("activities", "weather"):
        for path in sorted((FOLDER / source).iterdir()):
            at_once.add_records(path.read_bytes().splitlines(), source=source)

    last = {each.id: (each.at, each.weather) for each in processed(parts=5).records("enriched")}
    assert last == {each.id: (each.at, each.weather) for each in at_once.run().records("enriched")}


def test_the_state_of_activities_that_cannot_be_corrected_any_more_is_removed() -> None:
    result = processed(parts=5)
    assert list(result.state(Enrich.sent, "Delft")) == ["a14"]  # later than 10:20, the time of the newest weather event

    result = processed(parts=5, then=at(11, 0))
    assert result.state(Enrich.sent, "Delft") == {}
    assert list(result.state(Enrich.readings, "Delft")) == [at(10, 20)]


def test_the_answer_of_a_failed_weather_service_is_no_event() -> None:
    assert Enrich().key_event(b'{"error": "the weather service does not answer"}') is None
