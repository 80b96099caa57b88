"""Checks card payments against rules that change while the job runs.

The lines of `payments.jsonl` and `rules.jsonl` show the fields of a payment and of a change of a rule. The exact rules:

- A rule limits the sum of a card's payments within some minutes, up to an hour. A payment raises an alert for each rule
  whose limit it exceeds, together with the card's payments that arrived before it and are less than this time older.
- A change replaces the rule with its name, or adds it. If its `cents` are null, the change removes the rule. If several
  changes have the same name, the newest by time counts.
- A payment is checked in the batch in which it arrives, against the rules after all changes in this batch.
"""

from datetime import datetime, timedelta

import orjson
from attrs import frozen

from amadou import Handler, Job, KeyedEvent, ListSpec, Param, ReferenceSpec, SinkSpec, Subject
from amadou_plugins.connectors import JsonLinesSink, LinesSource
from amadou_runtime import main


@frozen
class Rule:
    minutes: int
    cents: int


@frozen
class Payment:
    time: datetime
    cents: int


@frozen
class Alert:
    card: str
    time: datetime
    rule: str
    cents: int


class FraudRules(Handler[str]):
    """Raises an alert for each rule that a payment violates."""

    rules = ReferenceSpec(str, Rule, source="rules")
    payments = ListSpec(Payment, ttl=timedelta(hours=1))
    alerts = SinkSpec(Alert)

    def key_event(self, record: bytes) -> KeyedEvent[int]:
        payment = orjson.loads(record)
        return KeyedEvent(payment["card"], datetime.fromisoformat(payment["time"]), payment["cents"])

    def on_event(self, subject: Subject[str], event: KeyedEvent[int]) -> None:
        payments = self.payments.state_for(subject)
        payments.append(Payment(event.timestamp, event.value))
        for name, rule in self.rules.items(subject):
            since = event.timestamp - timedelta(minutes=rule.minutes)
            cents = sum(payment.cents for payment in payments if since < payment.time <= event.timestamp)
            if cents > rule.cents:
                self.alerts.collect(subject, Alert(subject.key, event.timestamp, name, cents))


def change_of(record: bytes) -> KeyedEvent[Rule | None]:
    """Return a change of a rule as an event of the reference's source: `None` removes the rule."""
    change = orjson.loads(record)
    rule = None if change["cents"] is None else Rule(change["minutes"], change["cents"])
    return KeyedEvent(change["rule"], datetime.fromisoformat(change["time"]), rule)


job = Job(
    "fraud-rules",
    handler=FraudRules(),
    sources={
        "payments": LinesSource(Param("PAYMENTS", default="payments/")),
        "rules": LinesSource(Param("RULES", default="rules/"), key_event=change_of),
    },
    sinks={"alerts": JsonLinesSink(Param("ALERTS", default="alerts/"))},
    watermark_delay=timedelta(minutes=5),
    on_error="dead_letter",
)

if __name__ == "__main__":
    main(job)
