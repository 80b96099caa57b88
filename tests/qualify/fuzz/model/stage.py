"""A stage's batches: which callbacks are called, in which order, and what they do."""

import math
from collections.abc import Iterator
from typing import Any, NamedTuple

from tests.qualify.fuzz.known import Rules
from tests.qualify.fuzz.model.aggregates import result_of
from tests.qualify.fuzz.model.clock import END, Clock
from tests.qualify.fuzz.model.joins import AsOf, Interval, Join, Latest
from tests.qualify.fuzz.model.keys import Aged, KeyState, order
from tests.qualify.fuzz.model.windows import Counting, Event, Hopping, Session, Sliding
from tests.qualify.fuzz.scripts import (
    KEYS,
    MICRO,
    NAMES,
    UNPARSABLE,
    Component,
    Key,
    Program,
    Stage,
    number_of,
    program_of,
)

KINDS: dict[str, Any] = {
    "tumbling": Hopping,
    "hopping": Hopping,
    "session": Session,
    "sliding": Sliding,
    "count": Counting,
    "interval": Interval,
    "as_of": AsOf,
    "latest": Latest,
}
AFTER_COMPONENTS = 1_000
"""The place of timers of the handler: they fire after those of components (rule 23)."""
MOST = 10_000
"""Number of timers in a batch, so that a script that is made smaller cannot go on for ever."""


class Mistake(Exception):  # noqa: N818 - it stands for the one of the handlers
    """A callback fails."""


class Keyed(NamedTuple):
    """An event of a batch."""

    source: str
    partition: str
    key: Key
    at: float
    value: dict[str, Any]


class Sent(NamedTuple):
    """A value that a callback collects for other stages."""

    at: float
    key: Key
    value: Any


class Output:
    """What a stage gives."""

    def __init__(self) -> None:
        self.collected: list[list[Any]] = []
        self.late: list[list[Any]] = []
        self.diverted: list[list[Any]] = []
        self.dead_letters: list[list[Any]] = []
        self.counters: dict[str, int] = {}
        self.dropped = 0


