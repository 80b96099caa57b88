"""The job of a script: handlers that do what events, timers and results say, and collect all that they see."""

from collections.abc import Callable, Iterable
from datetime import datetime, timedelta, timezone
from typing import Any

from tests.qualify.fuzz.scripts import (
    KEYS,
    MICRO,
    NAMES,
    UNPARSABLE,
    Component,
    Program,
    Script,
    Stage,
    number_of,
    program_of,
)

from amadou import (
    FromPort,
    Handler,
    Job,
    KeyedEvent,
    ListSpec,
    Lookup,
    MapSpec,
    MemorySink,
    MemorySource,
    ReferenceSpec,
    SinkSpec,
    Subject,
    ValueSpec,
)
from amadou import Stage as JobStage
from amadou_plugins.aggregates import Aggregate, Collect, Count, First, Last, Max, Mean, Min, RunningSpec, Sum
from amadou_plugins.joins import AsOfJoin, IntervalJoin, LatestJoin
from amadou_plugins.windows import (
    CountWindow,
    HoppingWindow,
    SessionWindow,
    SlidingWindow,
    TumblingWindow,
    Window,
    WindowResult,
    windowed,
)

START = datetime(2025, 1, 1, tzinfo=timezone.utc)
SECOND = timedelta(seconds=1)
MICROSECOND = timedelta(microseconds=1)
PLACES = {repr(key): place for place, key in enumerate(KEYS)}
END_OF_TIME = datetime.max.replace(tzinfo=timezone.utc)


class Mistake(Exception):  # noqa: N818 - its name is seen in messages
    """What a failing program raises."""


def at(seconds: float) -> datetime:
    return START + seconds * SECOND


def micros(time: datetime | None) -> Any:
    """A time in microseconds after `START`; the end of time is `"end"`."""
    if time is None:
        return None
    return "end" if time == END_OF_TIME else (time - START) // MICROSECOND


def flagged(event: KeyedEvent[Any]) -> bool:
    return bool(event.value.get("flag"))


class Backwards(Aggregate[list[int], list[int]]):
    """The ids of a window's events, the greatest first; its accumulators cannot be merged."""

    mergeable = False

    def create(self) -> list[int]:
        return []

    def add(self, accumulator: list[int], event: KeyedEvent[Any]) -> list[int]:
        return [*accumulator, event.value["id"]]

    def result(self, accumulator: list[int]) -> list[int]:
        return sorted(accumulator, reverse=True)


def aggregate(name: str | None) -> Any:
    made: dict[str | None, Callable[[], Any]] = {
        None: lambda: None,
        "count": Count,
        "sum": lambda: Sum("v"),
        "max": lambda: Max("v"),
        "min": lambda: Min("v"),
        "mean": lambda: Mean("v"),
        "ids": lambda: Collect("id"),
        "first": lambda: First("id"),
        "last": lambda: Last("id"),
        "backwards": Backwards,
        "several": lambda: {"n": Count(), "sum": Sum("v"), "max": Max("v")},
        "ordered": lambda: {"n": Count(), "ids": Collect("id")},
    }
    return made[name]()


