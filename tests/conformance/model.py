"""What a script gives by `semantics.md`, told with plain dicts and obvious loops: nothing of the product is used.

A script is a list of steps, each the name of a method of `TestRun` and its arguments. Of a record these are the source
and its partition, the key, the time and a program, or `UNPARSABLE` instead of the program. A program is a list of
instructions, each the name of a method of `Subject` here, and of `Machine` in `test_scripts.py`, and its arguments.
Times are whole seconds.
"""

import math
from copy import deepcopy
from typing import Any, NamedTuple, TypeAlias

Key: TypeAlias = Any
Program: TypeAlias = list[list[Any]]
Step: TypeAlias = tuple[Any, ...]

UNPARSABLE = "unparsable"


class Given(NamedTuple):
    """What a script gives."""

    collected: list[Any]
    """Outputs, in order."""
    subjects: dict[Key, list[Any]]
    """The state and the timers of each key that has any."""
    late: list[Any]
    """Key, time and program of each late event."""
    dead_letters: list[Any]
    """Callback, source, key, time, tag and watermark of each, and state and timers before it."""
    watermark: float | None


class Mistake(Exception):  # noqa: N818 - its name is seen in messages
    """What a failing program raises."""


def program_of(tag: str, now: float) -> Program:
    """What a timer does when it fires."""
    programs: dict[str, Program] = {
        "": [["tell"]],
        "cancel": [["delete_timer", at, tag] for at, tag in ((now, "cancel"), (now, "put"), (now + 1, ""))],
        "chain": [["set_timer", now + 3, "chain"], ["set_timer", now, ""], ["add", 1]],
        "clear": [["clear"], ["tell"]],
        "fail": [["clear"], ["put", "c", 0], ["set_timer", 99, ""], ["delete_timer", now, "put"], ["tell"], ["fail"]],
        "put": [["put", "b", 7], ["append", 7]],
    }
    return programs[tag]


def order(key: Key) -> Any:
    """Where a key stands among others: those of several types by the names of the types."""
    return ("tuple", tuple(map(order, key))) if isinstance(key, tuple) else (type(key).__name__, key)


class Subject:
    """A key's state and timers, and what a program does to them."""

    def __init__(self, key: Key) -> None:
        self.key = key
        self.total: int | None = None
        self.names: dict[str, int] = {}
        self.history: list[int] = []
        self.timers: set[tuple[float, str]] = set()
        self.watermark: float | None = None
        self.collected: list[Any] = []

    def set_timer(self, at: float, tag: str) -> bool:  # rules 9 to 11
        if self.watermark is not None and at <= self.watermark:
            return False
        self.timers.add((at, tag))
        return True

    def delete_timer(self, at: float, tag: str) -> bool:  # rule 10
        there = (at, tag) in self.timers
        self.timers.discard((at, tag))
        return there

    def add(self, number: int) -> None:
        self.total = (self.total or 0) + number

    def put(self, name: str, number: int) -> None:
        self.names[name] = number

    def drop(self, name: str) -> int | None:
        return self.names.pop(name, None)

    def append(self, number: int) -> None:
        self.history.append(number)

    def pop(self) -> int | None:
        return self.history.pop() if self.history else None

    def clear(self) -> None:
        self.total, self.names, self.history = None, {}, []

    def tell(self) -> None:
        self.collected.append(["tell", self.key, self.total is not None, *self.shown()])

    def fail(self) -> None:
        raise Mistake

    def shown(self) -> list[Any]:
        return [self.total or 0, list(self.names.items()), list(self.history), sorted(self.timers)]

    def is_empty(self) -> bool:  # rule 15
        return self.total is None and not (self.names or self.history or self.timers)


