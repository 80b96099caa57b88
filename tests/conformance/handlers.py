"""Handlers and jobs of conformance tests. The value of an event controls the handlers' callbacks."""

from collections.abc import Callable
from datetime import datetime, timedelta, timezone
from typing import Any

from amadou import (
    Handler,
    Job,
    KeyedEvent,
    ListSpec,
    MapSpec,
    MemorySink,
    MemorySource,
    Param,
    SinkSpec,
    Subject,
    ValueSpec,
)
from amadou_plugins.windows import TumblingWindow, Window
from amadou_runtime import TestResult

START = datetime(2025, 1, 1, tzinfo=timezone.utc)
SECOND = timedelta(seconds=1)


def at(seconds: float) -> datetime:
    """Return the time some seconds after `START`."""
    return START + timedelta(seconds=seconds)


def event(seconds: float, value: Any = None, key: Any = "k") -> KeyedEvent[Any]:
    """Return an event some seconds after `START`."""
    return KeyedEvent(key, at(seconds), value)


class EventHandler(Handler):
    """A handler whose records are events."""

    def key_event(self, record: KeyedEvent[Any]) -> KeyedEvent[Any]:
        return record


class Recorder(EventHandler):
    """Reports each callback to the port `seen`: its kind, key, seconds since the start, watermark, tag or value."""

    seen = SinkSpec(tuple)

    def on_event(self, subject: Subject, event: KeyedEvent[Any]) -> None:
        self.report("event", subject, event.timestamp, event.value)

    def on_timer_expired(self, subject: Subject, timestamp: datetime) -> None:
        self.report("timer", subject, timestamp, subject.timer_tag)

    def report(self, what: str, subject: Subject, timestamp: datetime, detail: Any) -> None:
        mark = subject.watermark
        seconds = None if mark is None else (mark - START) / SECOND
        self.seen.collect(subject, (what, subject.key, (timestamp - START) / SECOND, seconds, detail))


class TimerSetter(Recorder):
    """Sets the timers in an event's value: seconds, or pairs of seconds and tag. Collects results of `set_timer`."""

    answers = SinkSpec(bool)

    def on_event(self, subject: Subject, event: KeyedEvent[Any]) -> None:
        for timer in event.value or ():
            seconds, tag = timer if isinstance(timer, tuple) else (timer, "")
            self.answers.collect(subject, subject.set_timer(at(seconds), tag))


class TagReader(Recorder):
    """Reports `timer_tag` in `on_event`, and sets a timer with a tag at the event's time."""

    def on_event(self, subject: Subject, event: KeyedEvent[Any]) -> None:
        self.report("event", subject, event.timestamp, subject.timer_tag)
        subject.set_timer(event.timestamp, "tag")


class TimerDeleter(TimerSetter):
    """The first event of a key sets timers like `TimerSetter`; later events delete the timers in their value."""

    set_before = ValueSpec(bool, default=False)

    def on_event(self, subject: Subject, event: KeyedEvent[Any]) -> None:
        before = self.set_before.state_for(subject)
        if not before.value:
            before.value = True
            super().on_event(subject, event)
            return
        for seconds in event.value:
            self.answers.collect(subject, subject.delete_timer(at(seconds)))


class TimerChain(Recorder):
    """Each timer sets another timer, at the second that its tag names."""

    answers = SinkSpec(bool)

    def on_event(self, subject: Subject, event: KeyedEvent[Any]) -> None:
        subject.set_timer(event.timestamp, event.value)

    def on_timer_expired(self, subject: Subject, timestamp: datetime) -> None:
        super().on_timer_expired(subject, timestamp)
        if subject.timer_tag:
            self.answers.collect(subject, subject.set_timer(at(float(subject.timer_tag))))


class TimerUndo(Recorder):
    """The timer of second 1 deletes the timer of second 2."""

    def on_event(self, subject: Subject, event: KeyedEvent[Any]) -> None:
        subject.set_timer(at(1))
        subject.set_timer(at(2))

    def on_timer_expired(self, subject: Subject, timestamp: datetime) -> None:
        super().on_timer_expired(subject, timestamp)
        if timestamp == at(1):
            assert subject.delete_timer(at(2))


class TagUndo(Recorder):
    """Sets timers of one time with the tags in the event's value; the first timer that fires deletes the others."""

    def on_event(self, subject: Subject, event: KeyedEvent[Any]) -> None:
        for tag in event.value:
            subject.set_timer(at(1), tag)

    def on_timer_expired(self, subject: Subject, timestamp: datetime) -> None:
        super().on_timer_expired(subject, timestamp)
        for _, tag in subject.timers():
            assert subject.delete_timer(timestamp, tag)


