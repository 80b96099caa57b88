"""A made-up run for the console: a web shop that matches orders with payments, and had an outage of its orders."""

import math
import random
from collections.abc import Iterator, Mapping
from datetime import datetime, timedelta
from itertools import count, islice
from tempfile import TemporaryDirectory
from typing import Any
from urllib.parse import quote

import orjson
from attrs import frozen

from amadou import DependsOn, Handler, Job, KeyedEvent, MapSpec, SinkSpec, Subject, ValueSpec
from amadou.plugins import (
    BatchReport,
    Counts,
    DeadLetterReport,
    FailedBatch,
    LateEventReport,
    PartitionReport,
    Run,
    RunSummary,
)
from amadou_plugins.aggregates import Count, Sum
from amadou_plugins.connectors import JsonLinesSink, KafkaSink, KafkaSource, ParquetSink
from amadou_plugins.console import Console
from amadou_plugins.console._pages import PAGES
from amadou_plugins.windows import TumblingWindow, Window
from amadou_runtime import TestRun
from amadou_runtime.jobs.job_document import job_document
from amadou_runtime.savepoint.savepoint import Savepoint
from amadou_runtime.savepoint.stored_keys import find_key, key_document

CUSTOMER = "customer-4711"
"""The key that has state."""
_QUERIES = {"/state": f"?key={quote(CUSTOMER)}"}
"""What a page needs to have something to show."""
ADDRESSES = {page: f"{page}{_QUERIES.get(page, '')}" for page in PAGES}
"""The address of each page of the console with something to show."""
LETTER = "/letters/305-0"
"""The address of a dead letter."""

HOUR = timedelta(hours=1)

_INTERVAL = timedelta(seconds=10)
_BATCHES = HOUR // _INTERVAL
_OUTAGE = range(200, 213)
"""Batches that can only read a part of the orders."""
_FAILING = (8, 61, 155, 156, 240, 305, 352)
"""Batches with a dead letter."""
_FAILED = _BATCHES - 4
"""A batch that failed at first."""
_ERROR = "Shop.on_event failed: KeyError: 'cents'"
_THRESHOLD = timedelta(minutes=1)
_WATERMARK_DELAY = timedelta(seconds=20)


_TRACEBACK = """\
Traceback (most recent call last):
  File "/app/shop.py", line 48, in on_event
    self.unpaid.state_for(subject)[order] = event.value["cents"]
                                            ~~~~~~~~~~~^^^^^^^^^
KeyError: 'cents'
"""


@frozen
class Sales:
    customer: str
    hour: datetime
    orders: int
    cents: int


@frozen
class Reminder:
    customer: str
    order: str
    cents: int


class Shop(Handler):
    """Sums each customer's orders by the hour, and reminds of orders that are not paid within a day."""

    sales = SinkSpec(Sales)
    reminders = SinkSpec(Reminder)

    unpaid = MapSpec(str, int)
    last_payment = ValueSpec(datetime, ttl=timedelta(days=90))
    by_hour = TumblingWindow(HOUR, {"orders": Count(), "cents": Sum("cents")}, late="divert")

    def key_event(self, record: bytes) -> KeyedEvent[dict[str, Any]]:
        fields = orjson.loads(record)
        return KeyedEvent(fields["customer"], datetime.fromisoformat(fields["timestamp"]), fields)

    def on_event(self, subject: Subject, event: KeyedEvent[dict[str, Any]]) -> None:
        order = event.value["order"]
        if subject.source == "payments":
            self.unpaid.state_for(subject).pop(order, None)
            self.last_payment.state_for(subject).value = event.timestamp
        else:
            self.unpaid.state_for(subject)[order] = event.value["cents"]
            self.by_hour.add(subject, event)
            subject.set_timer(event.timestamp + timedelta(days=1), order)

    def on_timer_expired(self, subject: Subject, timestamp: datetime) -> None:
        cents = self.unpaid.state_for(subject).get(subject.timer_tag)
        if cents is not None:
            self.reminders.collect(subject, Reminder(subject.key, subject.timer_tag, cents))

    @by_hour.on_close
    def hour_ended(self, subject: Subject, window: Window, value: dict[str, int]) -> None:
        self.sales.collect(subject, Sales(window.key, window.start, value["orders"], value["cents"]))