class Machine(Handler):
    """Does what the program of an event, a timer's tag or a result says, and collects all that it sees.

    Subclasses, made for each stage of a script, have its components.
    """

    total = ValueSpec(int, default=0)
    names = MapSpec(str, int)
    history = ListSpec(int)
    out = SinkSpec(list)
    feed = SinkSpec(list)
    components: tuple[tuple[str, str, tuple[str, ...]], ...] = ()
    """Name, kind and sources of each component."""
    has_reference = False
    has_lookup = False

    def key_event(self, record: Any) -> Any:
        if isinstance(record, WindowResult):
            value = {"v": number_of(record.value), "id": 0, "do": []}
            return KeyedEvent(record.key, record.end - MICROSECOND, value)
        if isinstance(record, list):  # of the port `feed`
            place, seconds, value = record
            return KeyedEvent(KEYS[place], None if seconds is None else at(seconds), value)  # type: ignore[arg-type]
        if record[0] == "many":
            return [self.event_of(*one) for one in record[1]]
        return self.event_of(*record)

    def event_of(self, place: Any, seconds: float, value: Any) -> KeyedEvent[Any]:
        if value == UNPARSABLE:
            raise Mistake
        return KeyedEvent(KEYS[place], at(seconds), value)

    def on_event(self, subject: Subject, event: KeyedEvent[Any]) -> None:
        answers: list[Any] = []
        for name, kind, sources in self.components:
            component = getattr(self, name)
            if kind == "running":
                answers.append(component.add(subject, event))
            elif not sources or subject.source in sources:
                component.add(subject, event)
        if self.has_lookup and event.value.get("need") is not None:
            answers.append(self.look.get(subject, event.value["need"]))  # type: ignore[attr-defined]
        self.execute("event", subject, event.timestamp, event.value["do"], event.value["id"], answers)

    def on_timer_expired(self, subject: Subject, timestamp: datetime) -> None:
        now = micros(timestamp)
        self.execute("timer", subject, timestamp, program_of(subject.timer_tag, now / MICRO), subject.timer_tag, [])

    def execute(
        self, what: str, subject: Subject, timestamp: datetime, program: Program, detail: Any, answers: list[Any]
    ) -> None:
        assert subject.timestamp == timestamp
        done = [getattr(self, name)(subject, *arguments) for name, *arguments in program]
        self.emit(subject, what, detail, micros(timestamp), subject.source, subject.is_late, answers, done)

    def emit(self, subject: Subject, what: str, *parts: Any) -> None:
        self.out.collect(subject, [what, PLACES[repr(subject.key)], micros(subject.watermark), *parts])

    def report(self, subject: Subject) -> None:
        total, names = self.total.state_for(subject), self.names.state_for(subject)
        timers = [[micros(timestamp), tag] for timestamp, tag in subject.timers()]
        parts = [total.exists, total.value, [list(item) for item in names.items()], len(names)]
        history = self.history.state_for(subject)
        self.emit(subject, "report", *parts, list(history), len(history), timers)

    def set_timer(self, subject: Subject, when: float, tag: str) -> bool:
        return subject.set_timer(at(when), tag)

    def timer_after(self, subject: Subject, seconds: int, tag: str) -> bool:
        return subject.set_timer(subject.timestamp + seconds * SECOND, tag)

    def delete_timer(self, subject: Subject, when: float, tag: str) -> bool:
        return subject.delete_timer(at(when), tag)

    def add(self, subject: Subject, number: int) -> None:
        self.total.state_for(subject).value += number

    def put(self, subject: Subject, name: str, number: int) -> None:
        self.names.state_for(subject)[name] = number

    def get(self, subject: Subject, name: str) -> int | None:
        return self.names.state_for(subject).get(name)

    def drop(self, subject: Subject, name: str) -> int | None:
        return self.names.state_for(subject).pop(name, None)

    def append(self, subject: Subject, number: int) -> None:
        self.history.state_for(subject).append(number)

    def assign(self, subject: Subject, number: int) -> bool:
        history = self.history.state_for(subject)
        if not history:
            return False
        history[0] = number
        return True

    def pop(self, subject: Subject) -> int | None:
        history = self.history.state_for(subject)
        return history.pop() if history else None

    def clear(self, subject: Subject) -> None:
        self.total.state_for(subject).clear()
        self.names.state_for(subject).clear()
        self.history.state_for(subject).clear()

    def count(self, subject: Subject) -> None:
        subject.count("counted")

    def send(self, subject: Subject, place: int, seconds: float | None, value: Any) -> None:
        self.feed.collect(subject, [place, seconds, value])

    def add_to(self, subject: Subject, name: str, after: int) -> None:
        """Add an event of a time before or after that of the callback to a window."""
        event = KeyedEvent(subject.key, subject.timestamp + after * SECOND, {"v": 1, "id": -1})
        getattr(self, name).add(subject, event)

    def fail(self, subject: Subject) -> None:
        raise Mistake

    def entries(self, subject: Subject) -> list[Any]:
        if not self.has_reference:
            return []
        return [[name, self.ref.get(subject, name)] for name in NAMES if (subject, name) in self.ref]  # type: ignore[attr-defined]

    def watch(self, subject: Subject) -> None:
        if hasattr(self, "on_reference_changed"):
            self.ref.watch(subject)  # type: ignore[attr-defined]

    def unwatch(self, subject: Subject) -> None:
        if hasattr(self, "on_reference_changed"):
            self.ref.unwatch(subject)  # type: ignore[attr-defined]

    def result(self, subject: Subject, then: dict[str, Any], name: str, parts: list[Any], value: Any) -> None:
        """What all callbacks of windows and joins do."""
        self.emit(subject, "result", name, micros(subject.timestamp), *parts)
        number = number_of(value)
        done = [getattr(self, instruction)(subject, *arguments) for instruction, *arguments in then.get("do", ())]
        if done:
            self.emit(subject, "done", name, done)
        if then.get("send"):
            self.send(subject, number % 3, None, {"v": number, "id": -2, "do": []})
        if then.get("feed"):
            event = KeyedEvent(subject.key, subject.timestamp, {"v": number, "id": -3})
            getattr(self, then["feed"]).add(subject, event)
        if number == then.get("fail"):
            raise Mistake