class Model:
    """Plays a script; see `Job` for the settings."""

    def __init__(
        self, sources: tuple[str, ...], watermark_delay: int, idle_timeout: int | None, late_events: str
    ) -> None:
        self.sources = sources
        self.delay = watermark_delay
        self.idle_timeout = math.inf if idle_timeout is None else idle_timeout
        self.late_events = late_events
        self.subjects: dict[Key, Subject] = {}
        self.given = Given([], {}, [], [], None)
        self.watermark: float | None = None
        self.clock = 0
        self.newest: dict[tuple[str, str], float] = {}
        self.brought_at: dict[tuple[str, str], int] = {}

    def play(self, steps: list[Step]) -> Given:
        records: list[Step] = []
        has_begun = False
        for name, *arguments in steps:
            if name == "add_record":
                records.append(tuple(arguments))
                continue
            if name != "run" or has_begun or records:
                self.play_batch(records)
            records, has_begun = [], name != "run"
            if name == "add_watermark":
                (at,) = arguments
                self.raise_watermark(max(self.newest.values(), default=None) if at is None else at)
            elif name == "advance_processing_time":
                self.let_time_pass(*arguments)
            elif arguments == ["flush"]:  # rule 12
                self.raise_watermark(math.inf)
                self.play_batch([])
        self.follow_sources()
        shown = {key: subject.shown() for key, subject in self.subjects.items() if not subject.is_empty()}
        return self.given._replace(subjects=shown, watermark=self.watermark)

    def raise_watermark(self, at: float | None) -> None:  # rule 2
        if at is not None and (self.watermark is None or at > self.watermark):
            self.watermark = at

    def follow_sources(self) -> list[str]:  # rules 2 and 3
        # partitions that count: of several sources the least is that of the one furthest behind, whichever has it
        counting = [name for name, at in self.brought_at.items() if self.clock - at < self.idle_timeout]
        self.raise_watermark(min((self.newest[name] - self.delay for name in counting), default=None))
        return [source for source, _ in counting]

    def let_time_pass(self, seconds: int) -> None:  # rule 3
        for _ in range(seconds):
            if not self.follow_sources() and self.idle_timeout < math.inf and self.watermark is not None:
                self.watermark += 1
            self.clock += 1

    def play_batch(self, records: list[Step]) -> None:
        self.follow_sources()
        mark = self.watermark
        events = self.keyed(records)
        for subject in self.subjects.values():
            subject.watermark = mark
        timers = [(at, order(key), tag, key) for key, subject in self.subjects.items() for at, tag in subject.timers]
        for at, _, tag, key in sorted(timers):  # rules 5 and 6
            if mark is not None and at <= mark and self.subjects[key].delete_timer(at, tag):
                self.call("on_timer_expired", None, key, at, tag, program_of(tag, at), False)
        for source, _, key, at, program in events:
            is_late = mark is not None and at < mark  # rule 13
            if is_late:
                self.given.late.append([key, at, program])
            if not is_late or self.late_events == "deliver":
                self.call("on_event", source, key, at, "", program, is_late)
        for *partition, _, at, _ in events:
            source, name = partition
            self.newest[source, name] = max(at, self.newest.get((source, name), at))
            self.brought_at[source, name] = self.clock

    def keyed(self, records: list[Step]) -> list[Step]:
        queues: dict[str, list[Step]] = {source: [] for source in self.sources}
        for source in self.sources:
            for record in sorted(records, key=lambda record: record[1]):  # rule 7: by partition
                if record[0] == source and record[4] == UNPARSABLE:  # rule 19
                    self.given.dead_letters.append(["key_event", source, None, None, "", None, None])
                elif record[0] == source:
                    queues[source].append(record)
        brought = [queue for queue in queues.values() if queue]
        if len(brought) < 2:
            return [record for queue in brought for record in queue]
        # rule 7: an event waits for those of its key that its source brought before
        turns = [
            (max(at for *_, key, at, _ in queue[: place + 1] if key == record[2]), record[0], place, record)
            for queue in brought
            for place, record in enumerate(queue)
        ]
        return [record for *_, record in sorted(turns, key=lambda turn: turn[:3])]

    def call(
        self, callback: str, source: str | None, key: Key, at: float, tag: str, program: Program, is_late: bool
    ) -> None:
        before = self.subjects.get(key) or Subject(key)
        before.watermark, before.collected = self.watermark, []
        subject = deepcopy(before)
        try:
            answers = [getattr(subject, name)(*arguments) for name, *arguments in program]
        except Mistake:  # rule 19
            letter = [callback, source, key, at, tag, self.watermark, before.shown()]
            self.given.dead_letters.append(letter)
            subject = before
        else:
            call = [callback, key, at, self.watermark, source, is_late, tag, answers]
            self.given.collected.extend([*subject.collected, call])
        self.subjects[key] = subject
