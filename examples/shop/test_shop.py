"""Tests of `shop.py`."""

import json
from datetime import datetime, timedelta, timezone
from pathlib import Path

from shop import Visit, sales, visits

from amadou_plugins.windows import WindowResult
from amadou_runtime import TestRun

CLICKS = Path(__file__).with_name("clicks.jsonl").read_bytes().splitlines()
TEN = datetime(2025, 3, 1, 10, tzinfo=timezone.utc)
MINUTE = timedelta(minutes=1)


def test_a_visit_ends_half_an_hour_after_its_last_click() -> None:
    result = TestRun(visits).add_records(CLICKS).run(flush=True)

    assert result.records("visits") == [
        Visit("ada", datetime(2025, 3, 1, 10, 0, 5, tzinfo=timezone.utc), 65.0, ["home", "tea", "tea"], 450),
        Visit("bob", datetime(2025, 3, 1, 10, 0, 20, tzinfo=timezone.utc), 1720.0, ["tea", "cups"], 1200),
        Visit("ada", datetime(2025, 3, 1, 11, 0, tzinfo=timezone.utc), 0.0, ["home"], 0),
        Visit("cyd", datetime(2025, 3, 1, 12, 0, tzinfo=timezone.utc), 0.0, ["home"], 0),
    ]
    assert result.keys() == []


def test_a_visit_of_more_than_four_hours_is_cut_and_lasts_to_its_last_click() -> None:
    clicks = [
        json.dumps({"visitor": "eve", "timestamp": (TEN + number * 20 * MINUTE).isoformat(), "page": "tea", "cents": 1})
        for number in range(15)
    ]
    result = TestRun(visits).add_records([click.encode() for click in clicks]).run(flush=True)

    assert [(visit.start, visit.seconds / 60, visit.spent) for visit in result.records("visits")] == [
        (TEN, 220, 12),
        (TEN + 240 * MINUTE, 40, 3),
    ]


def test_a_click_that_comes_after_its_visit_was_reported_is_diverted() -> None:
    late = json.dumps({"visitor": "ada", "timestamp": "2025-03-01T09:55:00Z", "page": "home", "cents": 0}).encode()
    result = TestRun(visits).add_records(CLICKS).end_batch().add_record(late).run()

    assert result.counters == {"visit.late": 1}
    assert [(event.by, event.key) for event in result.records("late_events")] == [("visit", "ada")]


def test_sales_of_each_page_and_minute() -> None:
    result = TestRun(sales).add_records(CLICKS).run(flush=True)

    assert result.records("sales")[:3] == [
        WindowResult("home", TEN, TEN + MINUTE, {"clicks": 1, "cents": 0}, False),
        WindowResult("tea", TEN, TEN + MINUTE, {"clicks": 2, "cents": 0}, False),
        WindowResult("tea", TEN + MINUTE, TEN + 2 * MINUTE, {"clicks": 1, "cents": 450}, False),
    ]