def job_of(script: Script) -> Job:
    """The job of a script."""
    kinds = {stage.name: stage.kind for stage in script.stages}
    feeding = {source.feed for stage in script.stages for source in stage.sources}
    stages = {stage.name: job_stage(stage, kinds, stage.name in feeding) for stage in script.stages}
    return Job("fuzz", stages=stages)


def job_stage(stage: Stage, kinds: dict[str, str], is_feeding: bool) -> JobStage:
    sources: dict[str, Any] = {}
    for source in stage.sources:
        if source.feed is not None and source.reference:
            sources[source.name] = FromPort(source.feed, "feed", key_event=entry_of_value)
        elif source.feed is not None:
            sources[source.name] = FromPort(source.feed, "results" if kinds[source.feed] == "windowed" else "feed")
        else:
            sources[source.name] = MemorySource(key_event=entry_of) if source.reference else MemorySource()
    counting = [source for source in stage.sources if not source.reference]
    sinks = {"results" if stage.kind == "windowed" else "out": MemorySink()}
    if stage.kind == "machine" and not is_feeding:
        sinks["feed"] = MemorySink()
    if stage.late == "divert" or any(component.settings.get("late") == "divert" for component in stage.components):
        sinks["late_events"] = MemorySink()
    if stage.on_error == "dead_letter":
        sinks["dead_letters"] = MemorySink()
    return JobStage(
        handler_of(stage),
        sources,
        sinks,
        watermark_delay={source.name: float(source.delay) for source in counting},
        idle_timeout={
            source.name: float(source.idle) for source in stage.sources if source.idle is not None and not source.feed
        },
        late_events=stage.late,  # type: ignore[arg-type]
        on_error=stage.on_error,  # type: ignore[arg-type]
    )


def entry_of(record: Any) -> KeyedEvent[Any]:
    name, seconds, value = record
    if value == UNPARSABLE:
        raise Mistake
    return KeyedEvent(name, at(seconds), value)


def entry_of_value(record: Any) -> KeyedEvent[Any]:
    place, seconds, value = record
    return KeyedEvent(NAMES[place % len(NAMES)], None if seconds is None else at(seconds), value["v"])  # type: ignore[arg-type]


def answer(keys: Iterable[str]) -> dict[str, int]:
    raise NotImplementedError  # test runs take a mapping instead


def handler_of(stage: Stage) -> Handler:
    if stage.kind == "windowed":
        (component,) = stage.components
        return windowed(key="k", timestamp="t", window=window_of(component, {}))
    members: dict[str, Any] = {"__module__": __name__}
    for component in stage.components:
        members |= members_of(component)
    members["components"] = tuple(
        (component.name, component.kind, tuple(component.settings.get("sources", ()))) for component in stage.components
    )
    for name, spec in (("total", ValueSpec(int, default=0, ttl=duration(stage.ttl.get("total")))),
                       ("names", MapSpec(str, int, ttl=duration(stage.ttl.get("names")))),
                       ("history", ListSpec(int, ttl=duration(stage.ttl.get("history"))))):  # fmt: skip
        if name in stage.ttl:
            members[name] = spec
    if stage.reference is not None:
        members |= {"ref": ReferenceSpec(str, int, source=stage.reference.name), "has_reference": True}
        if stage.on_change is not None:
            members["on_reference_changed"] = on_change(stage.on_change)
    if stage.lookup is not None:
        members |= {"look": lookup_of(stage.lookup), "has_lookup": True}
    return type("Scripted", (Machine,), members)()  # type: ignore[no-any-return]


def on_change(program: Program) -> Any:
    def on_reference_changed(self: Any, subject: Subject, change: Any) -> None:
        done = [getattr(self, name)(subject, *arguments) for name, *arguments in program]
        self.emit(subject, "change", change.reference, list(change.keys), micros(change.timestamp), done)

    return on_reference_changed


