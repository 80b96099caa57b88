"""Handlers whose script is in their events: an event's value says what `on_event` is to do."""

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

START = datetime(2025, 1, 1, tzinfo=timezone.utc)
SECOND = timedelta(seconds=1)


def at(seconds: float) -> datetime:
    """A time of the script."""
    return START + timedelta(seconds=seconds)


def event(seconds: float, value: Any = None, key: Any = "k") -> KeyedEvent[Any]:
    """An event of the script."""
    return KeyedEvent(key, at(seconds), value)


class Recorder(Handler):
    """Reports each callback to the port `seen`: its kind, key, seconds since the start, watermark, tag or value."""

    seen = SinkSpec(tuple)

    def key_event(self, record: KeyedEvent[Any]) -> KeyedEvent[Any]:
        return record

    def on_event(self, subject: Subject, event: KeyedEvent[Any]) -> None:
        self.report("event", subject, event.timestamp, event.value)

    def on_timer_expired(self, subject: Subject, timestamp: datetime) -> None:
        self.report("timer", subject, timestamp, subject.timer_tag)

    def report(self, what: str, subject: Subject, timestamp: datetime, detail: Any) -> None:
        mark = subject.watermark
        seconds = None if mark is None else (mark - START) / SECOND
        self.seen.collect(subject, (what, subject.key, (timestamp - START) / SECOND, seconds, detail))


class TimerSetter(Recorder):
    """An event's value is a list of timers, in seconds or as pairs of seconds and tag; collects what set_timer says."""

    answers = SinkSpec(bool)

    def on_event(self, subject: Subject, event: KeyedEvent[Any]) -> None:
        for timer in event.value or ():
            seconds, tag = timer if isinstance(timer, tuple) else (timer, "")
            self.answers.collect(subject, subject.set_timer(at(seconds), tag))


class TagReader(Recorder):
    """Reports `timer_tag` in `on_event`, too, and sets a timer with a tag at the event's time."""

    def on_event(self, subject: Subject, event: KeyedEvent[Any]) -> None:
        self.report("event", subject, event.timestamp, subject.timer_tag)
        subject.set_timer(event.timestamp, "tag")


class TimerDeleter(TimerSetter):
    """Its first event sets timers, as `TimerSetter` does; a later one deletes those of its value."""

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
    """A timer tries to set one at the time of its tag."""

    answers = SinkSpec(bool)

    def on_event(self, subject: Subject, event: KeyedEvent[Any]) -> None:
        subject.set_timer(event.timestamp, event.value)

    def on_timer_expired(self, subject: Subject, timestamp: datetime) -> None:
        super().on_timer_expired(subject, timestamp)
        if subject.timer_tag:
            self.answers.collect(subject, subject.set_timer(at(float(subject.timer_tag))))


class TimerUndo(Recorder):
    """The timer of second 1 deletes the one of second 2."""

    def on_event(self, subject: Subject, event: KeyedEvent[Any]) -> None:
        subject.set_timer(at(1))
        subject.set_timer(at(2))

    def on_timer_expired(self, subject: Subject, timestamp: datetime) -> None:
        super().on_timer_expired(subject, timestamp)
        if timestamp == at(1):
            assert subject.delete_timer(at(2))


class TagUndo(Recorder):
    """Sets timers of one time with the tags of the event's value; the first one that fires deletes the others."""

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
    """The same, and counts the events of each key."""

    total = ValueSpec(int, default=0)

    def on_event(self, subject: Subject, event: KeyedEvent[Any]) -> None:
        super().on_event(subject, event)
        self.total.state_for(subject).value += 1


