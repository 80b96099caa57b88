"""The results of a script by `semantics.md`: a model of plain dicts and loops, without code of the product.

A script is a list of steps. A step is the name of a method of `TestRun` and its arguments. The arguments of a record
are the source, its partition, the key, the time, and a program, or `UNPARSABLE` instead of the program. A program is a
list of instructions. An instruction is the name of a method of `Subject` in this module, and of `ProgramHandler` in
`test_scripts.py`, and its arguments. Times are whole seconds.
"""

import math
from copy import deepcopy
from typing import Any, NamedTuple, TypeAlias

Key: TypeAlias = Any
Program: TypeAlias = list[list[Any]]
Step: TypeAlias = tuple[Any, ...]

UNPARSABLE = "unparsable"


class Results(NamedTuple):
    """Results of a script."""

    collected: list[Any]
    """Outputs, in order."""
    subjects: dict[Key, list[Any]]
    """State and timers of each key that has state or timers."""
    late: list[Any]
    """Key, time and program of each late event."""
    dead_letters: list[Any]
    """Callback, source, key, time, tag and watermark of each dead letter, and state and timers before the callback."""
    watermark: float | None


class Mistake(Exception):  # noqa: N818 - its name is seen in messages
    """Error that a failing program raises."""


def program_of(tag: str, now: float) -> Program:
    """Return the program of a timer with a tag."""
    programs: dict[str, Program] = {
        "": [["collect"]],
        "cancel": [["delete_timer", at, tag] for at, tag in ((now, "cancel"), (now, "put"), (now + 1, ""))],
        "chain": [["set_timer", now + 3, "chain"], ["set_timer", now, ""], ["add", 1]],
        "clear": [["clear"], ["collect"]],
        "fail": [
            ["clear"],
            ["put", "c", 0],
            ["set_timer", 99, ""],
            ["delete_timer", now, "put"],
            ["collect"],
            ["fail"],
        ],
        "put": [["put", "b", 7], ["append", 7]],
    }
    return programs[tag]


def order(key: Key) -> Any:
    """Return a sort key: keys of different types are sorted by the names of their types."""
    return ("tuple", tuple(map(order, key))) if isinstance(key, tuple) else (type(key).__name__, key)


class Subject:
    """State and timers of a key, and the instructions of programs."""

    def __init__(self, key: Key) -> None:
        self.key = key
        self.total: int | None = None
        self.names: dict[str, int] = {}
        self.history: list[int] = []
        self.timers: set[tuple[float, str]] = set()
        self.watermark: float | None = None
        self.firing: float | None = None
        self.newest: float = -math.inf
        self.collected: list[Any] = []

    def set_timer(self, at: float, tag: str) -> bool:  # rules 9 to 12
        if self.firing is not None and (at <= self.firing or (self.watermark == math.inf and at > self.newest)):
            return False
        if self.firing is None and self.watermark is not None and at <= self.watermark:
            return False
        self.timers.add((at, tag))
        return True

    def delete_timer(self, at: float, tag: str) -> bool:  # rule 10
        was_set = (at, tag) in self.timers
        self.timers.discard((at, tag))
        return was_set

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

    def collect(self) -> None:
        self.collected.append(["collect", self.key, self.total is not None, *self.shown()])

    def fail(self) -> None:
        raise Mistake

    def shown(self) -> list[Any]:
        return [self.total or 0, list(self.names.items()), list(self.history), sorted(self.timers)]

    def is_empty(self) -> bool:  # rule 15
        return self.total is None and not (self.names or self.history or self.timers)