def image_of(page: str, scheme: str) -> str:
    """Return the path of a page's picture for the docs, as `scripts/screenshots` writes it."""
    return f"docs/images/console-{page.strip('/') or 'overview'}-{scheme}.png"


def shop() -> Job:
    servers = "broker-1:9092,broker-2:9092"
    return Job(
        "shop",
        Shop(),
        {"orders": KafkaSource("orders", servers), "payments": KafkaSource("payments", servers)},
        {
            "sales": ParquetSink("/data/shop/sales/"),
            "reminders": KafkaSink("reminders", servers),
            "late_events": JsonLinesSink("/data/shop/late/"),
            "dead_letters": JsonLinesSink("/data/shop/letters/"),
        },
        dependencies=[DependsOn("payments", on="orders", threshold=_THRESHOLD)],
        watermark_delay=_WATERMARK_DELAY,
        on_error="dead_letter",
    )


@frozen
class State:
    """State with one key; see `amadou.plugins.StateReader`."""

    document: Mapping[str, Any]

    def find(self, key: str, stage: str = "") -> Mapping[str, Any] | None:
        return self.document if key == CUSTOMER else None


def shop_run(job: Job, now: datetime) -> Run:
    """Return a run that has lasted an hour."""
    document = {**_document(job, now), "batch": _BATCHES - 1}
    return Run(
        "shop-1",
        job,
        "spark",
        "/data/shop/checkpoint",
        trigger="10 seconds",
        interval=_INTERVAL,
        description={**job_document(job), "handler": "shop.Shop"},
        state=State(document),
        reproduce=lambda letter: f"def test_on_event_without_key_error():\n    # {letter.error}\n",
    )


def _document(job: Job, now: datetime) -> dict[str, Any]:
    """Return the state of a customer who has paid one order; the payment of another one is held."""
    with TemporaryDirectory() as directory, TestRun(job, engine="embedded") as run:
        for source, minutes, order, cents in (
            ("orders", 42, "20417", 1999),
            ("orders", 17, "20533", 5450),
            ("payments", 38, "20417", 1999),
            ("payments", 1, "20533", 5450),
        ):
            timestamp = (now - minutes * timedelta(minutes=1)).isoformat()
            record = {"customer": CUSTOMER, "order": order, "cents": cents, "timestamp": timestamp}
            run.add_records([orjson.dumps(record)], source=source)
        run.run()
        run.savepoint(f"{directory}/savepoint")
        savepoint = Savepoint(f"{directory}/savepoint")
        found = find_key(savepoint, CUSTOMER, job)
        assert found is not None
        return key_document(found, savepoint)


def shop_reports(now: datetime) -> Iterator[BatchReport]:
    """Yield the reports of the last hour's batches, and then of later batches, without end."""
    chance = random.Random(4711)
    unread, held = 0, 0
    for number in count():
        rate = int(420 * (1 + 0.4 * math.sin(2 * math.pi * number / _BATCHES - 1)) * chance.uniform(0.85, 1.15))
        orders = min(rate + unread, int(rate * (0.15 if number in _OUTAGE else 2.5)))
        unread += rate - orders
        behind = timedelta(seconds=chance.uniform(1, 3)) + unread / rate * _INTERVAL
        is_down = behind > _THRESHOLD
        payments = int(rate * 0.93)
        processed, held = (0, held + payments) if is_down else (held + payments, 0)
        records = {"orders": orders, "payments": payments}
        counts = _counts(number, records, orders + processed, held, chance)
        completed = now - HOUR + (number + 1) * _INTERVAL
        yield _report(counts, number, completed, behind, unread, chance)


