"""Valid user code, with the types that type checkers must infer; see `tests/test_types.py`."""

from collections.abc import Iterator
from datetime import datetime, timedelta
from enum import Enum
from typing import Any

from attrs import frozen
from typing_extensions import assert_type

from amadou import (
    DependencyChange,
    Handler,
    Job,
    KeyedEvent,
    ListSpec,
    ListState,
    MapSpec,
    MapState,
    MemorySink,
    MemorySource,
    SinkSpec,
    Subject,
    ValueSpec,
)
from amadou.dependencies import DependencyCallbacks
from amadou_plugins.aggregates import Aggregate, Collect, Count, Mean, Median, RunningSpec, Sum
from amadou_plugins.connectors import ConsoleSink, KafkaRecord
from amadou_plugins.joins import AsOfJoin, IntervalJoin, LatestJoin
from amadou_plugins.windows import (
    CountWindow,
    HoppingWindow,
    SessionWindow,
    SlidingWindow,
    TumblingWindow,
    Window,
    WindowSpec,
    windowed,
)

MINUTE = timedelta(minutes=1)


class Kind(Enum):
    READ = "read"


@frozen
class View:
    channel: str
    at: datetime


class Plain(Handler):
    """Does not declare the type of its keys, like most handlers."""

    views = SinkSpec(View)

    def key_event(self, record: bytes) -> list[KeyedEvent]:
        event = KeyedEvent("news", datetime.now())
        return [event, KeyedEvent(17, datetime.now(), record)]

    def on_event(self, subject: Subject, event: KeyedEvent) -> None:
        assert_type(subject.key, Any)
        self.views.collect(subject, View(subject.key, event.timestamp))
        subject.set_timer(event.timestamp)

    def on_timer_expired(self, subject: Subject, timestamp: datetime) -> None:
        self.views.collect(subject, View(subject.key, timestamp))


class Keyed(Handler[str]):
    """Declares that its keys are texts."""

    views = SinkSpec(View)

    def key_event(self, record: KafkaRecord) -> Iterator[KeyedEvent[bytes | None, str]]:
        assert_type(record.timestamp, datetime)
        yield KeyedEvent("news", record.timestamp, record.value)

    def on_event(self, subject: Subject[str], event: KeyedEvent[bytes | None, str]) -> None:
        assert_type(subject.key, str)
        assert_type(event.key, str)
        assert_type(event.value, bytes | None)
        for timer in subject.timers():
            assert_type(timer.timestamp, datetime)
        self.views.collect(subject, View(subject.key, event.timestamp))
        helped(subject)


class KeyedByPairs(Handler[tuple[str, int]]):
    def key_event(self, record: View) -> KeyedEvent[View] | None:
        return KeyedEvent((record.channel, 1), record.at, record) if record.channel else None

    def on_event(self, subject: Subject[tuple[str, int]], event: KeyedEvent[View]) -> None:
        assert_type(subject.key, tuple[str, int])
        assert_type(event.value, View)


class HalfKeyed(Handler[str]):
    """Omits in its methods the type that its class declares."""

    def on_event(self, subject: Subject, event: KeyedEvent) -> None:
        helped(subject)


def helped(subject: Subject) -> None:
    subject.delete_timer(subject.timestamp)


job = Job("keyed", Keyed(), {"in": MemorySource()}, {"views": MemorySink()})
several = Job(
    "keyed", Keyed(), {"in": MemorySource()}, {"views": [MemorySink(), ConsoleSink()]}, retired={"old": "drop"}
)


