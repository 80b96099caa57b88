"""The jobs of the state benchmark: amadou's handlers, and the same jobs in Spark SQL.

Python workers import this module.
"""

from collections.abc import Callable, Sequence
from datetime import datetime, timedelta, timezone
from hashlib import shake_256
from typing import Any

import orjson
from attrs import evolve, field, frozen

from amadou import Handler, KeyedEvent, Subject, ValueSpec
from amadou.plugins import Codec, Sink, SinkBatch, SinkWriter
from amadou_plugins.aggregates import Count
from amadou_plugins.windows import TumblingWindow, windowed

PAYLOAD_BYTES = 1000
NEVER = datetime(2100, 1, 1, tzinfo=timezone.utc)
SCHEMA = "key string, timestamp timestamp"


class Counters(Handler[str]):
    """Counts the events of each key."""

    counts = ValueSpec(int, default=0)

    def key_event(self, record: bytes) -> KeyedEvent[None]:
        event = orjson.loads(record)
        return KeyedEvent(event["key"], datetime.fromisoformat(event["timestamp"]))

    def on_event(self, subject: Subject[str], event: KeyedEvent[None]) -> None:
        count = self.counts.state_for(subject)
        count.value += 1
        subject.count("sum", count.value)


@frozen
class Account:
    """A counter, and bytes that do not compress."""

    count: int
    payload: bytes


class Payloads(Counters):
    """Counts the events of each key. The state of a key is one value: the count and 1,000 bytes."""

    counts = ValueSpec(Account)

    def on_event(self, subject: Subject[str], event: KeyedEvent[None]) -> None:
        state = self.counts.state_for(subject)
        account = state.value if state.exists else Account(0, shake_256(subject.key.encode()).digest(PAYLOAD_BYTES))
        state.value = account = evolve(account, count=account.count + 1)
        subject.count("sum", account.count)
        subject.count("bytes", len(account.payload))


class Timers(Counters):
    """Counts the events of each key. Each key always has one pending timer: the timer of its first event, and then a
    timer in the far future.
    """

    def key_event(self, record: bytes) -> KeyedEvent[datetime | None]:
        event = orjson.loads(record)
        due = event.get("due")
        return KeyedEvent(event["key"], datetime.fromisoformat(event["timestamp"]), due and datetime.fromisoformat(due))

    def on_event(self, subject: Subject[str], event: KeyedEvent[datetime | None]) -> None:
        super().on_event(subject, event)
        if event.value is not None:
            subject.set_timer(event.value)

    def on_timer_expired(self, subject: Subject[str], timestamp: datetime) -> None:
        subject.set_timer(NEVER)


def day_windows() -> Handler:
    """Return a handler that counts the events of each key per day."""
    return windowed(key="key", timestamp="timestamp", window=TumblingWindow(timedelta(days=1), Count()))


@frozen
class TallySink(Sink):
    """Counts results instead of writing them.

    :param found: totals of all batches, in the process that started the run
    """

    found: dict[str, int] = field(factory=dict, eq=False)

    def open(self, batch: SinkBatch, part: str) -> SinkWriter:
        return _TallyWriter(batch.codec)

    def commit(self, batch: SinkBatch, parts: Sequence[dict[str, int]]) -> None:
        for part in parts:
            for name, number in part.items():
                self.found[name] = self.found.get(name, 0) + number


class _TallyWriter(SinkWriter):
    def __init__(self, codec: Codec[Any]) -> None:
        self._codec = codec
        self._found = {"windows": 0, "sum": 0, "squares": 0}

    def write(self, encoded_values: Sequence[Any]) -> None:
        counts = [self._codec.decode(encoded).value for encoded in encoded_values]
        self._found["windows"] += len(counts)
        self._found["sum"] += sum(counts)
        self._found["squares"] += sum(count * count for count in counts)

    def finish(self) -> Any:
        return self._found


def spark_counters(events: Any) -> Any:
    """Return Spark SQL's counts per key, and report their sum without another job."""
    from pyspark.sql.functions import sum as sum_

    return events.groupBy("key").count().observe("found", sum_("count").alias("sum"))


def spark_day_windows(events: Any) -> Any:
    """Return Spark SQL's counts per key and day."""
    from pyspark.sql.functions import count, expr, window
    from pyspark.sql.functions import sum as sum_

    counted = events.withWatermark("timestamp", "0 seconds").groupBy("key", window("timestamp", "1 day")).count()
    totals = count("*").alias("windows"), sum_("count").alias("sum"), sum_(expr("count * count")).alias("squares")
    return counted.observe("found", *totals)


SparkQuery = Callable[[Any], Any]
"""Function that turns a data frame of events into the query's results."""


@frozen
class Case:
    """A job and the numbers of keys to run it with.

    :param title: the state of the job
    :param keys: numbers of stored keys
    :param handler: function that creates amadou's handler
    :param query: the same job in Spark SQL, if there is one
    :param mode: output mode of the Spark query
    :param payload_bytes: bytes in the state of a key, beside the count
    :param has_timers: `True` if each key has a timer, and some timers are due in every batch
    :param has_windows: `True` if each key has an open window
    """

    title: str
    keys: tuple[int, ...]
    handler: Callable[[], Handler]
    query: SparkQuery | None = None
    mode: str = "update"
    payload_bytes: int = 0
    has_timers: bool = False
    has_windows: bool = False

    @property
    def peers(self) -> list[str]:
        return ["amadou"] + ["spark-sql"] * (self.query is not None)


COUNTERS = Case("a count per key", (100_000, 1_000_000, 10_000_000), Counters, spark_counters)
PAYLOAD = Case("a count and 1,000 bytes per key", (50_000, 500_000), Payloads, payload_bytes=PAYLOAD_BYTES)
TIMERS = Case(
    "a count and a pending timer per key, with 1,000 timers due in each batch",
    (100_000, 10_000_000),
    Timers,
    has_timers=True,
)
WINDOWS = Case(
    "an open one-day window per key, with a count",
    (50_000, 5_000_000),
    day_windows,
    spark_day_windows,
    mode="append",
    has_windows=True,
)
STEADY = {"counters": COUNTERS, "payload": PAYLOAD, "timers": TIMERS, "windows": WINDOWS}
"""The cases that compare the time of a batch."""
WRITTEN = {"counters": evolve(COUNTERS, keys=(1_000_000,)), "payload": evolve(PAYLOAD, keys=(50_000,))}
"""The jobs of the case `written`."""
RESTART = evolve(COUNTERS, keys=(10_000_000,))