class Keeper(Handler):
    """An event's value names one of its methods, which is called with the subject."""

    total = ValueSpec(int, default=0)
    names = ValueSpec(list[str], default=[])
    lists = MapSpec(str, list[int])
    history = ListSpec(list[int])
    found = SinkSpec(object)

    def key_event(self, record: KeyedEvent[Any]) -> KeyedEvent[Any]:
        return record

    def on_event(self, subject: Subject, event: KeyedEvent[Any]) -> None:
        getattr(self, event.value)(subject)

    def on_timer_expired(self, subject: Subject, timestamp: datetime) -> None:
        self.total.state_for(subject).value += 10

    def set_timer(self, subject: Subject) -> None:
        subject.set_timer(subject.timestamp + SECOND)

    def add_one(self, subject: Subject) -> None:
        self.total.state_for(subject).value += 1

    def tell_total(self, subject: Subject) -> None:
        self.found.collect(subject, self.total.state_for(subject).value)

    def mutate_in_place(self, subject: Subject) -> None:
        self.names.state_for(subject).value.append("lost")

    def write_then_mutate(self, subject: Subject) -> None:
        names = ["kept"]
        self.names.state_for(subject).value = names
        names.append("lost")

    def read_then_write_back(self, subject: Subject) -> None:
        state = self.names.state_for(subject)
        names = state.value
        names.append("kept")
        state.value = names

    def tell_names(self, subject: Subject) -> None:
        self.found.collect(subject, self.names.state_for(subject).value)

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

    def tell_history(self, subject: Subject) -> None:
        self.found.collect(subject, list(self.history.state_for(subject)))

    def tell_lists(self, subject: Subject) -> None:
        self.found.collect(subject, dict(self.lists.state_for(subject)))

    def mutate_output(self, subject: Subject) -> None:
        value = ["collected"]
        self.found.collect(subject, value)
        value.append("lost")

    def clear_all(self, subject: Subject) -> None:
        self.total.state_for(subject).clear()
        self.names.state_for(subject).clear()
        self.lists.state_for(subject).clear()
        self.history.state_for(subject).clear()


TTL = 60 * SECOND


class Aging(Recorder):
    """Its state lives for `TTL`. An event's value says under which name it is written; "tell" collects all of it."""

    last = ValueSpec(str, "none", ttl=TTL)
    by_name = MapSpec(str, int, ttl=TTL)
    names = ListSpec(str, ttl=TTL)
    found = SinkSpec(tuple)

    def on_event(self, subject: Subject, event: KeyedEvent[Any]) -> None:
        last, by_name = self.last.state_for(subject), self.by_name.state_for(subject)
        names = self.names.state_for(subject)
        if event.value == "tell":
            self.found.collect(subject, (last.value, dict(by_name), list(names)))
        elif event.value is not None:
            last.value = event.value
            by_name[event.value] = by_name.get(event.value, 0) + 1
            names.append(event.value)


class AgingWithTimers(Aging):
    """An event sets a timer for each number of seconds in its value; each collects when it is due, and what there is.

    A timer with a tag then writes the tag, where it does not say "tell".
    """

    def on_event(self, subject: Subject, event: KeyedEvent[Any]) -> None:
        if isinstance(event.value, list):
            for timer in event.value:
                seconds, tag = timer if isinstance(timer, tuple) else (timer, "tell")
                subject.set_timer(at(seconds), tag)
        else:
            super().on_event(subject, event)

    def on_timer_expired(self, subject: Subject, timestamp: datetime) -> None:
        super().on_event(subject, KeyedEvent(subject.key, timestamp, "tell"))
        if subject.timer_tag != "tell":
            super().on_event(subject, KeyedEvent(subject.key, timestamp, subject.timer_tag))


class Mistake(Exception):  # noqa: N818 - its name is seen in messages
    """What the failing handlers raise."""


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
    """Changes all that a callback can change, then raises where the event's value or the timer's tag says "fail".

    The value "set" sets a timer with the tag "fail" at second 100 and one without at second 101; "unpackable" writes
    what a codec takes and msgpack refuses.
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


class Guarding(Recorder):
    """Tells its secret in an error, at an event with the value "fail" and in `key_event` at "unparsable"."""

    token = Param("TOKEN", secret=True)

    def key_event(self, record: KeyedEvent[Any]) -> KeyedEvent[Any]:
        self.tell(record, "unparsable")
        return record

    def on_event(self, subject: Subject, event: KeyedEvent[Any]) -> None:
        self.tell(event, "fail")

    def tell(self, event: KeyedEvent[Any], when: str) -> None:
        if event.value == when:
            raise ValueError(f"no login with {self.token.reveal()}")  # type: ignore[attr-defined]


def job(handler: Handler, *sources: str, **settings: Any) -> Job:
    """A job in memory, with a sink for each port."""
    ports = [name for name in dir(type(handler)) if isinstance(getattr(type(handler), name), SinkSpec)]
    return Job(
        "conformance",
        handler,
        sources={source: MemorySource() for source in sources or ("events",)},
        sinks={port: MemorySink() for port in ports},
        **settings,
    )
