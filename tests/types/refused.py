"""Invalid user code. Each line that ends with ``# refused: text`` must have a type error with this text."""

from datetime import datetime, timedelta
from typing import Any

from amadou import Handler, Job, KeyedEvent, ListSpec, MapSpec, MemorySink, MemorySource, SinkSpec, Subject, ValueSpec
from amadou.dependencies import DependencyCallbacks
from amadou_plugins.aggregates import Collect, Count, Mean, RunningSpec
from amadou_plugins.connectors import KafkaRecord
from amadou_plugins.joins import AsOfJoin, IntervalJoin, LatestJoin
from amadou_plugins.windows import CountWindow, HoppingWindow, SessionWindow, SlidingWindow, TumblingWindow, Window

MINUTE = timedelta(minutes=1)


class Keys(Handler[str]):
    numbers = SinkSpec(int)

    def key_event(self, record: KafkaRecord) -> KeyedEvent[None, str]:
        print(record.timestamp.day_of_week)  # refused: day_of_week
        return KeyedEvent(17, record.timestamp)  # refused: int

    def on_event(self, subject: Subject[str], event: KeyedEvent[int, str]) -> None:
        self.numbers.collect(subject, subject.key)  # refused: str
        self.numbers.collect(subject, event.key)  # refused: str
        subject.key.append(1)  # refused: append
        of_numbers(subject)  # refused: Subject[str]


class OtherKeys(Handler[str]):
    def on_event(self, subject: Subject[int], event: KeyedEvent) -> None: ...  # refused: on_event


class NoKeys(Handler[float]):  # refused: float
    pass


def of_numbers(subject: Subject[int]) -> None: ...


class States(Handler):
    five = ValueSpec(5)  # refused: type
    last = ValueSpec(datetime)
    maybe = ValueSpec(int | None)
    count = ValueSpec(int, 0, tll=MINUTE)  # refused: No overload
    by_minute = MapSpec(datetime, int)
    texts = ListSpec(str)
    rows = SinkSpec(tuple[str, int])

    def on_event(self, subject: Subject, event: KeyedEvent) -> None:
        self.last.state_for(subject).value = 5  # refused: datetime | None
        self.last.state_for(subject).value.isoformat()  # refused: isoformat
        self.maybe.state_for(subject).value = "one"  # refused: int | None
        self.by_minute.state_for(subject)["now"] = 1  # refused: datetime
        self.texts.state_for(subject).append(1)  # refused: str
        self.rows.collect(subject, ("a", "b"))  # refused: tuple[str, int]


class Windows(Handler[str]):
    tumbling = TumblingWindow(MINUTE, Count(), allowed_latenes=MINUTE)  # refused: allowed_latenes
    hopping = HoppingWindow(MINUTE, MINUTE, Count(), of_set=MINUTE)  # refused: of_set
    sliding = SlidingWindow(MINUTE, Count(), late="dropped")  # refused: late
    session = SessionWindow(MINUTE, Count(), max_durations=MINUTE)  # refused: max_durations
    some = CountWindow(10, Count(), early=MINUTE)  # refused: early
    number = TumblingWindow(MINUTE, 5)  # refused: cannot be

    plain = TumblingWindow(MINUTE)
    count = TumblingWindow(MINUTE, Count())
    several = TumblingWindow(MINUTE, {"n": Count(), "mean": Mean("ms")})
    pages = SessionWindow(MINUTE, Collect("page"))

    @plain.on_close  # refused: int
    def plain_closed(self, subject: Subject, window: Window, count: str) -> None: ...

    @count.on_close  # refused: int
    def count_closed(self, subject: Subject, window: Window, count: str) -> None: ...

    @several.on_close  # refused: dict[str, Any]
    def several_closed(self, subject: Subject, window: Window, count: int) -> None: ...

    @pages.on_close  # refused: list[Any]
    def pages_closed(self, subject: Subject, window: Window, pages: str) -> None: ...

    @pages.on_early  # refused: Window
    def pages_so_far(self, subject: Subject, pages: list[str]) -> None: ...

    @count.on_late  # refused: KeyedEvent
    def count_late(self, subject: Subject, window: Window) -> None: ...

    def on_event(self, subject: Subject[str], event: KeyedEvent) -> None:
        self.tumbling.add(event, subject)  # refused: add


class Running(Handler):
    count = RunningSpec(Count(), tll=MINUTE)  # refused: No overload
    counts = RunningSpec(Count())
    lines = SinkSpec(str)

    def on_event(self, subject: Subject, event: KeyedEvent[Any]) -> None:
        self.lines.collect(subject, self.counts.add(subject, event))  # refused: int


class Joins(Handler):
    nearest = AsOfJoin(left="a", right="b", tolerances=MINUTE)  # refused: tolerances
    pairs = IntervalJoin(left="a", right="b", lower=MINUTE, upper=MINUTE, hw="left")  # refused: hw
    latest = LatestJoin(left="a", right="b", how="outer")  # refused: how
    near = AsOfJoin(left="a", right="b")

    @near.on_match  # refused: Subject
    def matched(self, left: KeyedEvent, right: KeyedEvent) -> None: ...

    def on_event(self, subject: Subject, event: KeyedEvent) -> None: ...


Job("joins", Joins(), MemorySource(), {"out": MemorySink()})  # refused: MemorySource
Job("joins", Joins(), {"a": MemorySink()}, {"out": MemorySink()})  # refused: MemorySink
Job("joins", Joins(), {"a": MemorySource()}, {"out": MemorySource()})  # refused: MemorySource
Job("joins", Joins(), {"a": MemorySource()}, {}, retired={"near": "drip"})  # refused: drip


class Waits(Handler, DependencyCallbacks):
    def on_dependency_down(self, dependency: str, checkpoint: str) -> None: ...  # refused: on_dependency_down
