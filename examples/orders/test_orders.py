"""Tests of `orders.py`."""

from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

from orders import Customer, EnrichedOrder, Order, job

from amadou_runtime import TestRun

ORDERS = Path(__file__).with_name("orders.jsonl").read_bytes().splitlines()
TEN = datetime(2025, 3, 1, 10, tzinfo=timezone.utc)
CUSTOMERS: dict[str, Any] = {"c1": Customer("Ada", "UK"), "c2": Customer("Blaise", "FR")}
ENRICHED = [
    EnrichedOrder(1, TEN, 1200, "c1", "Ada", "UK"),
    EnrichedOrder(2, TEN + timedelta(seconds=4), 450, "c2", "Blaise", "FR"),
    EnrichedOrder(4, TEN + timedelta(minutes=1), 300, "c1", "Ada", "UK"),
]


def test_orders_get_their_customer_and_unknown_customers_are_reported() -> None:
    result = TestRun(job, lookups={"customers": CUSTOMERS}).add_records(ORDERS).run()

    assert result.records("enriched") == ENRICHED
    assert result.records("unknown") == [Order(3, "c9", 990)]


def test_an_order_whose_customer_cannot_be_fetched_becomes_a_dead_letter() -> None:
    customers = {**CUSTOMERS, "c1": ConnectionError("the database is down")}
    result = TestRun(job, lookups={"customers": customers}).add_records(ORDERS).run()

    assert result.records("enriched") == ENRICHED[1:2]
    assert [letter.key for letter in result.dead_letters] == ["c1", "c1"]
