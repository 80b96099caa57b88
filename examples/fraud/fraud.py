"""Raises alerts for payments that look like card fraud, from a Kafka topic into a table of PostgreSQL.

A payment is a JSON object with the fields of `Payment`; its record's key is the card. An alert is raised for

- **burst**: the sixth payment of a card within ten minutes (ten whole minutes still count). After an alert the six
  count no more: the next one takes six others.
- **amount**: a payment of more than ten times the mean of the card's payments before it, once there are five of them.
- **travel**: a payment in another country less than an hour after the one before it.

A card that has not paid for 30 days begins anew.

The rules go by the times of payments, not by the order in which they come: terminals hand payments in up to ten seconds
late. Each payment waits until the watermark is past it, and is judged by a timer then. So alerts are the same for every
order of records within ten seconds, and for every cut of the stream into batches.
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
    """What is known of a card after its latest payment.

    :param times: when the payments were that count for a burst
    """

    time: datetime
    country: str
    times: tuple[datetime, ...]


class Fraud(Handler[str]):
    """Judges the payments of each card in the order of their times."""

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
        # At this time itself the watermark may stand while payments of it are still to come.
        subject.set_timer(event.timestamp + MICROSECOND)

    def on_timer_expired(self, subject: Subject[str], timestamp: datetime) -> None:
        if subject.timer_tag != FORGET:
            waiting, time = self.waiting.state_for(subject), timestamp - MICROSECOND
            for payment in sorted(waiting.pop(time), key=lambda each: each.id):
                self.judge(subject, payment)
            # A batch that brought a lot may have taken the watermark beyond: what waits comes first then.
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
    watermark_delay=timedelta(seconds=10),  # as late as terminals hand in; alerts wait for as long
    idle_timeout=timedelta(minutes=1),  # a partition without payments at night delays no alert of others for longer
    late_events="divert",  # what comes later was not judged: somebody has to look at it
    on_error="dead_letter",
    max_ahead=timedelta(minutes=5),  # a terminal whose clock is wrong makes nobody else late
)

if __name__ == "__main__":
    main(job)
