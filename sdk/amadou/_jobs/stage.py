"""The stages of a job, and ports as sources of stages."""

import re
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Any, Final

import attrs

from amadou._connectors.connector import Sink, Source
from amadou._connectors.settings import HandlerSettings, pickled_state, restore_state, sinks_by_port, sources_by_name
from amadou._handler.event import Key, KeyedEvent
from amadou._handler.handler import Handler
from amadou._handler.letters import DEAD_LETTERS, LATE_EVENTS
from amadou._handler.port import SinkSpec, declared_specs
from amadou.errors import UnsupportedTypeError

_NAME: Final = re.compile(r"[A-Za-z0-9_-]+")


@attrs.frozen(eq=False)
class Stage(HandlerSettings):
    """A handler with its sources and sinks, as one step of a job with several handlers (`Job(stages=…)`).

    All parameters mean the same as for a `Job` with one handler.

    :param handler: an instance of a `Handler`
    :param sources: the sources by name. A `FromPort` is a port of another stage
    :param sinks: a sink, or a list of sinks, for each port of the handler. A port that feeds other stages does not need
        a sink
    """

    handler: Handler
    sources: Mapping[str, Source] = attrs.field(converter=sources_by_name)
    sinks: Mapping[str, Sink | tuple[Sink, ...]] = attrs.field(factory=dict, converter=sinks_by_port)

    __getstate__, __setstate__ = pickled_state, restore_state


@attrs.frozen
class FromPort(Source):
    """A port of another stage, as a source. Its records are the port's values, as objects of the port's type.

    The source's watermark in a batch is the watermark of the other stage in the batch before. So an event is never late
    if it has the time at which a punctual event or timer of the other stage was processed (`semantics.md` 36).

    :param stage: the name of the stage whose port this is
    :param port: the port's name
    :param key: the event's key: a function of the port's value, or the name of a field of the value. The event's time
        is then that of the callback that collected the value: the time of its event or timer
    :param key_event: function that turns a value into events, for events with other keys, times or values; by default
        the handler's `key_event`. If the timestamp of a `KeyedEvent` is `None`, the event has the time of the callback
        that collected the value
    """

    stage: str
    port: str
    key: str | Callable[[Any], Key] | None = attrs.field(default=None, kw_only=True)
    key_event: Callable[[Any], Any] | None = attrs.field(default=None, kw_only=True)


@attrs.frozen
class FedSource(Source):
    """A `FromPort` of a job, in the form that engines use.

    :param spec: the port's spec
    """

    stage: str
    port: str
    spec: SinkSpec[Any]
    key_event: Callable[[Any], Any] | None


@attrs.frozen
class _ByKey:
    """A `key_event` function for `FromPort(key=…)`."""

    key: str | Callable[[Any], Key]

    def __call__(self, value: Any) -> KeyedEvent[Any]:
        if callable(self.key):
            return _at_its_time(self.key(value), value)
        key = value[self.key] if isinstance(value, Mapping) else getattr(value, self.key)
        return _at_its_time(key, value)


def _at_its_time(key: Key, value: Any) -> KeyedEvent[Any]:
    unknown: Any = None
    timestamp: datetime = unknown
    return KeyedEvent(key, timestamp, value)


def job_settings(stages: Mapping[str, Stage], name: str) -> dict[str, Any]:
    """Return the arguments for a `Job` that has a stage's handler."""
    settings = {field.name: getattr(stages[name], field.name) for field in attrs.fields(Stage)}
    sources = {
        source: _fed(given, stages) if isinstance(given, FromPort) else given
        for source, given in stages[name].sources.items()
    }
    return {**settings, "sources": sources, "feeds": frozenset(port for of, port in _read(stages) if of == name)}


def in_order(stages: Mapping[str, Stage]) -> list[str]:
    """Return the names of stages, each after those that feed it, and otherwise as they are declared."""
    ordered: list[str] = []
    while len(ordered) < len(stages):
        ordered.append(next(name for name in stages if name not in ordered and {*_feeding(stages[name])} <= {*ordered}))
    return ordered


def stage_problems(stages: Any) -> list[str]:
    """Return a sentence for each mistake in how stages are named and connected."""
    if not isinstance(stages, Mapping):
        return [f"stages must be a mapping from names to amadou.Stage, not {stages!r}"]
    problems = [
        f"the stage name {name!r} must consist of letters, digits, - and _"
        for name in stages
        if not isinstance(name, str) or not _NAME.fullmatch(name)
    ]
    problems += [
        f"stages[{name!r}] must be an amadou.Stage, not {stage!r}"
        for name, stage in stages.items()
        if not isinstance(stage, Stage)
    ]
    if problems:
        return problems
    for name, stage in stages.items():
        given = stage.sources.items() if isinstance(stage.sources, Mapping) else ()
        for source, of in given:
            if isinstance(of, FromPort):
                problems += [f"stage {name!r}: sources[{source!r}] {problem}" for problem in _problems(of, stages)]
    return problems or _circles(stages)


def _problems(of: FromPort, stages: Mapping[str, Stage]) -> list[str]:
    if of.key is not None and of.key_event is not None:
        return ["has both key= and key_event=: remove one of them"]
    if of.stage not in stages:
        return [f"reads from the stage {of.stage!r}, which the job does not have (stages: {', '.join(stages)})"]
    if of.port in (DEAD_LETTERS, LATE_EVENTS):
        return [f"reads the port {of.port!r}, which cannot feed a stage: attach a sink to it"]
    ports = _ports(stages[of.stage])
    if of.port not in ports:
        known = ", ".join(sorted(ports)) or "none"
        return [f"reads the port {of.port!r}, which the stage {of.stage!r} does not have (ports: {known})"]
    try:
        ports[of.port].feed_codec()
    except UnsupportedTypeError as error:
        return [f"reads the port {of.port!r} of the stage {of.stage!r}: {error}"]
    return []


def _circles(stages: Mapping[str, Stage]) -> list[str]:
    circle = cycle({name: _feeding(stage) for name, stage in stages.items()})
    return [f"stages feed each other in a circle: {' ← '.join(circle)}: remove one FromPort"] if circle else []


def cycle(needs: Mapping[str, Sequence[str]]) -> list[str]:
    """Return the names in a cycle: each name needs the next, and the last name repeats the first. The list is empty if
    there is no cycle.
    """
    for first in needs:
        paths = [[first]]
        while paths:
            path = paths.pop()
            for name in needs.get(path[-1], ()):
                if name == first:
                    return [*path, first]
                if name not in path:
                    paths.append([*path, name])
    return []


def _feeding(stage: Stage) -> list[str]:
    return [of.stage for of in stage.sources.values() if isinstance(of, FromPort)]


def _read(stages: Mapping[str, Stage]) -> set[tuple[str, str]]:
    """Return the ports that feed stages, as pairs of a stage and a port."""
    sources = (of for stage in stages.values() for of in stage.sources.values())
    return {(of.stage, of.port) for of in sources if isinstance(of, FromPort)}


def _ports(stage: Stage) -> dict[str, SinkSpec[Any]]:
    return {spec.name: spec for spec in declared_specs(stage.handler).values() if isinstance(spec, SinkSpec)}


def _fed(of: FromPort, stages: Mapping[str, Stage]) -> FedSource:
    spec = _ports(stages[of.stage])[of.port]
    return FedSource(of.stage, of.port, spec, of.key_event if of.key is None else _ByKey(of.key))
