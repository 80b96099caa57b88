"""Computes the alerts of `fraud.py` without amadou: `python fraud_oracle.py FILE`, with a JSON object on each line."""

import json
import re
import sys
from collections import defaultdict
from collections.abc import Iterable, Iterator
from datetime import datetime, timedelta, timezone
from statistics import mean
from typing import Any

LATEST = datetime.now(timezone.utc) + timedelta(minutes=5)


def valid(record: bytes) -> dict[str, Any] | None:
    try:
        payment: dict[str, Any] = json.loads(record)
        payment["time"] = datetime.fromisoformat(payment["time"])
        fits = payment["time"] <= LATEST and payment["cents"] > 0 and re.fullmatch("[A-Z]{2}", payment["country"])
        return payment if fits else None
    except (ValueError, KeyError, TypeError):
        return None


def alerts(records: Iterable[bytes]) -> Iterator[tuple[str, datetime, str, str]]:
    cards: defaultdict[str, list[dict[str, Any]]] = defaultdict(list)
    for payment in filter(None, map(valid, records)):
        cards[payment["card"]].append(payment)
    for card, payments in cards.items():
        payments.sort(key=lambda payment: (payment["time"], payment["id"]))
        first = first_of_burst = 0
        for i, payment in enumerate(payments):
            time = payment["time"]
            if i > 0 and time - payments[i - 1]["time"] >= timedelta(days=30):
                first = first_of_burst = i
            if i - 5 >= first_of_burst and time - payments[i - 5]["time"] <= timedelta(minutes=10):
                first_of_burst = i + 1
                yield card, time, "burst", payment["id"]
            if i - first >= 5 and payment["cents"] > 10 * mean(each["cents"] for each in payments[first:i]):
                yield card, time, "amount", payment["id"]
            if i > first:
                before = payments[i - 1]
                if before["country"] != payment["country"] and time < before["time"] + timedelta(hours=1):
                    yield card, time, "travel", payment["id"]


if __name__ == "__main__":
    with open(sys.argv[1], "rb") as file:
        for card, time, rule, payment in alerts(file):
            print(f"{card} {time.isoformat()} {rule} {payment}")
