"""A job with every kind of state that a single handler can have. Fixtures were made with it: never change it."""

import ast
from datetime import date, datetime, timedelta, timezone
from decimal import Decimal
from enum import Enum
from typing import Any
from uuid import UUID

from attrs import field, frozen

from amadou import (
    DependencyChange,
    DependsOn,
    Handler,
    Job,
    KeyedEvent,
    ListSpec,
    Lookup,
    MapSpec,
    ReferenceChange,
    ReferenceSpec,
    SinkSpec,
    Subject,
    ValueSpec,
)
from amadou_plugins.aggregates import (
    AllOf,
    AnyOf,
    ArgMax,
    ArgMin,
    Collect,
    Correlation,
    Count,
    Covariance,
    DistinctCount,
    Earliest,
    First,
    Last,
    Latest,
    Max,
    Mean,
    Median,
    Min,
    MovingAverage,
    Reduce,
    RunningSpec,
    StdDev,
    Sum,
    TopK,
    Variance,
)
from amadou_plugins.connectors import JsonLinesSink, LinesSource
from amadou_plugins.joins import AsOfJoin, IntervalJoin, LatestJoin
from amadou_plugins.windows import CountWindow, HoppingWindow, SessionWindow, SlidingWindow, TumblingWindow, Window

BEGIN = datetime(2025, 1, 1, tzinfo=timezone.utc)
MINUTE = timedelta(minutes=1)
FAILING = 13
FULL = 1000
"""Events of keys whose numbers are at least this add to every kind of state; others only count."""


class Color(Enum):
    RED = "red"
    BLUE = 2


@frozen
class Item:
    """Has fields of many types."""

    text: str
    number: int
    real: float
    flag: bool
    data: bytes
    at: datetime
    day: date
    span: timedelta
    price: Decimal
    id: UUID
    color: Color
    tags: frozenset[str] = field(repr=lambda tags: str(sorted(tags)))  # the order of a set differs by process
    pairs: tuple[int, str]
    many: list[dict[str, int]]
    other: "Item | None" = None


def item(number: int, other: Item | None = None) -> Item:
    return Item(
        f"text {number}",
        number << 40 if number % 2 else -number,
        number / 3,
        bool(number % 2),
        bytes([number % 256, 0, 255]),
        BEGIN + number * MINUTE,
        date(2025, 1, 1),
        number * timedelta(microseconds=1),
        Decimal(number) / 100,
        UUID(int=number),
        Color.RED if number % 2 else Color.BLUE,
        frozenset({"a", "b"}),
        (number, "x"),
        [{"n": number}],
        other,
    )


@frozen
class Customer:
    name: str
    since: datetime


def customers(numbers: list[int]) -> dict[int, Customer]:
    """The service that a lookup asks."""
    return {number: Customer(f"customer {number}", BEGIN) for number in numbers if number % 5}


@frozen
class Limit:
    most: int
    words: tuple[str, ...] = ()


def limit_of(record: bytes) -> KeyedEvent[Limit | None]:
    name, minute, most = ast.literal_eval(record.decode())
    return KeyedEvent(name, BEGIN + minute * MINUTE, None if most is None else Limit(most, ("a", str(most))))


def added(total: int, value: int) -> int:
    return total + value


VALUE = "value"
ALL_AGGREGATES = {
    "all": AllOf(lambda event: event.value[VALUE] > 0),
    "any": AnyOf(lambda event: event.value[VALUE] % 2 == 0),
    "arg max": ArgMax("text", VALUE),
    "arg min": ArgMin("text", VALUE),
    "collect": Collect("text", limit=3),
    "correlation": Correlation(VALUE, "real"),
    "count": Count(),
    "covariance": Covariance(VALUE, "real"),
    "distinct": DistinctCount("text"),
    "earliest": Earliest(VALUE),
    "first": First("text"),
    "last": Last("text"),
    "latest": Latest(VALUE),
    "max": Max("real"),
    "mean": Mean("real"),
    "median": Median("real"),
    "min": Min("text"),
    "moving": MovingAverage(VALUE, 2),
    "reduce": Reduce(added, VALUE),
    "standard deviation": StdDev("real"),
    "sum": Sum("real"),
    "sum of decimals": Sum("price"),
    "sum of durations": Sum("span"),
    "sum of integers": Sum(VALUE),
    "top": TopK(2, by=VALUE, give=("text", VALUE)),
    "variance": Variance("real"),
}
MERGEABLE = {name: ALL_AGGREGATES[name] for name in ("count", "max", "mean", "median", "sum", "top", "distinct")}
ORDERED = {name: ALL_AGGREGATES[name] for name in ("collect", "count", "first", "last")}


