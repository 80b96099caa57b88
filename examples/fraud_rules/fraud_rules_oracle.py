"""Computes the alerts of `fraud_rules.py` without amadou."""

import json
from collections.abc import Iterable, Iterator
from datetime import datetime
from typing import Any


def alerts(batches: Iterable[tuple[list[bytes], list[bytes]]]) -> Iterator[tuple[str, datetime, str, int]]:
    """Yield the alerts of batches, each of which has changes of rules and payments in the order of their times."""
    latest: dict[str, dict[str, Any]] = {}
    payments: list[dict[str, Any]] = []
    for changes, arrived in batches:
        for change in map(parsed, changes):
            if change["time"] >= latest.get(change["rule"], change)["time"]:
                latest[change["rule"]] = change
        for payment in map(parsed, arrived):
            payments.append(payment)
            before = [
                (payment["time"] - each["time"], each["cents"]) for each in payments if each["card"] == payment["card"]
            ]
            for name, rule in latest.items():
                if rule["cents"] is not None:
                    total = sum(cents for age, cents in before if 0 <= age.total_seconds() < 60 * rule["minutes"])
                    if total > rule["cents"]:
                        yield payment["card"], payment["time"], name, total


def parsed(line: bytes) -> dict[str, Any]:
    fields: dict[str, Any] = json.loads(line)
    return fields | {"time": datetime.fromisoformat(fields["time"])}