def needed(event: KeyedEvent[Any]) -> Any:
    return event.value.get("need")


def lookup_of(settings: dict[str, Any]) -> Lookup[str, int]:
    return Lookup(answer, key=needed, on_failure=settings["on_failure"], retries=0)


def answers_of(stage: Stage) -> dict[str, Any]:
    """The mapping that takes the place of the service: a test run raises answers that are exceptions."""
    assert stage.lookup is not None
    options = stage.lookup["answers"]
    return {name: OSError("down") if value == "down" else value for name, value in options.items()}


def duration(seconds: int | None) -> timedelta | None:
    return None if seconds is None else seconds * SECOND


def members_of(component: Component) -> dict[str, Any]:
    """The attributes of a handler that has a component."""
    name, then = component.name, component.then
    if component.kind == "running":
        ttl = duration(component.settings.get("ttl"))
        return {name: RunningSpec(aggregate(component.settings["value"]), ttl=ttl)}
    made: Any = join_of(component) if "sources" in component.settings else window_of(component, {})

    def closed(self: Any, subject: Subject, window: Window, value: Any) -> None:
        span = [micros(time) for time in (window.start, window.end, window.first, window.last)]
        assert window.key == subject.key
        self.result(subject, then, name, [*span, window.partial, value], value)

    def matched(self: Any, subject: Subject, left: Any, right: Any) -> None:
        sides = [None if side is None else side.value["id"] for side in (left, right)]
        self.result(subject, then, name, sides, -1 if right is None else right.value["v"])

    def too_late(self: Any, subject: Subject, event: KeyedEvent[Any]) -> None:
        self.emit(subject, "too late", name, micros(subject.timestamp), micros(event.timestamp), event.value["id"])

    members = {name: made}
    if "sources" in component.settings:
        members[f"{name}_matched"] = made.on_match(named(matched, f"{name}_matched"))
    else:
        members[f"{name}_closed"] = made.on_close(named(closed, f"{name}_closed"))
    if component.kind != "count" and component.settings.get("on_late"):
        members[f"{name}_late"] = made.on_late(named(too_late, f"{name}_late"))
    return members


def named(function: Any, name: str) -> Any:
    function.__name__ = function.__qualname__ = name
    return function


def window_of(component: Component, more: dict[str, Any]) -> Any:
    options = component.settings
    settings: dict[str, Any] = dict(more)
    for name, setting in (("ttl", "ttl"), ("lateness", "allowed_lateness"), ("max_duration", "max_duration")):
        if options.get(name) is not None:
            settings[setting] = options[name] * SECOND
    for name in ("late", "max_active", "storage"):
        if options.get(name) is not None:
            settings[name] = options[name]
    match options.get("early"):
        case ["every", seconds]:
            settings["early"] = seconds * SECOND
        case ["count", number]:
            settings["early"] = number
        case ["flag"]:
            settings["early"] = flagged
    value = aggregate(options.get("value"))
    match component.kind:
        case "tumbling":
            return TumblingWindow(options["size"] * SECOND, value, offset=options.get("offset", 0) * SECOND, **settings)
        case "hopping":
            size, hop = options["size"] * SECOND, options["hop"] * SECOND
            return HoppingWindow(size, hop, value, offset=options.get("offset", 0) * SECOND, **settings)
        case "session":
            return SessionWindow(options["gap"] * SECOND, value, **settings)
        case "sliding":
            return SlidingWindow(options["size"] * SECOND, value, **settings)
        case "count":
            return CountWindow(options["size"], value, hop=options.get("hop"), **settings)
    raise ValueError(component.kind)


def join_of(component: Component) -> Any:
    options = component.settings
    left, right = options["sources"]
    settings: dict[str, Any] = {"left": left, "right": right, "how": options["how"]}
    for name, setting in (("ttl", "ttl"), ("lateness", "allowed_lateness")):
        if options.get(name) is not None:
            settings[setting] = options[name] * SECOND
    if options.get("late") is not None:
        settings["late"] = options["late"]
    match component.kind:
        case "interval":
            return IntervalJoin(lower=options["lower"] * SECOND, upper=options["upper"] * SECOND, **settings)
        case "as_of":
            tolerance = duration(options.get("tolerance"))
            return AsOfJoin(tolerance=tolerance, direction=options["direction"], **settings)
        case "latest":
            return LatestJoin(**settings)
    raise ValueError(component.kind)
