"""Generates payments for `fraud.py`: `python payments.py COUNT` writes COUNT payments to a new Kafka topic."""

import json
import os
import random
import sys
from collections.abc import Iterator
from datetime import datetime, timedelta, timezone
from typing import Any

BEGIN = datetime(2025, 3, 1, 12, tzinfo=timezone.utc)
BROKEN = (
    b"",
    b"card c1 paid",
    b'{"id": "x", "card": "c1", "cents": 100, "country": "FR"}',
    b'{"id": "x", "card": "c1", "time": "2025-03-01T12:00:00", "cents": 100, "country": "FR"}',
    b'{"id": "x", "card": "c1", "time": "2025-03-01T12:00:00Z", "cents": "100", "country": "FR"}',
    b'{"id": "x", "card": "c1", "time": "2025-03-01T12:00:00Z", "cents": -100, "country": "FR"}',
    b'{"id": "x", "card": "c1", "time": "2925-03-01T12:00:00Z", "cents": 100, "country": "FR"}',
)


def payments(count: int, seed: int, cards: int = 100) -> Iterator[tuple[str, bytes]]:
    """Yield cards and records in order of arrival: each up to ten seconds late, and a few invalid."""
    drawn = random.Random(seed)
    time = BEGIN
    sent = []
    for number in range(count):
        time += timedelta(seconds=drawn.choice((0, 1, 2, 5, 60)), milliseconds=drawn.choice((0, 0, 250, 500)))
        card = f"card-{int(drawn.random() ** 2 * cards):03}"  # some cards are used much more often than others
        cents = round(drawn.lognormvariate(7, 0.7) * drawn.choice((1,) * 80 + (20,))) + 1
        country = drawn.choice(("FR",) * 150 + ("DE", "BR"))
        payment = {"id": f"p{number}", "card": card, "time": time.isoformat(), "cents": cents, "country": country}
        record = drawn.choice(BROKEN) if drawn.random() < 0.005 else json.dumps(payment).encode()
        sent.append((time + timedelta(seconds=drawn.choice((0, 1, 9.9)) * drawn.random()), card, record))
    for _, card, record in sorted(sent):
        yield card, record


if __name__ == "__main__":
    from confluent_kafka import Producer
    from confluent_kafka.admin import AdminClient
    from confluent_kafka.cimpl import NewTopic

    kafka: dict[str, Any] = {"bootstrap.servers": os.environ.get("KAFKA", "localhost:9092")}
    topic = os.environ.get("TOPIC", "payments")
    admin, producer = AdminClient(kafka), Producer(kafka)
    admin.create_topics([NewTopic(topic, 3, 1)])[topic].result()
    for card, record in payments(int(sys.argv[1]), seed=1):
        producer.produce(topic, record, key=card)
    producer.flush()
