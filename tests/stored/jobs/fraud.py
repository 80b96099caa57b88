"""Reads payments from a Kafka topic, and writes an alert to a PostgreSQL table for suspected card fraud.

A payment is a JSON object with the fields of `Payment`, and the record's key is the card. An alert is raised for:

- **burst**: the sixth payment of a card within ten minutes (exactly ten minutes still count). After an alert, these six
  payments no longer count: the next alert needs six other payments.
- **amount**: a payment of more than ten times the mean of the card's earlier payments, if there are at least five.
- **travel**: a payment in another country less than an hour after the card's previous payment.

If a card has no payments for 30 days, its history is dropped.

The rules use the times of payments, not their order of arrival: terminals submit payments up to ten seconds late. When
the watermark has passed the time of a payment, a timer fires and the payment is checked. So the alerts do not depend on
the order of records within ten seconds, or on how the stream is split into batches.
"""

from datetime import datetime, timedelta

import orjson
from attrs import field, frozen
from attrs.validators import gt, instance_of, matches_re

from amadou import Handler, Job, KeyedEvent, MapSpec, Param, SinkSpec, Subject, ValueSpec
from amadou_plugins.aggregates import Count, Mean, RunningSpec
from amadou_plugins.connectors import KafkaRecord, KafkaSource, PostgresSink
from amadou_runtime import main

BURST = 6
BURST_WITHIN = timedelta(minutes=10)
AMOUNT_FACTOR = 10
AMOUNT_AFTER = 5
TRAVEL = timedelta(hours=1)
MEMORY = timedelta(days=30)
FORGET = "forget"
MICROSECOND = timedelta(microseconds=1)


@frozen
class Payment:
    id: str = field(validator=instance_of(str))
    card: str = field(validator=instance_of(str))
    time: datetime
    cents: int = field(validator=[instance_of(int), gt(0)])
    country: str = field(validator=matches_re("[A-Z]{2}"))


@frozen
class Alert:
    card: str
    time: datetime
    rule: str
    payment: str
    reason: str


@frozen
class Latest:
    """History of a card, as of its latest payment.

    :param times: times of the payments that count towards a burst
    """

    time: datetime
    country: str
    times: tuple[datetime, ...]


class Fraud(Handler[str]):
    """Checks the payments of each card in time order."""

    waiting = MapSpec(datetime, list[Payment])
    latest = ValueSpec(Latest)
    spending = RunningSpec({"payments": Count(), "mean": Mean("cents")})
    alerts = SinkSpec(Alert)

    def key_event(self, record: KafkaRecord) -> KeyedEvent[Payment]:
        fields = orjson.loads(record.value or b"")
        payment = Payment(
            fields["id"],
            fields["card"],
            datetime.fromisoformat(fields["time"]),
            fields["cents"],
            fields["country"],
        )
        return KeyedEvent(payment.card, payment.time, payment)

    def on_event(self, subject: Subject[str], event: KeyedEvent[Payment]) -> None:
        waiting = self.waiting.state_for(subject)
        waiting[event.timestamp] = [*waiting.get(event.timestamp, []), event.value]
        # While the watermark is exactly at this time, other payments of the same time can still arrive.
        subject.set_timer(event.timestamp + MICROSECOND)

    def on_timer_expired(self, subject: Subject[str], timestamp: datetime) -> None:
        if subject.timer_tag != FORGET:
            waiting, time = self.waiting.state_for(subject), timestamp - MICROSECOND
            for payment in sorted(waiting.pop(time), key=lambda each: each.id):
                self.judge(subject, payment)
            # A large batch can advance the watermark past this time. Waiting payments are then checked first.
            if subject.set_timer(time + MEMORY, FORGET) or waiting:
                return
        self.latest.state_for(subject).clear()
        self.spending.state_for(subject).clear()

    def judge(self, subject: Subject[str], payment: Payment) -> None:
        state, spending = self.latest.state_for(subject), self.spending.state_for(subject)
        latest = state.value
        if latest is not None:
            subject.delete_timer(latest.time + MEMORY, FORGET)
        if latest is None or payment.time - latest.time >= MEMORY:
            latest = Latest(payment.time, payment.country, ())
            spending.clear()

        times = (*(time for time in latest.times if payment.time - time <= BURST_WITHIN), payment.time)
        if len(times) == BURST:
            self.alert(subject, payment, "burst", f"{BURST} payments since {times[0].isoformat()}")
            times = ()
        before = spending.value
        if before["payments"] >= AMOUNT_AFTER and payment.cents > AMOUNT_FACTOR * before["mean"]:
            self.alert(subject, payment, "amount", f"{payment.cents} cents, where the mean is {before['mean']:.0f}")
        if payment.country != latest.country and payment.time - latest.time < TRAVEL:
            self.alert(subject, payment, "travel", f"{payment.country} after {latest.country}")

        state.value = Latest(payment.time, payment.country, times)
        self.spending.add(subject, KeyedEvent(payment.card, payment.time, payment))

    def alert(self, subject: Subject[str], payment: Payment, rule: str, reason: str) -> None:
        self.alerts.collect(subject, Alert(payment.card, payment.time, rule, payment.id, reason))


def table(name: str) -> PostgresSink:
    return PostgresSink(
        Param("DATABASE", default="postgresql://localhost/fraud"),
        name,
        username=Param("DB_USER", default="fraud"),
        password=Param("DB_PASSWORD", secret=True),
    )


job = Job(
    "fraud",
    handler=Fraud(),
    sources={
        "payments": KafkaSource(
            Param("TOPIC", default="payments"),
            Param("KAFKA", default="localhost:9092"),
            max_records_per_batch=Param("RECORDS_PER_BATCH", default=50_000, type=int),
        )
    },
    sinks={name: table(name) for name in ("alerts", "late_events", "dead_letters")},
    watermark_delay=timedelta(seconds=10),  # the maximum delay of terminals; alerts are delayed by this time
    idle_timeout=timedelta(minutes=1),  # maximum time that a partition without records delays alerts, e.g. at night
    late_events="divert",  # payments that arrive even later are not checked: review them manually
    on_error="dead_letter",
    max_ahead=timedelta(minutes=5),  # a terminal with a wrong clock cannot make other payments late
)

if __name__ == "__main__":
    main(job)