class LateReporter(Recorder):
    """Collects each event's value and whether it was late."""

    late = SinkSpec(tuple)

    def on_event(self, subject: Subject, event: KeyedEvent[Any]) -> None:
        self.late.collect(subject, (event.value, subject.is_late))


class LateCounter(LateReporter):
    """Collects like `LateReporter`, and counts the events of each key."""

    total = ValueSpec(int, default=0)

    def on_event(self, subject: Subject, event: KeyedEvent[Any]) -> None:
        super().on_event(subject, event)
        self.total.state_for(subject).value += 1


class StateMethods(EventHandler):
    """Calls the method that an event's value names."""

    check_in_place = False

    total = ValueSpec(int, default=0)
    names = ValueSpec(list[str], default=[])
    lists = MapSpec(str, list[int])
    history = ListSpec(list[int])
    results = SinkSpec(object)

    def on_event(self, subject: Subject, event: KeyedEvent[Any]) -> None:
        getattr(self, event.value)(subject)

    def on_timer_expired(self, subject: Subject, timestamp: datetime) -> None:
        self.total.state_for(subject).value += 10

    def set_timer(self, subject: Subject) -> None:
        subject.set_timer(subject.timestamp + SECOND)

    def add_one(self, subject: Subject) -> None:
        self.total.state_for(subject).value += 1

    def collect_total(self, subject: Subject) -> None:
        self.results.collect(subject, self.total.state_for(subject).value)

    def mutate_in_place(self, subject: Subject) -> None:
        self.names.state_for(subject).value.append("lost")

    def write_then_mutate(self, subject: Subject) -> None:
        names = ["stored"]
        self.names.state_for(subject).value = names
        names.append("lost")

    def read_then_write_back(self, subject: Subject) -> None:
        state = self.names.state_for(subject)
        names = state.value
        names.append("stored")
        state.value = names

    def collect_names(self, subject: Subject) -> None:
        self.results.collect(subject, self.names.state_for(subject).value)

    def put_list(self, subject: Subject) -> None:
        self.lists.state_for(subject)["a"] = [1]

    def mutate_entry(self, subject: Subject) -> None:
        self.lists.state_for(subject)["a"].append(2)

    def use_methods(self, subject: Subject) -> None:
        lists = self.lists.state_for(subject)
        lists.update(b=[2], c=[3])
        lists.setdefault("d", [4])
        del lists["b"]

    def extend_history(self, subject: Subject) -> None:
        history = self.history.state_for(subject)
        history.append([1])
        history.extend([[2], [3], [4]])
        history.insert(0, [0])
        history[1:3] = [[9]]
        del history[-1]

    def mutate_history(self, subject: Subject) -> None:
        history = self.history.state_for(subject)
        history[0].append(7)
        for item in history:
            item.clear()

    def collect_history(self, subject: Subject) -> None:
        self.results.collect(subject, list(self.history.state_for(subject)))

    def collect_lists(self, subject: Subject) -> None:
        self.results.collect(subject, dict(self.lists.state_for(subject)))

    def mutate_output(self, subject: Subject) -> None:
        value = ["collected"]
        self.results.collect(subject, value)
        value.append("lost")

    def clear_all(self, subject: Subject) -> None:
        self.total.state_for(subject).clear()
        self.names.state_for(subject).clear()
        self.lists.state_for(subject).clear()
        self.history.state_for(subject).clear()


TTL = 60 * SECOND


class Expiring(Recorder):
    """Has state that expires after `TTL`. An event writes its value; the value "collect" collects the state."""

    last = ValueSpec(str, "none", ttl=TTL)
    by_name = MapSpec(str, int, ttl=TTL)
    names = ListSpec(str, ttl=TTL)
    results = SinkSpec(tuple)

    def on_event(self, subject: Subject, event: KeyedEvent[Any]) -> None:
        last, by_name = self.last.state_for(subject), self.by_name.state_for(subject)
        names = self.names.state_for(subject)
        if event.value == "collect":
            self.results.collect(subject, (last.value, dict(by_name), list(names)))
        elif event.value is not None:
            last.value = event.value
            by_name[event.value] = by_name.get(event.value, 0) + 1
            names.append(event.value)


class ExpiringWithTimers(Expiring):
    """An event sets a timer for each number of seconds, or pair of seconds and tag, in its value.

    Each timer collects all state. A timer with a tag then writes the tag to the state.
    """

    def on_event(self, subject: Subject, event: KeyedEvent[Any]) -> None:
        if isinstance(event.value, list):
            for timer in event.value:
                seconds, tag = timer if isinstance(timer, tuple) else (timer, "collect")
                subject.set_timer(at(seconds), tag)
        else:
            super().on_event(subject, event)

    def on_timer_expired(self, subject: Subject, timestamp: datetime) -> None:
        super().on_event(subject, KeyedEvent(subject.key, timestamp, "collect"))
        if subject.timer_tag != "collect":
            super().on_event(subject, KeyedEvent(subject.key, timestamp, subject.timer_tag))