class Kinds(Handler):
    """Adds each event to every kind of state."""

    item = ValueSpec(Item)
    anything = ValueSpec(Any)
    counted = ValueSpec(int, default=0)
    versioned = ValueSpec(int, version=2, migrate=lambda old, version: int(old))
    brief = ValueSpec(str, ttl=15 * MINUTE)
    minutes = MapSpec(datetime, int, ttl=timedelta(hours=1))
    by_pair = MapSpec(tuple[int, str], list[int])
    recent = ListSpec(str, ttl=timedelta(days=1))
    numbers = ListSpec(int)
    running = RunningSpec(ALL_AGGREGATES)
    running_hour = RunningSpec(Mean("real"), ttl=timedelta(hours=1))
    limits = ReferenceSpec(str, Limit, source="limits")
    customers = Lookup(
        customers, key=lambda event: event.value[VALUE], keep=True, type=Customer, key_type=int, ttl=timedelta(days=1)
    )
    out = SinkSpec(list)

    tumbling = TumblingWindow(5 * MINUTE, ALL_AGGREGATES, allowed_lateness=MINUTE, late="divert")
    tumbling_sum = TumblingWindow(7 * MINUTE, Sum("real"), offset=MINUTE, early=2)
    hopping = HoppingWindow(10 * MINUTE, 4 * MINUTE, MERGEABLE, early=2 * MINUTE)
    hopping_events = HoppingWindow(9 * MINUTE, 3 * MINUTE, MovingAverage(VALUE, 3))
    sliding = SlidingWindow(5 * MINUTE, MERGEABLE)
    sliding_ordered = SlidingWindow(3 * MINUTE, ORDERED, max_active=3)
    session = SessionWindow(6 * MINUTE, MERGEABLE, max_duration=20 * MINUTE)
    session_ordered = SessionWindow(4 * MINUTE, ORDERED, ttl=timedelta(hours=2))
    session_events = SessionWindow(4 * MINUTE, MovingAverage(VALUE, 2))
    counting = CountWindow(5, ORDERED)
    counting_hops = CountWindow(4, MERGEABLE, hop=2)
    counting_gaps = CountWindow(2, Sum(VALUE), hop=5)
    in_memory = TumblingWindow(5 * MINUTE, Count(), storage="memory")
    latest = LatestJoin(left="events", right="right", ttl=timedelta(hours=1))
    as_of = AsOfJoin(left="events", right="right", tolerance=3 * MINUTE, direction="nearest")
    as_of_ever = AsOfJoin(left="events", right="right", how="inner")
    interval = IntervalJoin(left="events", right="right", lower=-2 * MINUTE, upper=5 * MINUTE, how="outer")

    def __init__(self) -> None:
        self.made = {name: self.make(name) for name in ("made 1", "made 2")}

    def make(self, name: str) -> TumblingWindow:
        """Return a window that is created at run time."""
        return TumblingWindow(11 * MINUTE, MERGEABLE, name=name, on_close=self.made_closed)

    def key_event(self, record: bytes) -> KeyedEvent[dict[str, Any]]:
        key, minute, number = ast.literal_eval(record.decode())
        value = {
            VALUE: number,
            "text": f"text {number}",
            "real": number / 3,
            "price": Decimal(number) / 100,
            "span": number * timedelta(seconds=1),
        }
        return KeyedEvent(key, BEGIN + minute * MINUTE, value)

    def on_event(self, subject: Subject, event: KeyedEvent[dict[str, Any]]) -> None:
        number = event.value[VALUE]
        self.counted.state_for(subject).value += 1
        if number == FAILING:
            raise ValueError("the unlucky number")
        if number < FULL or subject.source == "needed":
            return
        for join in (self.latest, self.as_of, self.as_of_ever, self.interval):
            join.add(subject, event)
        if subject.source == "right":
            return
        self.out.collect(
            subject, ["event", str(subject.key), number, str(sorted(map(str, self.limits.items(subject))))]
        )
        self.out.collect(subject, ["customer", str(subject.key), number, str(self.customers.get(subject, number))])
        self.limits.watch(subject)
        self.item.state_for(subject).value = item(number, item(1))
        self.anything.state_for(subject).value = {"list": [1, None], "at": event.timestamp, "set": {1, 2}}
        self.versioned.state_for(subject).value = number
        self.brief.state_for(subject).value = str(number)
        self.minutes.state_for(subject)[event.timestamp] = number
        self.by_pair.state_for(subject)[number, "x"] = [number]
        self.recent.state_for(subject).append(str(number))
        self.numbers.state_for(subject).append(number)
        self.running.add(subject, event)
        self.running_hour.add(subject, event)
        for window in (
            *(self.tumbling, self.tumbling_sum, self.hopping, self.hopping_events, self.sliding, self.sliding_ordered),
            *(self.session, self.session_ordered, self.session_events),
            *(self.counting, self.counting_hops, self.counting_gaps, self.in_memory, *self.made.values()),
        ):
            window.add(subject, event)
        subject.set_timer(event.timestamp + 30 * MINUTE)
        subject.set_timer(event.timestamp + 60 * MINUTE, "tag")

    def on_timer_expired(self, subject: Subject, timestamp: datetime) -> None:
        if not subject.timer_tag:
            self.out.collect(subject, ["timer", str(subject.key), str(timestamp)])
            return
        state = [
            *(self.counted, self.versioned, self.brief, self.minutes, self.by_pair, self.recent, self.numbers),
            *(self.item, self.anything),
        ]
        shown = [shown_state(spec.state_for(subject)) for spec in state]
        running = {name: str(value) for name, value in self.running.state_for(subject).value.items()}
        hour = str(self.running_hour.state_for(subject).value)
        self.out.collect(subject, ["timer", str(subject.key), str(timestamp), subject.timer_tag, shown, running, hour])

    def on_reference_changed(self, subject: Subject, change: ReferenceChange) -> None:
        self.out.collect(subject, ["changed", str(subject.key), sorted(change.keys)])

    def on_dependency_down(self, change: DependencyChange) -> None:
        self.out.collect(change.subject, ["down", change.source, str(change.since), str(change.reached)])

    def on_dependency_recovered(self, change: DependencyChange) -> None:
        self.out.collect(change.subject, ["recovered", change.source, str(change.since), str(change.newest)])

    def on_recover_window(self, name: str, subject: Subject) -> TumblingWindow:
        return self.made[name]

    def made_closed(self, subject: Subject, window: Window, value: Any) -> None:
        self.closed("made", subject, window, value)

    @tumbling.on_close
    def tumbling_closed(self, subject: Subject, window: Window, value: Any) -> None:
        self.closed("tumbling", subject, window, value)

    @tumbling_sum.on_close
    def tumbling_sum_closed(self, subject: Subject, window: Window, value: Any) -> None:
        self.closed("tumbling_sum", subject, window, value)

    @hopping.on_close
    def hopping_closed(self, subject: Subject, window: Window, value: Any) -> None:
        self.closed("hopping", subject, window, value)

    @hopping_events.on_close
    def hopping_events_closed(self, subject: Subject, window: Window, value: Any) -> None:
        self.closed("hopping_events", subject, window, value)

    @sliding.on_close
    def sliding_closed(self, subject: Subject, window: Window, value: Any) -> None:
        self.closed("sliding", subject, window, value)

    @sliding_ordered.on_close
    def sliding_ordered_closed(self, subject: Subject, window: Window, value: Any) -> None:
        self.closed("sliding_ordered", subject, window, value)

    @session.on_close
    def session_closed(self, subject: Subject, window: Window, value: Any) -> None:
        self.closed("session", subject, window, value)

    @session_ordered.on_close
    def session_ordered_closed(self, subject: Subject, window: Window, value: Any) -> None:
        self.closed("session_ordered", subject, window, value)

    @session_events.on_close
    def session_events_closed(self, subject: Subject, window: Window, value: Any) -> None:
        self.closed("session_events", subject, window, value)

    @counting.on_close
    def counting_closed(self, subject: Subject, window: Window, value: Any) -> None:
        self.closed("counting", subject, window, value)

    @counting_hops.on_close
    def counting_hops_closed(self, subject: Subject, window: Window, value: Any) -> None:
        self.closed("counting_hops", subject, window, value)

    @counting_gaps.on_close
    def counting_gaps_closed(self, subject: Subject, window: Window, value: Any) -> None:
        self.closed("counting_gaps", subject, window, value)

    @in_memory.on_close
    def in_memory_closed(self, subject: Subject, window: Window, value: Any) -> None:
        self.closed("in_memory", subject, window, value)

    def closed(self, name: str, subject: Subject, window: Window, value: Any) -> None:
        times = [str(time) for time in (window.start, window.end, window.first, window.last)]
        shown = {part: str(of) for part, of in value.items()} if isinstance(value, dict) else str(value)
        self.out.collect(subject, [name, str(window.key), *times, window.partial, shown])

    @latest.on_match
    def latest_matched(self, subject: Subject, left: KeyedEvent[Any], right: KeyedEvent[Any] | None) -> None:
        self.matched("latest", subject, left, right)

    @as_of.on_match
    def as_of_matched(self, subject: Subject, left: KeyedEvent[Any], right: KeyedEvent[Any] | None) -> None:
        self.matched("as_of", subject, left, right)

    @as_of_ever.on_match
    def as_of_ever_matched(self, subject: Subject, left: KeyedEvent[Any], right: KeyedEvent[Any] | None) -> None:
        self.matched("as_of_ever", subject, left, right)

    @interval.on_match
    def interval_matched(self, subject: Subject, left: KeyedEvent[Any] | None, right: KeyedEvent[Any] | None) -> None:
        self.matched("interval", subject, left, right)

    def matched(self, name: str, subject: Subject, left: KeyedEvent[Any] | None, right: KeyedEvent[Any] | None) -> None:
        shown = [None if event is None else [str(event.timestamp), event.value[VALUE]] for event in (left, right)]
        self.out.collect(subject, [name, str(subject.key), *shown])


def shown_state(state: Any) -> str:
    """Return what is stored, in the same order on each engine."""
    if hasattr(state, "items"):
        return str(sorted((str(key), str(value)) for key, value in state.items()))
    return str(state.value) if hasattr(state, "value") else str(list(state))


SOURCES = ("events", "needed", "right", "limits")


def kinds_job(place: str, out: str, store: str, key_groups: int) -> Job:
    key_events = {"limits": limit_of}
    return Job(
        "kinds",
        Kinds(),
        {
            name: LinesSource(f"{place}/in/{name}/", max_files_per_batch=1, key_event=key_events.get(name))
            for name in SOURCES
        },
        {"out": JsonLinesSink(f"{out}/out")},
        watermark_delay=2 * MINUTE,
        idle_timeout=timedelta(days=36500),  # no source becomes idle, but the checkpoint has the times of their records
        late_events="divert",
        on_error="dead_letter",
        dependencies=[DependsOn("events", on="needed", threshold=10 * MINUTE)],
        key_groups=key_groups,
        state=store,
    )