class States(Handler):
    number = ValueSpec(int, default=0)
    fraction = ValueSpec(float, 0)
    last = ValueSpec(datetime)
    maybe = ValueSpec(int | None)
    nothing = ValueSpec(int | None, None)
    either = ValueSpec(int | str, 0, ttl=MINUTE)
    items = ValueSpec(list[int], [])
    pairs = ValueSpec(tuple[str, ...] | None)
    kind = ValueSpec(Kind, Kind.READ)
    anything = ValueSpec(Any)
    by_minute = MapSpec(datetime, int | None)
    by_name = MapSpec(str, int)
    views = ListSpec(View)
    texts = ListSpec(str | None)
    out = SinkSpec(View | None)
    rows = SinkSpec(dict[str, int])

    def on_event(self, subject: Subject, event: KeyedEvent) -> None:
        assert_type(self.number.state_for(subject).value, int)
        assert_type(self.fraction.state_for(subject).value, float)
        assert_type(self.last.state_for(subject).value, datetime | None)
        assert_type(self.maybe.state_for(subject).value, int | None)
        assert_type(self.nothing.state_for(subject).value, int | None)
        assert_type(self.either.state_for(subject).value, int | str)
        assert_type(self.items.state_for(subject).value, list[int])
        assert_type(self.pairs.state_for(subject).value, tuple[str, ...] | None)
        assert_type(self.kind.state_for(subject).value, Kind)
        assert_type(self.by_minute.state_for(subject), MapState[datetime, int | None])
        assert_type(self.by_minute.state_for(subject).get(event.timestamp, None), int | None)
        assert_type(self.by_name.state_for(subject).get("a"), int | None)
        assert_type(self.by_name.state_for(subject).get("a", None), int | None)
        assert_type(self.by_name.state_for(subject).get("a", 0), int)
        assert_type(self.by_name.state_for(subject).get("a", "none"), int | str)
        assert_type(self.by_name.state_for(subject).pop("a"), int)
        assert_type(self.by_name.state_for(subject).pop("a", None), int | None)
        assert_type(self.by_name.state_for(subject).pop("a", 0), int)
        assert_type(self.views.state_for(subject), ListState[View])
        assert_type(self.texts.state_for(subject), ListState[str | None])
        self.last.state_for(subject).value = event.timestamp
        self.nothing.state_for(subject).value = 1
        self.anything.state_for(subject).value = object()
        self.out.collect(subject, None)
        self.out.collect(subject, View("news", event.timestamp))
        self.rows.collect(subject, {"n": self.number.state_for(subject).value})


class Longest(Aggregate[str, str]):
    def create(self) -> str:
        return ""

    def add(self, accumulator: str, event: KeyedEvent[str]) -> str:
        return max(accumulator, event.value, key=len)

    def result(self, accumulator: str) -> str:
        return accumulator


class Bits:
    """Has the methods of an aggregate."""

    def create(self) -> int:
        return 0

    def add(self, accumulator: int, event: KeyedEvent[Any]) -> int:
        return accumulator | int(event.value)

    def merge(self, left: int, right: int) -> int:
        return left | right

    def result(self, accumulator: int) -> bytes:
        return accumulator.to_bytes(8, "big")


class Windows(Handler[str]):
    plain = TumblingWindow(MINUTE)
    count = TumblingWindow(size=MINUTE, value=Count(), allowed_lateness=MINUTE, late="divert")
    total = HoppingWindow(MINUTE, 2 * MINUTE, Sum("cents"), offset=MINUTE, early=MINUTE)
    several = SlidingWindow(MINUTE, {"n": Count(), "mean": Mean("ms"), "both": {"n": Count()}}, ttl=MINUTE)
    items = SessionWindow(MINUTE, Collect("page"), max_duration=2 * MINUTE, early=10, max_active=3)
    middle = CountWindow(10, Median("ms"), hop=2, storage="memory", early=lambda event: event.value is None)
    longest = TumblingWindow(MINUTE, Longest())
    bits = TumblingWindow(MINUTE, Bits())

    def on_event(self, subject: Subject[str], event: KeyedEvent) -> None:
        self.plain.add(subject, event)
        self.plain_closed(subject, Window(event.timestamp, event.timestamp, subject.key), 1)

    @plain.on_close
    def plain_closed(self, subject: Subject[str], window: Window[str], count: int) -> None:
        assert_type(window.key, str)

    @count.on_close
    def count_closed(self, subject: Subject, window: Window, count: int) -> None:
        assert_type(window.key, Any)

    @total.on_close
    @total.on_early
    def total_closed(self, subject: Subject, window: Window, cents: int) -> None: ...

    @several.on_close
    def several_closed(self, subject: Subject, window: Window, values: dict[str, Any]) -> None: ...

    @items.on_close
    def items_closed(self, subject: Subject, window: Window, pages: list[str]) -> None: ...

    @items.on_early
    def items_so_far(self, subject: Subject, window: Window, pages: list[Any]) -> None: ...

    @middle.on_close
    def middle_closed(self, subject: Subject, window: Window, ms: float | None) -> None: ...

    @longest.on_close
    def longest_closed(self, subject: Subject, window: Window, text: str) -> None: ...

    @bits.on_close
    def bits_closed(self, subject: Subject, window: Window, bits: bytes) -> None: ...

    @count.on_late
    def too_late(self, subject: Subject[str], event: KeyedEvent[Any, str]) -> None: ...


