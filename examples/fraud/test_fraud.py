"""Tests of `fraud.py`: rule by rule, and in comparison with the alerts of a plain Python script."""

import json
import random
from datetime import datetime, timedelta, timezone
from typing import Any

import pytest
from fraud import MEMORY, Alert, job
from fraud_oracle import alerts
from payments import BROKEN, payments

from amadou_plugins.connectors import KafkaRecord
from amadou_runtime import TestRun

NOON = datetime(2025, 3, 1, 12, tzinfo=timezone.utc)
MINUTE = timedelta(minutes=1)


def new_run(**options: Any) -> TestRun:
    return TestRun(job, params={"DB_PASSWORD": "not used"}, **options)


def payment(at: float, cents: int = 1000, country: str = "FR", card: str = "c1", **fields: Any) -> KafkaRecord:
    """Return the record of a payment made `at` minutes after noon."""
    values = {"id": f"{card} {at}", "card": card, "time": (NOON + at * MINUTE).isoformat(), "cents": cents}
    return KafkaRecord(json.dumps(values | {"country": country} | fields).encode())


def raised(*records: KafkaRecord) -> list[tuple[str, str]]:
    """Process the records in one batch. Return the rule and the payment id of each alert."""
    return alerts_of(new_run().add_records(records))


def alerts_of(run: TestRun) -> list[tuple[str, str]]:
    return [(alert.rule, alert.payment) for alert in run.run(flush=True).records("alerts")]


@pytest.mark.parametrize(("sixth", "expected"), [(10, [("burst", "c1 10")]), (10.01, [])])
def test_six_payments_within_ten_minutes_are_a_burst(sixth: float, expected: list[Any]) -> None:
    assert raised(*map(payment, (0, 1, 2, 3, 4, sixth))) == expected


def test_after_a_burst_the_next_one_takes_six_other_payments() -> None:
    assert raised(*map(payment, range(12))) == [("burst", "c1 5"), ("burst", "c1 11")]
    assert raised(*map(payment, range(11))) == [("burst", "c1 5")]


@pytest.mark.parametrize(("cents", "expected"), [(10_000, []), (10_001, [("amount", "c1 99")])])
def test_more_than_ten_times_the_mean_of_five_payments_or_more_raises_an_alert(cents: int, expected: list[Any]) -> None:
    usual = [payment(20 * at, cents) for at, cents in enumerate((500, 1500, 900, 1100, 1000))]
    assert raised(*usual[:4], payment(99, cents)) == []
    assert raised(*usual, payment(99, cents)) == expected


@pytest.mark.parametrize(("second", "expected"), [(59.9, [("travel", "c1 59.9")]), (60, [])])
def test_payments_in_two_countries_within_an_hour_raise_an_alert(second: float, expected: list[Any]) -> None:
    assert raised(payment(0), payment(second, country="BR")) == expected


def test_cards_are_judged_separately() -> None:
    assert raised(*(payment(at, country=f"F{at}", card=f"c{at}") for at in range(6))) == []


def test_an_alert_says_why() -> None:
    run = new_run().add_records([payment(0), payment(5, country="BR")])
    assert run.run(flush=True).records("alerts") == [Alert("c1", NOON + 5 * MINUTE, "travel", "c1 5", "BR after FR")]


def test_payments_are_judged_in_the_order_of_their_times_whatever_the_order_in_which_they_come() -> None:
    run = new_run().add_records([payment(0), payment(0.2)]).end_batch()
    run.add_record(payment(0.04, country="BR"))  # nearly ten seconds behind
    assert alerts_of(run) == [("travel", "c1 0.04"), ("travel", "c1 0.2")]


def test_a_payment_is_judged_once_the_watermark_is_past_it() -> None:
    run = new_run().add_records([payment(0), payment(1, country="BR")]).add_watermark(NOON + MINUTE)
    assert run.run().records("alerts") == [], "other payments of that time can still arrive"
    run.add_watermark(NOON + MINUTE + timedelta(microseconds=1))
    assert len(run.run().records("alerts")) == 1


