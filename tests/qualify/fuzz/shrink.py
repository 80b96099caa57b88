"""Makes a failing script smaller, as long as it fails in the same way."""

import time
from collections.abc import Callable, Iterator
from typing import Any

import attrs
from tests.qualify.fuzz.scripts import Component, Script, Stage, Step

Fails = Callable[[Script], bool]


def shrunk(script: Script, fails: Fails, most: int = 1_000, seconds: float = 60) -> Script:
    """The smallest script that is reached by removing parts one after the other.

    :param fails: whether a script still fails
    :param most: number of scripts to try
    :param seconds: time for it
    """
    tried, until = 0, time.monotonic() + seconds
    is_smaller = True
    while is_smaller:
        is_smaller = False
        for candidate in candidates(script):
            tried += 1
            if tried > most or time.monotonic() > until:
                return script
            if fails(candidate):
                script, is_smaller = candidate, True
                break
    return script


def candidates(script: Script) -> Iterator[Script]:
    """Scripts with less than a script, those with much less first."""
    yield from without_steps(script)
    for stage in reversed(script.stages):
        yield from without_stage(script, stage)
    for place, stage in enumerate(script.stages):
        for smaller in smaller_stages(stage):
            stages = [*script.stages[:place], smaller, *script.stages[place + 1 :]]
            yield attrs.evolve(script, stages=stages)
    for place, step in enumerate(script.steps):
        for simpler in simpler_steps(step):
            yield attrs.evolve(script, steps=[*script.steps[:place], simpler, *script.steps[place + 1 :]])


def without_steps(script: Script) -> Iterator[Script]:
    size = len(script.steps) // 2
    while size:
        for first in range(0, len(script.steps), size):
            yield attrs.evolve(script, steps=script.steps[:first] + script.steps[first + size :])
        size //= 2


def without_stage(script: Script, stage: Stage) -> Iterator[Script]:
    if len(script.stages) == 1 or any(source.feed == stage.name for each in script.stages for source in each.sources):
        return
    steps = [step for step in script.steps if not is_of(step, stage)]
    yield Script([each for each in script.stages if each is not stage], steps)


def is_of(step: Step, stage: Stage) -> bool:
    return stage.name in (step[1:2] if step[0] in ("record", "many", "update") else step[2:3])


def smaller_stages(stage: Stage) -> Iterator[Stage]:
    for component in stage.components if stage.kind == "machine" else ():
        rest = [without_feed(each, component.name) for each in stage.components if each is not component]
        yield attrs.evolve(stage, components=rest)
    for source in stage.sources if len(stage.sources) > 1 else ():
        yield attrs.evolve(stage, sources=[each for each in stage.sources if each is not source])
    for field, least in (("late", "deliver"), ("on_error", "fail"), ("lookup", None), ("on_change", None)):
        if getattr(stage, field) != least:
            yield attrs.evolve(stage, **{field: least})
    for name in stage.ttl:
        yield attrs.evolve(stage, ttl={each: ttl for each, ttl in stage.ttl.items() if each != name})
    for place, source in enumerate(stage.sources):
        for change in ({"delay": 0}, {"idle": None}):
            smaller = attrs.evolve(source, **change)
            if smaller != source:
                yield attrs.evolve(stage, sources=[*stage.sources[:place], smaller, *stage.sources[place + 1 :]])
    for place, component in enumerate(stage.components):
        for part in ("settings", "then"):
            fields = getattr(component, part)
            for name in fields:
                rest = {each: value for each, value in fields.items() if each != name}
                smaller = attrs.evolve(component, **{part: rest})
                yield attrs.evolve(
                    stage, components=[*stage.components[:place], smaller, *stage.components[place + 1 :]]
                )


def without_feed(component: Component, target: str) -> Component:
    return attrs.evolve(
        component, then={name: value for name, value in component.then.items() if (name, value) != ("feed", target)}
    )


def simpler_steps(step: Step) -> Iterator[Step]:
    match step:
        case ["record", *place, value] if isinstance(value, dict):
            for simpler in simpler_values(value):
                yield ["record", *place, simpler]
        case ["many", stage, source, partition, events]:
            for event in events:
                yield ["record", stage, source, partition, *event]
        case ["snapshot" | "savepoint" | "restart" | "crash" | "clock" | "run", *_]:
            yield ["end_batch"]


def simpler_values(value: dict[str, Any]) -> Iterator[dict[str, Any]]:
    program = value["do"]
    for place, (name, *arguments) in enumerate(program):
        yield {**value, "do": program[:place] + program[place + 1 :]}
        if name == "send":
            *others, sent = arguments
            for simpler in simpler_values(sent):
                yield {**value, "do": [*program[:place], [name, *others, simpler], *program[place + 1 :]]}
    for name in ("flag", "need"):
        if name in value:
            yield {each: part for each, part in value.items() if each != name}
