"""What a script has, to count what was covered."""

from collections.abc import Iterator

from tests.qualify.fuzz.scripts import Component, Script, Stage


def features_of(script: Script) -> set[str]:
    found = {f"{len(script.stages)} stages" if len(script.stages) > 1 else "1 stage"}
    for stage in script.stages:
        found |= {*of_stage(stage)}
    found |= {f"step {step[0]}" for step in script.steps}
    return found


def of_stage(stage: Stage) -> Iterator[str]:
    yield f"late events: {stage.late}"
    yield f"on_error: {stage.on_error}"
    if stage.kind == "windowed":
        yield "windowed"
    if len(stage.external) > 1:
        yield "two sources"
    if stage.fed and stage.external:
        yield "a port and a source"
    if len(stage.fed) > 1:
        yield "two ports"
    if any(source.idle is not None for source in stage.sources):
        yield "idle_timeout"
    if stage.reference is not None:
        yield "reference" if stage.reference.feed is None else "reference of a port"
    if stage.on_change is not None:
        yield "on_reference_changed"
    if stage.lookup is not None:
        yield f"lookup, on_failure={stage.lookup['on_failure']}"
    for name in stage.ttl:
        yield f"ttl of {name}"
    for component in stage.components:
        yield from of_component(component)


def of_component(component: Component) -> Iterator[str]:
    yield component.kind
    for name in ("max_active", "max_duration", "storage", "early", "ttl"):
        if component.settings.get(name):
            detail = f" {component.settings[name][0]}" if name == "early" else ""
            yield f"{component.kind} {name}{detail}"
    if component.settings.get("lateness"):
        yield "allowed_lateness"
    for name in component.then:
        yield f"a result: {name}"