class Mistake(Exception):  # noqa: N818 - its name is seen in messages
    """Error that failing handlers raise."""


class Failing(Recorder):
    """Counts and reports; raises at the event with the value "fail" and at a timer with the tag "fail"."""

    total = ValueSpec(int, default=0)

    def key_event(self, record: KeyedEvent[Any]) -> KeyedEvent[Any]:
        if record.value == "unparsable":
            raise Mistake("no such record")
        return record

    def on_event(self, subject: Subject, event: KeyedEvent[Any]) -> None:
        super().on_event(subject, event)
        self.total.state_for(subject).value += 1
        if event.value == "set":
            subject.set_timer(at(100), "fail")
        if event.value == "fail":
            raise Mistake("not this one")

    def on_timer_expired(self, subject: Subject, timestamp: datetime) -> None:
        raise Mistake("not now")


class Fragile(Recorder):
    """Changes state, timers and outputs, then raises an error if the event's value or the timer's tag is "fail".

    The value "set" sets a timer with the tag "fail" at second 100 and a timer without a tag at second 101. The value
    "unpackable" writes a text that the codec accepts and msgpack rejects.
    """

    total = ValueSpec(int, default=0)
    seconds = MapSpec(float, str)
    text = ValueSpec(str, default="")

    def key_event(self, record: Any) -> Any:
        if record == "unparsable":
            raise Mistake("no such record")
        if isinstance(record, list):
            return (self.key_event(part) for part in record)
        return record

    def on_event(self, subject: Subject, event: KeyedEvent[Any]) -> None:
        self.report("event", subject, event.timestamp, event.value)
        self.change(subject, str(event.value))
        if event.value == "set":
            subject.set_timer(at(100), "fail")
            subject.set_timer(at(101))
        if event.value == "fail":
            subject.set_timer(at(1000))
            subject.delete_timer(at(101))
            raise Mistake("not this one")
        if event.value == "unpackable":
            self.text.state_for(subject).value = "\ud800"

    def on_timer_expired(self, subject: Subject, timestamp: datetime) -> None:
        self.report("timer", subject, timestamp, subject.timer_tag)
        self.change(subject, "timer")
        if subject.timer_tag == "fail":
            raise Mistake("not now")

    def change(self, subject: Subject, what: str) -> None:
        self.total.state_for(subject).value += 1
        self.seconds.state_for(subject)[(subject.timestamp - START) / SECOND] = what


class Leaking(Recorder):
    """Raises an error that contains its secret: at the value "fail" in `on_event`, at "unparsable" in `key_event`."""

    token = Param("TOKEN", secret=True)

    def key_event(self, record: KeyedEvent[Any]) -> KeyedEvent[Any]:
        self.fail(record, "unparsable")
        return record

    def on_event(self, subject: Subject, event: KeyedEvent[Any]) -> None:
        self.fail(event, "fail")

    def fail(self, event: KeyedEvent[Any], when: str) -> None:
        if event.value == when:
            raise ValueError(f"no login with {self.token.reveal()}")  # type: ignore[attr-defined]


def details(result: TestResult) -> list[Any]:
    """Return the value or tag of each callback that a `Recorder` reported."""
    return [callback[4] for callback in result.records("seen")]


def job(handler: Handler, *sources: str, **settings: Any) -> Job:
    """Return a job with sources in memory, and a sink in memory for each port."""
    ports = [name for name in dir(type(handler)) if isinstance(getattr(type(handler), name), SinkSpec)]
    return Job(
        "conformance",
        handler,
        sources={source: MemorySource() for source in sources or ("events",)},
        sinks={port: MemorySink() for port in ports},
        **settings,
    )


Create = Callable[..., Any]


class CreatesWindow(Recorder):
    """Creates a window for each event, and when the window is due.

    :param create: creates the window
    """

    def __init__(self, create: Create = lambda **settings: TumblingWindow(10 * SECOND, **settings)) -> None:
        self.create = create

    def window(self) -> Any:
        return self.create(name="created", on_close=self.closed)

    def on_event(self, subject: Subject, event: KeyedEvent[Any]) -> None:
        self.window().add(subject, event)

    def closed(self, subject: Subject, window: Window, value: Any) -> None:
        self.report("closed", subject, window.start, value)

    def on_recover_window(self, name: str, subject: Subject) -> Any:
        return self.window()