class Model:
    """Processes a script; see `Job` for the settings."""

    def __init__(
        self, sources: tuple[str, ...], watermark_delay: int, idle_timeout: int | None, late_events: str
    ) -> None:
        self.sources = sources
        self.delay = watermark_delay
        self.idle_timeout = math.inf if idle_timeout is None else idle_timeout
        self.late_events = late_events
        self.subjects: dict[Key, Subject] = {}
        self.results = Results([], {}, [], [], None)
        self.watermark: float | None = None
        self.clock = 0
        self.newest: dict[tuple[str, str], float] = {}
        self.last_event_at: dict[tuple[str, str], int] = {}
        self.without_partitions: set[str] = set()

    def process(self, steps: list[Step]) -> Results:
        records: list[Step] = []
        has_started = False
        for name, *arguments in steps:
            if name == "add_record":
                records.append(tuple(arguments))
                continue
            if name != "run" or has_started or records:
                self.process_batch(records)
            records, has_started = [], name != "run"
            if name == "add_watermark":
                (at,) = arguments
                self.bring(max(self.newest.values(), default=None) if at is None else at)
            elif name == "advance_processing_time":
                self.advance_clock(*arguments)
            elif arguments == ["flush"]:  # rule 12
                self.raise_watermark(math.inf)
                self.process_batch([])
        self.follow_sources()
        shown = {key: subject.shown() for key, subject in self.subjects.items() if not subject.is_empty()}
        return self.results._replace(subjects=shown, watermark=self.watermark)

    def raise_watermark(self, at: float | None) -> None:  # rule 2
        if at is not None and (self.watermark is None or at > self.watermark):
            self.watermark = at

    def bring(self, at: float | None) -> None:
        for source in self.sources if at is not None else ():
            partitions = [name for of, name in self.newest if of == source]
            if not partitions:
                self.without_partitions.add(source)
            for partition in partitions or [""]:
                self.advance(source, partition, at + self.delay)

    def advance(self, source: str, partition: str, at: float) -> None:
        self.newest[source, partition] = max(at, self.newest.get((source, partition), at))
        self.last_event_at[source, partition] = self.clock

    def follow_sources(self) -> list[str]:  # rules 2 and 3
        silent = [source for source in self.sources if source not in {source for source, _ in self.newest}]
        if silent and self.clock < self.idle_timeout:
            return silent
        # the minimum over all partitions that are not idle is also the minimum over sources
        active = [name for name, at in self.last_event_at.items() if self.clock - at < self.idle_timeout]
        self.raise_watermark(min((self.newest[name] - self.delay for name in active), default=None))
        return [source for source, _ in active]

    def advance_clock(self, seconds: int) -> None:  # rule 3
        for _ in range(seconds):
            if not self.follow_sources() and self.idle_timeout < math.inf and self.watermark is not None:
                self.watermark += 1
            self.clock += 1

    def process_batch(self, records: list[Step]) -> None:
        self.follow_sources()
        mark = self.watermark
        events = self.keyed(records)
        for subject in self.subjects.values():
            subject.watermark = mark
        while due := self.due(mark):  # rules 5 and 6
            at, _, tag, key = min(due)
            self.subjects[key].delete_timer(at, tag)
            self.call("on_timer_expired", None, key, at, tag, program_of(tag, at), False)
        for source, _, key, at, program in events:
            is_late = mark is not None and at < mark  # rule 13
            if is_late:
                self.results.late.append([key, at, program])
            if not is_late or self.late_events == "deliver":
                self.call("on_event", source, key, at, "", program, is_late)
        brought = {(event[0], event[1]) for event in events}
        for source in self.without_partitions & {source for source, _ in brought}:
            self.without_partitions.discard(source)
            if (source, "") not in brought:
                del self.newest[source, ""], self.last_event_at[source, ""]
        for *partition, _, at, _ in events:
            self.advance(*partition, at)

    def due(self, mark: float | None) -> list[tuple[Any, ...]]:
        timers = [(at, order(key), tag, key) for key, subject in self.subjects.items() for at, tag in subject.timers]
        return [timer for timer in timers if mark is not None and timer[0] <= mark]

    def keyed(self, records: list[Step]) -> list[Step]:
        queues: dict[str, list[Step]] = {source: [] for source in self.sources}
        for source in self.sources:
            for record in sorted(records, key=lambda record: record[1]):  # rule 7: by partition
                if record[0] == source and record[4] == UNPARSABLE:  # rule 19
                    self.results.dead_letters.append(["key_event", source, None, None, "", None, None])
                elif record[0] == source:
                    queues[source].append(record)
        filled = [queue for queue in queues.values() if queue]
        if len(filled) < 2:
            return [record for queue in filled for record in queue]
        # rule 7: an event waits for earlier events of its key from its source
        turns = [
            (max(at for *_, key, at, _ in queue[: place + 1] if key == record[2]), record[0], place, record)
            for queue in filled
            for place, record in enumerate(queue)
        ]
        return [record for *_, record in sorted(turns, key=lambda turn: turn[:3])]

    def call(
        self, callback: str, source: str | None, key: Key, at: float, tag: str, program: Program, is_late: bool
    ) -> None:
        before = self.subjects.get(key) or Subject(key)
        before.watermark, before.collected = self.watermark, []
        before.firing = at if callback == "on_timer_expired" else None
        before.newest = max(self.newest.values(), default=-math.inf)
        subject = deepcopy(before)
        try:
            answers = [getattr(subject, name)(*arguments) for name, *arguments in program]
        except Mistake:  # rule 19
            dead_letter = [callback, source, key, at, tag, self.watermark, before.shown()]
            self.results.dead_letters.append(dead_letter)
            subject = before
        else:
            call = [callback, key, at, self.watermark, source, is_late, tag, answers]
            self.results.collected.extend([*subject.collected, call])
        self.subjects[key] = subject