def test_payments_of_one_time_are_judged_by_their_ids_in_one_batch_or_in_several() -> None:
    first, second = payment(0, id="a"), payment(0, id="b", country="BR")
    for between in (lambda run: run, TestRun.end_batch, lambda run: run.add_watermark(NOON)):
        for records in ((first, second), (second, first)):
            assert alerts_of(between(new_run().add_record(records[0])).add_record(records[1])) == [("travel", "b")]


def test_a_late_payment_is_not_judged_but_diverted() -> None:
    run = new_run().add_record(payment(5)).end_batch().add_record(payment(0, country="BR"))
    result = run.run(flush=True)
    assert result.records("alerts") == []
    assert [(event.key, event.value.id) for event in result.records("late_events")] == [("c1", "c1 0")]


@pytest.mark.parametrize("record", BROKEN)
def test_a_record_that_is_not_a_payment_becomes_a_dead_letter_and_others_are_judged(record: bytes) -> None:
    result = new_run().add_records([payment(0), KafkaRecord(record), payment(5, country="BR")]).run(flush=True)
    assert [letter.record.value for letter in result.dead_letters] == [record]
    assert len(result.records("alerts")) == 1


def test_a_payment_from_the_future_does_not_make_others_late() -> None:
    run = new_run(processing_time=NOON).add_records([payment(0), payment(5.1)]).end_batch()
    result = run.add_record(payment(0.1, country="BR")).run(flush=True)
    assert (len(result.dead_letters), len(result.records("alerts")), result.late) == (1, 1, [])


@pytest.mark.parametrize("cut", ["one batch", "two batches", "a watermark between"])
@pytest.mark.parametrize(("pause", "expected"), [(MEMORY - MINUTE, 1), (MEMORY, 0)])
def test_payments_before_a_pause_of_thirty_days_do_not_count(cut: str, pause: timedelta, expected: int) -> None:
    usual = [payment(20 * number) for number in range(5)]
    much = payment(80 + pause / MINUTE, 20_000)
    run = new_run().add_records(usual)
    if cut == "two batches":
        run.end_batch()
    elif cut == "a watermark between":
        run.add_watermark()
    assert len(alerts_of(run.add_record(much))) == expected


def test_the_state_of_a_card_is_removed_after_thirty_days() -> None:
    run = new_run().add_records(map(payment, range(10))).add_watermark(NOON + MINUTE * 60)
    assert run.run().keys() == ["c1"]
    assert run.add_watermark(NOON + MINUTE * 60 + MEMORY).run().keys() == []


def test_alerts_survive_a_crash_and_a_restart() -> None:
    run = new_run().add_records(map(payment, range(5))).crash(after=3).restart()
    assert alerts_of(run.add_record(payment(5))) == [("burst", "c1 5")]


def test_payments_of_a_partition_that_is_behind_are_not_late() -> None:
    run = new_run().add_record(payment(0), partition="0").add_record(payment(30, card="c2"), partition="1")
    run.end_batch().add_record(payment(1, country="BR"), partition="0")
    assert alerts_of(run) == [("travel", "c1 1")]


@pytest.mark.parametrize("seed", range(2))
def test_the_alerts_are_those_of_plain_python_in_any_batches(seed: int) -> None:
    records = [record for _, record in payments(1000, seed)]
    sizes = random.Random(seed)
    run, start = new_run(), 0
    while start < len(records):
        size = sizes.choice((0, 1, 2, 3, 10, 50, 400))
        run.add_records(map(KafkaRecord, records[start : start + size])).end_batch()
        start += size
    result = run.run(flush=True)
    found = [(alert.card, alert.time, alert.rule, alert.payment) for alert in result.records("alerts")]
    assert sorted(found) == sorted(alerts(records))
    assert {rule for _, _, rule, _ in found} == {"burst", "amount", "travel"}
    assert (result.late, len(result.dead_letters)) == ([], sum(record in BROKEN for record in records))