class OtherWindows(Windows):
    def plain_closed(self, subject: Subject[str], window: Window[str], count: int) -> None:
        super().plain_closed(subject, window, count)


class AtRunTime(Handler):
    def __init__(self) -> None:
        self.windows: dict[str, TumblingWindow] = {}
        self.any: list[WindowSpec] = [SessionWindow(MINUTE, Count()), CountWindow(3)]

    def on_event(self, subject: Subject, event: KeyedEvent) -> None:
        self.windows["sum"] = TumblingWindow(MINUTE, Sum("n"), name="sum", on_close=self.closed)
        self.windows["count"] = TumblingWindow(MINUTE, name="count", on_close=self.closed)

    def closed(self, subject: Subject, window: Window, value: int) -> None: ...


windowed(key="channel", timestamp="at", window=TumblingWindow(MINUTE, {"n": Count()}))
windowed(key=["channel", "kind"], timestamp="at", window=HoppingWindow(MINUTE, MINUTE))


class Running(Handler):
    total = RunningSpec(Sum("cents"), ttl=MINUTE)
    count = RunningSpec(Count())
    several = RunningSpec({"n": Count(), "sum": Sum("cents")}, name="all")

    def on_event(self, subject: Subject, event: KeyedEvent) -> None:
        assert_type(self.total.add(subject, event), Any)
        assert_type(self.count.add(subject, event), int)
        assert_type(self.count.state_for(subject).value, int)
        assert_type(self.several.result(subject), dict[str, Any])
        shown(self.count)


def shown(spec: RunningSpec) -> str:
    return repr(spec)


class Joins(Handler):
    nearest = AsOfJoin(left="a", right="b", tolerance=MINUTE, direction="nearest", how="inner", late="divert")
    pairs = IntervalJoin(left="a", right="b", lower=-MINUTE, upper=MINUTE, how="outer", allowed_lateness=MINUTE)
    latest = LatestJoin(left="a", right="b", ttl=MINUTE, name="newest")

    def on_event(self, subject: Subject, event: KeyedEvent) -> None:
        self.nearest.add(subject, event)

    @nearest.on_match
    def near(self, subject: Subject, left: KeyedEvent[View], right: KeyedEvent[int]) -> None: ...

    @pairs.on_match
    def pair(self, subject: Subject, left: KeyedEvent[View] | None, right: KeyedEvent[int] | None) -> None: ...

    @latest.on_match
    def newest(self, subject: Subject, left: KeyedEvent, right: KeyedEvent | None) -> None: ...

    @latest.on_late
    def too_late(self, subject: Subject, event: KeyedEvent) -> None: ...


class Waits(Handler, DependencyCallbacks):
    notices = SinkSpec(datetime)

    def on_dependency_down(self, change: DependencyChange) -> None:
        assert_type(change.since, datetime)
        self.notices.collect(change.subject, change.reached)
