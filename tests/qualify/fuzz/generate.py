"""Makes a script from a seed and a number."""

from collections.abc import Sequence
from random import Random
from typing import Any

import attrs
from tests.qualify.fuzz.scripts import KEYS, NAMES, UNPARSABLE, Component, Program, Script, Source, Stage, Step
from tests.savepoints import STORES

UNORDERED = (None, "count", "sum", "max", "min", "mean", "several")
ORDERED = ("ids", "first", "last", "ordered", "backwards")
FEEDABLE = ("tumbling", "hopping", "count")
"""Windows to which callbacks add events."""


def script_of(seed: int, number: int) -> Script:
    return Generator(Random(f"{seed}:{number}")).script()


class Generator:
    """Draws the parts of a script."""

    def __init__(self, random: Random) -> None:
        self.random = random
        self.number = 0
        """Of records, so that each has its own id."""

    def chance(self, of: float) -> bool:
        return self.random.random() < of

    def pick(self, *among: Any) -> Any:
        return self.random.choice(among)

    def script(self) -> Script:
        self.keys = self.random.sample(range(len(KEYS)), self.random.randint(1, 3))
        stages: list[Stage] = []
        for number in range(self.pick(1, 1, 1, 1, 2, 2, 2, 3)):
            stages.append(self.stage(number, stages))
        self.stages = stages
        self.feeding = {source.feed for stage in stages for source in stage.sources if source.feed}
        self.now = 0
        self.stages = [self.with_change(stage) for stage in stages]
        return Script(self.stages, self.steps(self.stages))

    # the job

    def stage(self, number: int, before: Sequence[Stage]) -> Stage:
        name = f"s{number}"
        if number == 0 and self.chance(0.15):
            return self.windowed_stage(name)
        on_error = self.pick("fail", "dead_letter")
        idle = self.pick(None, None, self.random.randint(1, 6))
        sources = [
            Source(f"from_{stage.name}", stage.name, delay=self.pick(0, 0, self.random.randint(1, 4)))
            for stage in self.random.sample(list(before), self.random.randint(1, min(2, len(before))) if before else 0)
        ]
        if self.chance(0.1):
            sources = []  # a port then feeds the reference alone
        if not sources or self.chance(0.35):
            names = self.pick(["events"], ["events"], ["b", "a"])
            names = [f"{each}{number}" for each in names]
            sources += [Source(each, delay=self.random.randint(0, 4), idle=idle) for each in names]
        counting = [source.name for source in sources]
        if self.chance(0.3):
            sources.append(self.reference(name, before))
        components = self.components(counting, on_error, is_fed=any(source.feed for source in sources))
        ttl = {each: self.random.randint(2, 12) for each in ("total", "names", "history") if self.chance(0.35)}
        has_lookup = self.chance(0.15) and not any(stage.lookup for stage in before)
        return Stage(
            name,
            "machine",
            sources,
            components,
            self.pick("deliver", "deliver", "drop", "divert"),
            on_error,
            ttl,
            self.lookup(on_error) if has_lookup else None,
        )

    def with_change(self, stage: Stage) -> Stage:
        """The stage, perhaps with a program for `on_reference_changed`."""
        if stage.reference is None or self.chance(0.4):
            return stage
        program = self.program(stage, ("", "chain", "put"), self.is_feeding(stage))
        return attrs.evolve(stage, on_change=[["entries"], *program])

    def reference(self, stage: str, before: Sequence[Stage]) -> Source:
        machines = [each.name for each in before if each.kind == "machine"]
        feed = self.pick(*machines) if machines and self.chance(0.3) else None
        return Source(f"ref_{stage}", feed, reference=True)

    def lookup(self, on_error: str) -> dict[str, Any]:
        failures = [-1, -1, "dead_letter"] if on_error == "dead_letter" else [-1]
        answers = {name: self.pick(1, 2, "down") for name in NAMES if self.chance(0.7)}
        return {"answers": answers, "on_failure": self.pick(*failures)}

    def windowed_stage(self, name: str) -> Stage:
        window = self.window("w0", self.pick("tumbling", "hopping", "session", "sliding", "count", "tumbling"), False)
        settings = {name: value for name, value in window.settings.items() if name != "on_late"}
        sources = [Source("events", delay=self.random.randint(0, 4), idle=self.pick(None, self.random.randint(1, 6)))]
        late, on_error = self.pick("deliver", "drop", "divert"), self.pick("fail", "fail", "dead_letter")
        return Stage(name, "windowed", sources, [Component("window", window.kind, settings)], late, on_error)

    def components(self, sources: Sequence[str], on_error: str, is_fed: bool) -> list[Component]:
        made: list[Component] = []
        for number in range(self.pick(0, 1, 1, 1, 2, 2, 3)):
            kinds = ["tumbling", "hopping", "session", "sliding", "count", "running"]
            if len(sources) > 1:
                kinds += ["interval", "as_of", "latest"] * 2
            kind = self.pick(*kinds)
            if kind in ("interval", "as_of", "latest"):
                made.append(self.join(f"w{number}", kind, sources))
            elif kind == "running":
                settings = {"value": self.pick("sum", "count", "ids", "several"), "ttl": self.pick(None, 6)}
                made.append(Component(f"w{number}", kind, settings))
            else:
                made.append(self.window(f"w{number}", kind, is_fed))
        return [self.with_then(made, place, on_error) for place in range(len(made))]

    def with_then(self, made: list[Component], place: int, on_error: str) -> Component:
        component = made[place]
        if component.kind == "running":
            return component
        then: dict[str, Any] = {}
        targets = [later.name for later in made[place + 1 :] if is_feedable(later)]
        if targets and self.chance(0.5):
            then["feed"] = self.pick(*targets)
        if self.chance(0.4):
            then["send"] = True
        if on_error == "dead_letter" and self.chance(0.3):
            then["fail"] = self.random.randint(0, 4)
        if self.chance(0.3):
            then["do"] = [
                self.pick(["report"], ["add", 1], ["put", "x", 1], ["append", 3], ["timer_after", 3, "put"], ["count"])
            ]
        return Component(component.name, component.kind, component.settings, then)

    def window(self, name: str, kind: str, is_fed: bool) -> Component:
        settings: dict[str, Any] = {}
        size = self.random.randint(1, 8)
        match kind:
            case "tumbling":
                settings = {"size": size, "offset": self.pick(0, 0, self.random.randint(-3, 3))}
            case "hopping":
                settings = {"size": size, "hop": self.random.randint(1, 8), "offset": self.pick(0, 0, 1)}
            case "session":
                settings = {"gap": self.random.randint(1, 5)}
                if self.chance(0.25):
                    settings["max_duration"] = settings["gap"] + self.random.randint(0, 6)
            case "sliding":
                settings = {"size": size}
            case "count":
                settings = {"size": self.random.randint(1, 4)}
                settings["hop"] = self.pick(None, self.random.randint(1, 5))
                settings["ttl"] = self.pick(None, self.random.randint(3, 12))
        settings["value"] = self.pick(*UNORDERED, *ORDERED)
        if kind != "count":
            settings["lateness"] = self.pick(0, 0, self.random.randint(1, 6))
            settings["late"] = self.pick("drop", "drop", "divert")
            settings["on_late"] = self.chance(0.5)
        if self.chance(0.3):
            early = {"tumbling": [["every", self.random.randint(1, 4)], ["count", 2], ["flag"]], "session": [["flag"]]}
            early["hopping"], early["count"], early["sliding"] = early["tumbling"], [["count", 2], ["flag"]], [None]
            settings["early"] = self.pick(*early[kind])
        elif self.chance(0.15) and kind in FEEDABLE:
            settings["max_active"] = self.random.randint(1, 2)
        elif not is_fed and self.chance(0.1) and kind in ("tumbling", "hopping", "session"):
            settings["storage"] = "memory"
        return Component(name, kind, {name: value for name, value in settings.items() if value is not None})

    def join(self, name: str, kind: str, sources: Sequence[str]) -> Component:
        settings: dict[str, Any] = {"sources": self.random.sample(list(sources), 2)}
        settings["lateness"] = self.pick(0, 0, self.random.randint(1, 4))
        settings["late"] = self.pick("drop", "drop", "divert")
        settings["on_late"] = self.chance(0.5)
        match kind:
            case "interval":
                lower = self.random.randint(-5, 3)
                settings |= {"lower": lower, "upper": lower + self.random.randint(0, 6)}
                settings["how"] = self.pick("inner", "left", "right", "outer")
            case "as_of":
                settings["direction"] = self.pick("backward", "forward", "nearest")
                settings["tolerance"] = self.random.randint(0, 6)
                if settings["direction"] == "backward" and self.chance(0.5):
                    settings["tolerance"] = None
                    settings["ttl"] = self.pick(None, settings["lateness"] + self.random.randint(1, 8))
                settings["how"] = self.pick("left", "inner")
            case "latest":
                settings["ttl"] = self.pick(None, self.random.randint(1, 10))
                settings["how"] = self.pick("left", "inner")
        return Component(name, kind, settings)

    # programs

    def value(self, stage: Stage, depth: int = 0) -> dict[str, Any]:
        self.number += 1
        value: dict[str, Any] = {"v": self.random.randint(-2, 5), "id": self.number, "do": []}
        if stage.kind == "machine":
            value["do"] = self.program(stage, self.tags(stage), sends=self.is_feeding(stage))
        if self.chance(0.3):
            value["flag"] = True
        if stage.lookup is not None and self.chance(0.6):
            value["need"] = self.pick(*NAMES)
        return value

    def is_feeding(self, stage: Stage) -> bool:
        return stage.name in self.feeding

    def tags(self, stage: Stage) -> tuple[str, ...]:
        tags = ["", "chain", "put", "cancel", "clear"]
        if stage.reference is not None:
            tags.append("entries")
        if stage.components and is_feedable(stage.components[0]):
            tags.append("window")
        if self.is_feeding(stage):
            tags.append("send")
        if stage.on_error == "dead_letter":
            tags.append("fail")
        return tuple(tags)

    def program(self, stage: Stage, tags: tuple[str, ...], sends: bool) -> Program:
        return [self.instruction(stage, tags, sends) for _ in range(self.pick(0, 1, 1, 2, 2, 3))]

    def instruction(self, stage: Stage, tags: tuple[str, ...], sends: bool) -> list[Any]:
        now, number = self.now, self.random.randint(0, 3)
        drawn: list[list[Any]] = [
            ["report"],
            ["report"],
            ["set_timer", now + self.random.randint(-3, 9), self.pick(*tags)],
            ["set_timer", now + self.random.randint(0, 5), self.pick(*tags)],
            ["set_timer", self.pick(6, 12), self.pick(*tags)],
            ["timer_after", self.random.randint(0, 4), self.pick(*tags)],
            ["delete_timer", self.pick(6, 12, now), self.pick(*tags)],
            ["add", number],
            ["put", self.pick(*NAMES), number],
            ["put", self.pick(*NAMES), number],
            ["get", self.pick(*NAMES)],
            ["drop", self.pick(*NAMES)],
            ["append", number],
            ["append", number],
            ["assign", number],
            ["pop"],
            ["clear"],
            ["count"],
        ]
        if stage.reference is not None:
            drawn += [["entries"], ["entries"], ["watch"], ["unwatch"]]
            if stage.on_change is None:
                drawn = [each for each in drawn if each[0] not in ("watch", "unwatch")]
            else:
                drawn += [["watch"], ["watch"]]
        if sends:
            to = self.fed_by(stage)
            at = self.pick(None, None, now + self.random.randint(-3, 3))
            for _ in range(3):
                drawn.append(["send", self.pick(*self.keys), at, self.value(to)])
        if stage.on_error == "dead_letter":
            drawn += [["fail"]]
        return self.pick(*drawn)

    def fed_by(self, stage: Stage) -> Stage:
        """The stage that a stage feeds; of several, what they have in common."""
        fed = [each for each in self.stages if any(source.feed == stage.name for source in each.sources)]
        return fed[0] if len(fed) == 1 else Stage("", "machine", [])

    # the steps

    def steps(self, stages: Sequence[Stage]) -> list[Step]:
        steps: list[Step] = []
        boundaries = ["end_batch"] * 6 + ["watermark", "watermark", "clock", "clock", "restart", "crash", "run"]
        boundaries += ["snapshot"] if self.chance(0.3) else []
        boundaries += ["savepoint"] if self.chance(0.15) else []
        for batch in range(self.random.randint(2, 8)):
            self.now = 2 * batch
            steps += [self.record(stages) for _ in range(self.random.randint(0, 6))]
            steps.append(self.boundary(self.pick(*boundaries), stages))
        steps.append(self.pick(["run"], ["flush"], ["flush"]))
        return steps

    def record(self, stages: Sequence[Stage]) -> Step:
        stage = self.pick(*(stage for stage in stages if stage.external or is_updated(stage)))
        time = max(self.now + self.random.randint(-4, 6), 0)
        if is_updated(stage) and (not stage.external or self.chance(0.2)):
            bad = [UNPARSABLE] if stage.on_error == "dead_letter" else []
            return ["update", stage.name, self.pick(*NAMES), time, self.pick(1, 2, 3, None, *bad)]
        source = self.pick(*stage.external)
        partition = self.pick("", "", "1")
        if stage.on_error == "dead_letter" and self.chance(0.05):
            return ["record", stage.name, source.name, partition, self.pick(*self.keys), time, UNPARSABLE]
        if stage.kind == "machine" and self.chance(0.06):
            least = 0
            times = [max(time + self.random.randint(-2, 2), 0) for _ in range(self.random.randint(least, 3))]
            events = [[self.pick(*self.keys), each, self.value(stage)] for each in times]
            return ["many", stage.name, source.name, partition, events]
        return ["record", stage.name, source.name, partition, self.pick(*self.keys), time, self.value(stage)]

    def boundary(self, name: str, stages: Sequence[Stage]) -> Step:
        if name == "watermark":
            time = max(self.now + self.random.randint(-3, 6), 0)
            stage = self.pick(*(stage for stage in stages if stage.external))
            if self.chance(0.7):
                return [name, time, self.pick(None, stage.name), None]
            return [name, time, stage.name, self.pick(*stage.external).name]
        if name == "clock":
            return [name, self.random.randint(0, 10)]
        if name == "crash":
            return [name, self.pick(None, self.random.randint(0, 5)), self.pick(*stages).name]
        if name == "savepoint":
            return [name, self.pick(*STORES), self.random.randint(1, 7)]
        return [name]


def is_feedable(component: Component) -> bool:
    """Whether callbacks add events to a window in scripts."""
    return component.kind in FEEDABLE and (component.settings.get("early") or [None])[0] != "every"


def is_updated(stage: Stage) -> bool:
    """Whether records of the script update the reference of a stage."""
    return stage.reference is not None and stage.reference.feed is None