class StageModel:
    """A stage."""

    def __init__(self, stage: Stage, rules: Rules) -> None:
        self.stage = stage
        self.rules = rules
        self.clock = Clock(stage, rules)
        self.keys: dict[Key, KeyState] = {}
        self.output = Output()
        self.reference: dict[str, tuple[float, int | None]] = {}
        self.sent: list[Sent] = []
        self.has_just_lost = False
        """Whether windows in memory have been lost since the last batch."""
        self.last_event = -math.inf
        """The newest event time of the job's sources, during a flush."""

    def key(self, key: Key) -> KeyState:
        return self.keys.get(key) or KeyState(key, self.stage)

    def lose_memory(self, is_counted: bool) -> None:
        """A run ends: what is in memory is lost.

        :param is_counted: `False` if the next run starts from a savepoint, which is without it
        """
        if self.has_just_lost and not is_counted:
            self.rules.meets("lost-at-once")
        for component in self.stage.components:
            if component.settings.get("storage") == "memory":
                lost = [state for state in self.keys.values() if component.name in state.components]
                number = sum(state.components[component.name].lose() for state in lost)
                if number and is_counted:
                    self.has_just_lost = True
                    name = f"{component.name}.lost"
                    self.output.counters[name] = self.output.counters.get(name, 0) + number

    def play_batch(self, records: list[list[Any]], fed: dict[str, list[Sent]], now: int) -> None:
        self.clock.follow(now)
        self.has_just_lost = False
        mark = self.clock.watermark
        self.sent = []
        events = self.keyed(records, fed)
        self.update(self.updates(records, fed), mark, self.clock.last_watermark)
        if mark is not None:
            self.fire(mark)
        for state in self.keys.values():
            for component in state.components.values():
                component.begin()
        for event in events:
            self.process(event, mark)
        if mark is not None:
            self.expire(mark)
        self.clock.observe([(*event[:2], event.at) for event in events if event.source in self.clock.idle], now)

    def keyed(self, records: list[list[Any]], fed: dict[str, list[Sent]]) -> list[Keyed]:
        """The events of a batch in their order (rule 7)."""
        queues: list[tuple[str, list[Keyed]]] = []
        for source in self.stage.sources:
            if source.reference:
                continue
            queue: list[Keyed] = []
            if source.feed is not None:
                queue = [keyed_value(source.name, sent) for sent in in_order_of_callbacks(fed.get(source.feed, []))]
            own = [record for record in records if record[0] in ("record", "many") and record[2] == source.name]
            for record in sorted(own, key=lambda record: str(record[3])):
                _, _, name, partition, *rest = record
                many = [tuple(rest)] if record[0] == "record" else [tuple(one) for one in rest[0]]
                if any(value == UNPARSABLE for *_, value in many):  # rule 19 c
                    self.output.dead_letters.append(["key_event", name, None, None, "", None, None])
                    continue
                queue += [Keyed(name, partition, KEYS[place], at * MICRO, value) for place, at, value in many]
            queues.append((source.name, queue))
        turns = []
        for name, queue in queues:
            reached: dict[Key, float] = {}
            for place, event in enumerate(queue):
                reached[event.key] = max(event.at, reached.get(event.key, -math.inf))
                turns.append((reached[event.key], name, place, event))
        brought = [queue for _, queue in queues if queue]
        if len(brought) == 1:
            return brought[0]
        return [event for *_, event in sorted(turns, key=lambda turn: turn[:3])]

    def expire(self, mark: float) -> None:
        """Remove what has expired by the watermark (rule 16 e)."""
        for state in self.keys.values():
            for name in state.expire(mark):
                self.output.counters[f"{name}.expired"] = self.output.counters.get(f"{name}.expired", 0) + 1
            for component in state.components.values():
                component.settle(mark)

    def updates(self, records: list[list[Any]], fed: dict[str, list[Sent]]) -> list[tuple[str, float, int | None]]:
        """The updates of the reference in a batch: name, time and value of each."""
        source = self.stage.reference
        if source is not None and source.feed is not None:
            sent = [keyed_value(source.name, one) for one in in_order_of_callbacks(fed.get(source.feed, []))]
            return [(NAMES[KEYS.index(each.key) % len(NAMES)], each.at, each.value["v"]) for each in sent]
        found = []
        for _, _, name, at, value in (record for record in records if record[0] == "update"):
            if value == UNPARSABLE:
                assert source is not None
                self.output.dead_letters.append(["key_event", source.name, None, None, "", None, None])
            else:
                found.append((name, at * MICRO, value))
        return found

    def update(self, updates: list[tuple[str, float, int | None]], mark: float | None, last_mark: float | None) -> None:
        """Rule 37."""
        changed: set[str] = set()
        newest = -math.inf
        for name, at, value in updates:
            newest = max(newest, at)
            if name not in self.reference or at >= self.reference[name][0]:
                self.reference[name] = (at, value)
                changed.add(name)
        if not changed or self.stage.on_change is None:
            return
        detail = ["ref", sorted(changed), newest]
        for key in sorted((key for key, state in self.keys.items() if state.is_watching), key=order):
            at = newest if last_mark is None else max(newest, last_mark)
            call = CallModel(self, key, at, mark, "on_reference_changed", is_timer=False)
            call.now = at if last_mark is None else last_mark
            call.run(lambda call=call: call.change(detail, self.stage.on_change or []))

    def fire(self, mark: float) -> None:
        """Rules 5, 6 and 23."""
        for _ in range(MOST):
            due: list[tuple[Any, ...]] = []
            for key, state in self.keys.items():
                for place, component in enumerate(self.stage.components):
                    model = state.components.get(component.name)
                    at = None if model is None else model.due(mark)
                    if at is not None:
                        due.append((at, 0, order(key), place, "", key))
                due += [(at, 1, order(key), 0, tag, key) for at, tag in state.timers if at <= mark]
            if not due:
                return
            at, is_timer, _, place, tag, key = min(due, key=lambda one: one[:5])
            if is_timer:
                self.keys[key].timers.discard((at, tag))
                call = CallModel(self, key, at, mark, "on_timer_expired", is_timer=True, tag=tag)
                call.run(lambda call=call, tag=tag, at=at: call.execute("timer", program_of(tag, at / MICRO), tag, []))
            else:
                component = self.stage.components[place]
                call = CallModel(self, key, at, mark, component.name, is_timer=True, place=place)
                call.fire_component(component)
        raise RuntimeError("timers do not come to an end")

    def process(self, event: Keyed, mark: float | None) -> None:
        is_late = mark is not None and event.at < mark  # rule 13
        if is_late:
            self.output.late.append([KEYS.index(event.key), event.at, self.id_of(event)])
            if self.stage.late == "drop":
                self.output.dropped += 1
            if self.stage.late == "divert":
                self.output.diverted.append([KEYS.index(event.key), event.at, self.id_of(event), None])
            if self.stage.late != "deliver":
                return
        call = CallModel(self, event.key, event.at, mark, "on_event", is_timer=False, source=event.source)
        call.is_late = is_late
        call.run(lambda: call.event(event))

    def id_of(self, event: Keyed | Event) -> Any:
        return None if self.stage.kind == "windowed" else event.value["id"]


