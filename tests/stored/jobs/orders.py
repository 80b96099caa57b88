"""Adds the customer's name and country, from a table of PostgreSQL, to each order.

The exact rules:

- An order with a known customer becomes an `EnrichedOrder`. The customer's row is the one that the table has when the
  order's batch is processed; a worker may use a row for a minute.
- An order with an unknown customer goes to the port `unknown`.
- If the database does not answer within five seconds, four times in a row, the order becomes a dead letter.
"""

from datetime import datetime, timedelta

import orjson
from attrs import frozen

from amadou import Handler, Job, KeyedEvent, Lookup, Param, SinkSpec, Subject
from amadou_plugins.connectors import JsonLinesSink, LinesSource
from amadou_plugins.lookups import PostgresRows
from amadou_runtime import main


@frozen
class Order:
    number: int
    customer: str
    cents: int


@frozen
class Customer:
    name: str
    country: str


@frozen
class EnrichedOrder:
    number: int
    timestamp: datetime
    cents: int
    customer: str
    name: str
    country: str


class EnrichOrders(Handler[str]):
    """Adds customers to orders."""

    enriched = SinkSpec(EnrichedOrder)
    unknown = SinkSpec(Order)

    customers: Lookup[str, Customer] = Lookup(
        PostgresRows(
            Param("DATABASE", default="postgresql://127.0.0.1:5432/shop"),
            "customers",
            key="id",
            columns=["name", "country"],
            row=Customer,
            username=Param("DATABASE_USER", default=None),
            password=Param("DATABASE_PASSWORD", default=None, secret=True),
        ),
        key=lambda event: event.value.customer,
        timeout=5,
        ttl=timedelta(minutes=1),
        on_failure="dead_letter",
    )

    def key_event(self, record: bytes) -> KeyedEvent[Order, str]:
        fields = orjson.loads(record)
        order = Order(fields["number"], fields["customer"], fields["cents"])
        return KeyedEvent(order.customer, datetime.fromisoformat(fields["timestamp"]), order)

    def on_event(self, subject: Subject[str], event: KeyedEvent[Order, str]) -> None:
        order = event.value
        customer = self.customers.get(subject, order.customer)
        if customer is None:
            self.unknown.collect(subject, order)
            return
        self.enriched.collect(
            subject,
            EnrichedOrder(order.number, event.timestamp, order.cents, order.customer, customer.name, customer.country),
        )


job = Job(
    "orders",
    handler=EnrichOrders(),
    sources={"orders": LinesSource(Param("ORDERS", default="orders.jsonl"))},
    sinks={
        "enriched": JsonLinesSink(Param("ENRICHED", default="enriched/")),
        "unknown": JsonLinesSink(Param("UNKNOWN", default="unknown/")),
        "dead_letters": JsonLinesSink(Param("DEAD_LETTERS", default="dead_letters/")),
    },
    on_error="dead_letter",
)

if __name__ == "__main__":
    main(job)
