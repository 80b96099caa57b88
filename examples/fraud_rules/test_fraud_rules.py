"""Tests of `fraud_rules.py`: rule by rule, and in comparison with the alerts of a plain Python script."""

import json
import random
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import attrs
import pytest
from fraud_rules import Alert, FraudRules, Rule, job
from fraud_rules_oracle import alerts

from amadou_runtime import TestRun

HERE = Path(__file__).parent
NOON = datetime(2025, 3, 1, 12, tzinfo=timezone.utc)


def line(at: float, **fields: Any) -> bytes:
    """Return a line with a time: `at` minutes after noon."""
    return json.dumps({"time": (NOON + timedelta(minutes=at)).isoformat(), **fields}).encode()


def payment(at: float, cents: int, card: str = "c1") -> bytes:
    return line(at, card=card, cents=cents)


def change(cents: int | None, minutes: int = 10, rule: str = "r", at: float = 0) -> bytes:
    return line(at, rule=rule, minutes=minutes, cents=cents)


def new_run(*changes: bytes) -> TestRun:
    return TestRun(job).add_records(changes, "rules")


def random_batches(seed: int) -> list[tuple[list[bytes], list[bytes]]]:
    """Return batches with changes of four rules, some of them late, and payments of five cards."""
    drawn = random.Random(seed)
    batches, time = [], 0.0
    for _ in range(30):
        changes = [
            change(drawn.choice((None, 500, 1000, 2000)), drawn.choice((1, 5, 60)), f"r{drawn.randrange(4)}", at)
            for at in (time - drawn.randrange(30) for _ in range(drawn.randrange(3)))
        ]
        payments = []
        for _ in range(drawn.randrange(20)):
            time += drawn.random()
            payments.append(payment(time, drawn.randrange(1, 500), f"c{drawn.randrange(5)}"))
        batches.append((changes, payments))
    return batches


@pytest.mark.parametrize(("minutes", "expected"), [(9.9, ["r"]), (10, [])])
def test_payments_within_the_minutes_of_a_rule_are_summed(minutes: float, expected: list[str]) -> None:
    run = new_run(change(999)).add_records([payment(0, 500), payment(minutes, 500), payment(5, 900, "c2")], "payments")
    assert [alert.rule for alert in run.run().records("alerts")] == expected


def test_a_changed_rule_counts_from_its_batch_on() -> None:
    run = new_run(change(1000)).add_record(payment(0, 900), "payments").end_batch()
    run.add_record(change(800, at=1), "rules").add_record(payment(20, 900), "payments")
    assert run.run().records("alerts") == [Alert("c1", NOON + timedelta(minutes=20), "r", 900)]


def test_a_removed_rule_does_not_count() -> None:
    run = new_run(change(100)).end_batch().add_record(change(None, at=1), "rules")
    result = run.add_record(payment(0, 900), "payments").run()
    assert (result.records("alerts"), result.reference(FraudRules.rules)) == ([], {})


def test_an_older_change_does_not_replace_a_newer_one() -> None:
    result = new_run(change(100, at=1)).end_batch().add_record(change(200), "rules").run()
    assert result.reference(FraudRules.rules) == {"r": Rule(10, 100)}


def test_rules_do_not_delay_payments_or_make_them_late() -> None:
    run = new_run(change(100, at=900)).end_batch().add_record(payment(0, 900), "payments")
    result = run.run()
    assert (len(result.records("alerts")), result.late) == (1, [])


def test_a_broken_change_becomes_a_dead_letter_and_the_rule_stays() -> None:
    run = new_run(change(100)).end_batch().add_record(line(1, rule="r", cents="many", minutes=1), "rules")
    result = run.run()
    assert [letter.source for letter in result.dead_letters] == ["rules"]
    assert result.reference(FraudRules.rules) == {"r": Rule(10, 100)}


def test_alerts_of_the_sample() -> None:
    run = new_run(*(HERE / "rules.jsonl").read_bytes().splitlines())
    run.add_records((HERE / "payments.jsonl").read_bytes().splitlines(), "payments")
    assert [(alert.card, alert.rule) for alert in run.run().records("alerts")] == [
        ("c1", "ten minutes"),
        ("c2", "hour"),
    ]


@pytest.mark.parametrize("seed", range(5))
def test_the_alerts_are_those_of_plain_python(seed: int) -> None:
    run, batches = TestRun(job), random_batches(seed)
    for changes, payments in batches:
        run.add_records(changes, "rules").add_records(payments, "payments").end_batch()
    result = run.run()
    assert sorted(map(attrs.astuple, result.records("alerts"))) == sorted(alerts(batches))
    assert (result.late, result.dead_letters) == ([], [])