def in_order_of_callbacks(sent: list[Sent]) -> Iterator[Sent]:
    """Rule 36 d: by time and key of the callbacks; those of a key stay in their order."""
    queues: dict[Key, list[Sent]] = {}
    for one in sent:
        queues.setdefault(one.key, []).append(one)
    while queues:
        key = min(queues, key=lambda key: (queues[key][0].at, order(key)))
        yield queues[key].pop(0)
        if not queues[key]:
            del queues[key]


def keyed_value(source: str, sent: Sent) -> Keyed:
    """Rule 36 a."""
    if isinstance(sent.value, tuple):  # of a stage that is made by `windowed`
        key, end, value = sent.value
        return Keyed(source, "", key, end - 1, {"v": number_of(value), "id": 0, "do": []})
    place, at, value = sent.value
    return Keyed(source, "", KEYS[place], sent.at if at is None else at * MICRO, value)


class CallModel:
    """A call of a callback: what it does is undone if it fails (rule 19 a)."""

    def __init__(
        self,
        stage: StageModel,
        key: Key,
        at: float,
        mark: float | None,
        callback: str,
        is_timer: bool,
        tag: str = "",
        source: str | None = None,
        place: int = AFTER_COMPONENTS,
    ) -> None:
        self.stage = stage
        self.before = stage.key(key)
        self.at = at
        self.watermark = mark
        self.callback = callback
        self.is_timer = is_timer
        self.tag = tag
        self.source = source
        self.place = place
        self.is_late = False
        self.now = at if is_timer or mark is None else max(at, mark)
        """The time for the ttl of state (rule 16 b)."""
        self.firing = at
        self.begin(self.before)

    def begin(self, state: KeyState) -> None:
        self.state = state
        self.collected: list[list[Any]] = []
        self.sent: list[Sent] = []
        self.counters: dict[str, int] = {}
        self.diverted: list[list[Any]] = []
        self.has_dropped: list[dict[str, Any]] = []

    def run(self, body: Any) -> None:
        output, before = self.stage.output, self.before
        if self.stage.stage.on_error == "dead_letter":
            self.state = before.copy()
        try:
            body()
        except Mistake:
            key = KEYS.index(before.key)
            shown = before.seen(self.now).shown()
            letter = [self.callback, self.source, key, self.at, self.tag, self.watermark, shown]
            output.dead_letters.append(letter)
            self.begin(before)
        output.collected += self.collected
        output.diverted += self.diverted
        output.dropped += len(self.has_dropped)
        for name, number in self.counters.items():
            output.counters[name] = output.counters.get(name, 0) + number
        self.stage.sent += self.sent
        self.stage.keys[before.key] = self.state

    def fire_component(self, component: Component) -> None:
        """What is due for a component: each result is a callback of its own."""
        pending: list[tuple[Component, list[Any], Any]] = []
        collecting = self.emit
        self.emit = lambda *result: pending.append(result)  # type: ignore[method-assign, assignment]
        if component.kind in ("session", "sliding"):
            self.at -= 1  # they close after their end, which is the time of the result
        self.state.components[component.name].fire(self, self.watermark)
        self.emit = collecting  # type: ignore[method-assign]
        for name, number in self.counters.items():
            self.stage.output.counters[name] = self.stage.output.counters.get(name, 0) + number
        self.counters = {}
        for result in pending:
            self.callback = callback_of(component)
            self.before = self.stage.key(self.before.key)
            self.begin(self.before)
            self.run(lambda result=result: self.emit(*result))

    # what components ask for

    def has_passed(self, at: float, place: int) -> bool:
        if not self.is_timer:
            return self.watermark is not None and at <= self.watermark
        return at < self.firing or (at == self.firing and place <= self.place)  # rule 23 b

    def emit(self, component: Component, parts: list[Any], values: Any) -> None:
        then = component.then
        if isinstance(values, list):
            values = result_of(component, values)
            parts = [*parts, values]
        if self.stage.stage.kind == "windowed":
            start, end, _, _, partial, _ = parts
            self.collected.append(["window", KEYS.index(self.state.key), start, end, partial, values])
            self.sent.append(Sent(self.at, self.state.key, (self.state.key, end, values)))
            return
        self.collect("result", component.name, self.at, *parts)
        number = number_of(values)
        done = [getattr(self, name)(*arguments) for name, *arguments in then.get("do", ())]
        if done:
            self.collect("done", component.name, done)
        if then.get("send"):
            self.send(number % 3, None, {"v": number, "id": -2, "do": []})
        if then.get("feed"):
            self.add_event(then["feed"], self.at, {"v": number, "id": -3})
        if number == then.get("fail"):
            raise Mistake

    def meets(self, name: str) -> None:
        self.stage.rules.meets(name)

    def too_late(self, component: Component, event: Event) -> None:
        name, settings = component.name, component.settings
        self.increase(f"{name}.late")
        if settings.get("late") == "divert":
            self.diverted.append([KEYS.index(self.state.key), event.at, self.stage.id_of(event), name])
        elif not settings.get("on_late") and not any(event.value is value for value in self.has_dropped):
            self.has_dropped.append(event.value)
        if settings.get("on_late"):
            self.collect("too late", name, self.at, event.at, event.value["id"])

    def increase(self, counter: str) -> None:
        self.counters[counter] = self.counters.get(counter, 0) + 1

    # callbacks

    def event(self, event: Keyed) -> None:
        answers: list[Any] = []
        stage = self.stage.stage
        for component in stage.components:
            sources = component.settings.get("sources")
            if component.kind == "running":
                answers.append(self.run_on(component, event))
            elif not sources or event.source in sources:
                self.add_event(component.name, event.at, event.value)
        if stage.kind == "windowed":
            return
        if stage.lookup is not None and event.value.get("need") is not None:
            answers.append(self.look_up(event.value["need"], stage.lookup))
        self.execute("event", event.value["do"], event.value["id"], answers)

    def look_up(self, name: str, lookup: dict[str, Any]) -> Any:  # rule 35
        answer = lookup["answers"].get(name)
        if answer != "down":
            return answer
        if lookup["on_failure"] == "dead_letter":
            raise Mistake
        return lookup["on_failure"]

    def change(self, detail: list[Any], program: Program) -> None:
        done = [getattr(self, name)(*arguments) for name, *arguments in program]
        self.collect("change", *detail, done)

    def execute(self, what: str, program: Program, detail: Any, answers: list[Any]) -> None:
        done = [getattr(self, name)(*arguments) for name, *arguments in program]
        self.collect(what, detail, self.at, self.source, self.is_late, answers, done)

    def run_on(self, component: Component, event: Keyed) -> Any:
        aged = self.state.running.get(component.name)
        if aged is not None and not aged.lives(component.settings.get("ttl"), self.now):
            self.increase(f"{component.name}.expired")
            aged = None
        values = [*(aged.value if aged else ()), event.value]
        self.state.running[component.name] = aged.written(values, self.now) if aged else Aged(values, self.now)
        return result_of(component, values)

    def add_event(self, name: str, at: float, value: dict[str, Any]) -> None:
        components = self.stage.stage.components
        place = next(place for place, component in enumerate(components) if component.name == name)
        model = self.state.components.get(name)
        if model is None:
            model = self.state.components[name] = KINDS[components[place].kind](components[place], place)
        if isinstance(model, Join):
            model.add(self, self.source, at, value)  # type: ignore[attr-defined]
        else:
            model.add(self, at, value)

    # instructions

    def collect(self, what: str, *parts: Any) -> None:
        self.collected.append([what, KEYS.index(self.state.key), self.watermark, *parts])

    def report(self) -> None:
        state = self.state.seen(self.now)
        total, names, history, timers = state.shown()
        exists = state.total is not None
        self.collect("report", exists, total, names, len(names), history, len(history), timers)

    def set_timer(self, when: float, tag: str) -> bool:
        return self.timer_at(round(when * MICRO), tag)

    def timer_at(self, at: float, tag: str) -> bool:  # rules 9, 10 and 12
        if self.watermark is not None and at <= self.watermark and not self.is_chained(at):
            return False
        self.state.timers.add((at, tag))
        return True

    def is_chained(self, at: float) -> bool:
        if not self.is_timer or at <= self.at:
            return False
        if self.watermark == END and self.place == AFTER_COMPONENTS and at > self.stage.last_event:
            self.increase("timers.not_set")
            return False
        return True

    def timer_after(self, after: int, tag: str) -> bool:
        return self.timer_at(self.at + after * MICRO, tag)

    def delete_timer(self, when: float, tag: str) -> bool:  # rule 10
        timer = (round(when * MICRO), tag)
        was_there = timer in self.state.timers
        self.state.timers.discard(timer)
        return was_there

    def add(self, number: int) -> None:
        stored, seen = self.state.total, self.state.seen(self.now).total
        value = number if seen is None else seen.value + number
        self.state.total = Aged(value, self.now) if stored is None else stored.written(value, self.now)

    def put(self, name: str, number: int) -> None:
        aged = self.state.seen(self.now).names.get(name)
        if aged is None:
            self.state.names.pop(name, None)  # rule 16 d: it becomes the last one
        self.state.names[name] = Aged(number, self.now) if aged is None else aged.written(number, self.now)

    def get(self, name: str) -> int | None:
        aged = self.state.seen(self.now).names.get(name)
        return None if aged is None else aged.value

    def drop(self, name: str) -> int | None:
        aged = self.state.seen(self.now).names.get(name)
        if aged is not None:
            del self.state.names[name]
        return None if aged is None else aged.value

    def append(self, number: int) -> None:
        self.state.history = [*self.state.seen(self.now).history, Aged(number, self.now)]

    def assign(self, number: int) -> bool:
        history = self.state.seen(self.now).history
        if not history:
            return False
        self.state.history = [history[0].written(number, self.now), *history[1:]]
        return True

    def pop(self) -> int | None:
        history = self.state.seen(self.now).history
        if not history:
            return None
        self.state.history = history[:-1]
        return history[-1].value  # type: ignore[no-any-return]

    def clear(self) -> None:
        self.state.total, self.state.names, self.state.history = None, {}, []

    def count(self) -> None:
        self.increase("counted")

    def send(self, place: int, at: float | None, value: Any) -> None:
        self.sent.append(Sent(self.at, self.state.key, [place, at, value]))

    def add_to(self, name: str, after: int) -> None:
        self.add_event(name, self.at + after * MICRO, {"v": 1, "id": -1})

    def fail(self) -> None:
        raise Mistake

    def entries(self) -> list[Any]:
        entries = self.stage.reference
        return [[name, entries[name][1]] for name in NAMES if name in entries and entries[name][1] is not None]

    def watch(self) -> None:
        if self.stage.stage.reference is not None and self.stage.stage.on_change is not None:
            self.state.is_watching = True

    def unwatch(self) -> None:
        self.state.is_watching = False


def callback_of(component: Component) -> str:
    return f"{component.name}_matched" if "sources" in component.settings else f"{component.name}_closed"


__all__ = ["END", "StageModel"]