def _counts(number: int, records: Mapping[str, int], events: int, held: int, chance: random.Random) -> Counts:
    orders, late = records["orders"], chance.choice((0, 0, 0, 1, 2, 5))
    return Counts(
        records=records,
        events=events,
        late=late,
        timers_set=orders,
        timers_fired=orders // 12,
        outputs={
            "sales": orders // 9,
            "reminders": orders // 40,
            "late_events": late,
            "dead_letters": int(number in _FAILING),
        },
        state_bytes_written=240 * orders,
        keys=18_400 + 9 * number,
        timers_pending=39_200 + 23 * number,
        state_entries=18_400 + 9 * number,
        state_bytes=6_300_000 + 2_900 * number,
        held={"payments": held} if held else {},
    )


def _report(
    counts: Counts, number: int, completed: datetime, behind: timedelta, unread: int, chance: random.Random
) -> BatchReport:
    orders, payments = counts.records["orders"], counts.records["payments"]
    on_time = chance.uniform(0.6, 1) * timedelta(seconds=1)
    stages = {"keying": 0.05 + (orders + payments) / 9e3, "processing": 0.2 + counts.events / 2200}
    stages |= {"writing": 0.08 + orders / 2e4, "committing": chance.uniform(0.05, 0.4)}
    return BatchReport(
        number,
        counts,
        completed - behind - _WATERMARK_DELAY,
        0.4 + sum(stages.values()) / 2,
        completed,
        stages,
        {"key_event": (orders + payments) / 8e4, "on_event": counts.events / 3e4, "by_hour": orders / 6e4},
        {"key_event": orders + payments, "on_event": counts.events, "by_hour": orders // 9},
        {"orders": behind > _THRESHOLD},
        (
            PartitionReport("orders", "0", completed - on_time, 0, timedelta(), False),
            PartitionReport("orders", "1", completed - behind, unread, behind, True),
            PartitionReport("payments", "0", completed - on_time, 0, timedelta(), False),
        ),
        dead_letters=[_letter(completed, chance)] * counts.dead_letters,
        late_events=[_late(completed, chance) for _ in range(min(counts.late, 5))],
    )


def _letter(completed: datetime, chance: random.Random) -> DeadLetterReport:
    customer, order = f"customer-{chance.randrange(9999)}", str(chance.randrange(99999))
    timestamp = completed - timedelta(seconds=3)
    return DeadLetterReport(
        callback="on_event",
        error="KeyError: 'cents'",
        traceback=_TRACEBACK,
        shown=f"KeyedEvent(key={customer!r}, timestamp={timestamp!r}, value={{'customer': {customer!r}, 'order': "
        f"{order!r}, 'euros': 19.99}})",
        source="orders",
        key=repr(customer),
        timestamp=timestamp,
        tag="",
        watermark=completed - _WATERMARK_DELAY,
        state={"unpaid": f"{{'{int(order) - 17}': 5450}}"},
        timers=[(timestamp + timedelta(hours=3), str(int(order) - 17))],
        packed=b"packed",
    )


def _late(completed: datetime, chance: random.Random) -> LateEventReport:
    customer, order = f"customer-{chance.randrange(9999)}", str(chance.randrange(99999))
    timestamp = completed - timedelta(hours=chance.uniform(1, 9))
    value = f"{{'customer': {customer!r}, 'order': {order!r}, 'cents': {chance.randrange(9999)}}}"
    return LateEventReport("diverted", "orders", repr(customer), timestamp, value, completed, "by_hour")


class ShopConsole:
    """A console that shows the made-up run.

    :ivar url: the console's address with its token
    """

    def __init__(self, now: datetime) -> None:
        self._console = Console()
        self._run = shop_run(shop(), now)
        self._reports = shop_reports(now)
        self._console.amadou_run_started(self._run)
        self.add(_BATCHES)
        assert self._console.url is not None
        self.url = self._console.url

    def add(self, batches: int = 1) -> int:
        """Complete batches, and return the number of the last one."""
        for report in islice(self._reports, batches):
            if report.number == _FAILED:
                failed = FailedBatch(
                    report.number, _ERROR, f"{_TRACEBACK}\n{_ERROR}", 1.2, report.completed - _INTERVAL
                )
                self._console.amadou_batch_failed(self._run, failed)
            self._console.amadou_batch_completed(self._run, report)
        return report.number

    def end(self) -> None:
        """End the run."""
        self._console.amadou_run_ended(self._run, RunSummary(self._run.job.name))
