"""Scripts: a random job, and the steps of a test run of it. All is plain data, and can be written as JSON.

Times are whole seconds after `START`. Keys are places in `KEYS`. An event's value is a mapping: `v` is a number, `id`
the number of the record, `do` the program of `on_event`, and `flag` lets windows emit an early result. A program is a
list of instructions, each the name of a method of `handlers.Machine` and its arguments.
"""

import json
from typing import Any, TypeAlias

import attrs

Key: TypeAlias = Any
Program: TypeAlias = list[list[Any]]
Step: TypeAlias = list[Any]

KEYS: tuple[Key, ...] = ("a", "b", "1", 1, 2, b"1", ("a", 1), (1, "a"))
UNPARSABLE = "unparsable"
"""The value of a record on which `key_event` fails."""
NAMES = ("x", "y", "z")
"""Keys of maps, references and lookups."""
MICRO = 1_000_000
"""Number of microseconds in a second."""


@attrs.frozen
class Source:
    """A source of a stage.

    :param feed: the stage whose port `feed` (or `results`) it is; `None` for records of the script
    :param reference: `True` for the source of the reference
    :param delay: the `watermark_delay`
    :param idle: the `idle_timeout`
    """

    name: str
    feed: str | None = None
    reference: bool = False
    delay: int = 0
    idle: int | None = None


@attrs.frozen
class Component:
    """A window, a join or a running value of a handler.

    :param kind: `tumbling`, `hopping`, `session`, `sliding`, `count`, `interval`, `as_of`, `latest` or `running`
    :param settings: its settings, durations in seconds; `value` is the name of an aggregate, `early` is `["every", n]`,
        `["count", n]` or `["flag"]`
    :param then: what the callback that gets a result does: `send` the result to the stages that are fed, `feed` it to
        another window, `fail` at a result that is this number, `do` a program
    """

    name: str
    kind: str
    settings: dict[str, Any]
    then: dict[str, Any] = attrs.field(factory=dict)


@attrs.frozen
class Stage:
    """A stage of the job.

    :param kind: `machine`, or `windowed` for a handler that only adds events to its only component
    :param ttl: the `ttl` of `total`, `names` and `history`
    :param lookup: settings of the lookup, or `None`: `answers` and `on_failure`
    :param on_change: the program of `on_reference_changed`; `None` if the handler does not define it
    """

    name: str
    kind: str
    sources: list[Source]
    components: list[Component] = attrs.field(factory=list)
    late: str = "deliver"
    on_error: str = "fail"
    ttl: dict[str, int] = attrs.field(factory=dict)
    lookup: dict[str, Any] | None = None
    on_change: Program | None = None

    @property
    def reference(self) -> Source | None:
        return next((source for source in self.sources if source.reference), None)

    @property
    def fed(self) -> list[Source]:
        return [source for source in self.sources if source.feed is not None and not source.reference]

    @property
    def external(self) -> list[Source]:
        return [source for source in self.sources if source.feed is None and not source.reference]


@attrs.frozen
class Script:
    """A job, and the steps of its test run.

    A step is one of `["record", stage, source, partition, key, time, value]`, `["many", stage, source, partition,
    [[key, time, value], …]]` for a record with several events or none, `["update", stage, name, time, value]`,
    `["end_batch"]`, `["watermark", time, stage, source]`, `["clock", seconds]`, `["restart"]`, `["crash", after,
    stage]`, `["snapshot"]`, `["savepoint", store, key groups]` (see `written_from`), `["run"]` and `["flush"]`.
    """

    stages: list[Stage]
    steps: list[Step]

    @property
    def depth(self) -> int:
        """The number of stages on the longest way through the job."""
        length: dict[str, int] = {}
        for stage in self.stages:
            length[stage.name] = 1 + max((length[source.feed] for source in stage.sources if source.feed), default=0)
        return max(length.values())


def number_of(value: Any) -> int:
    """A number for the result of an aggregate, by which callbacks decide."""
    if isinstance(value, dict):
        return number_of(next(iter(value.values())))
    return len(value) if isinstance(value, list) else int(value or 0)


def program_of(tag: str, now: float) -> Program:
    """What a timer does when it fires."""
    programs: dict[str, Program] = {
        "": [["report"]],
        "cancel": [["delete_timer", at, tag] for at, tag in ((now, "cancel"), (now, "put"), (now + 1, ""))],
        "chain": [["set_timer", now + 3, "chain"], ["set_timer", now, ""], ["add", 1]],
        "clear": [["clear"], ["report"]],
        "entries": [["entries"], ["count"]],
        "fail": [["clear"], ["put", "x", 0], ["set_timer", 99, ""], ["delete_timer", now, "put"], ["report"], ["fail"]],
        "put": [["put", "y", 7], ["append", 7], ["report"]],
        "send": [["send", 0, None, {"v": 5, "id": -4, "do": [["report"]]}], ["add", 2]],
        "window": [["add_to", "w0", 0], ["add_to", "w0", -2]],
    }
    return programs[tag]


def to_json(script: Script) -> str:
    return json.dumps(attrs.asdict(script), separators=(",", ":"))


def from_json(text: str) -> Script:
    fields = json.loads(text)
    return Script([_stage(stage) for stage in fields["stages"]], fields["steps"])


def _stage(fields: dict[str, Any]) -> Stage:
    sources = [Source(**source) for source in fields["sources"]]
    components = [Component(**component) for component in fields["components"]]
    return Stage(**{**fields, "sources": sources, "components": components})


def listing(script: Script) -> str:
    """The script as one reads it."""
    lines = []
    for stage in script.stages:
        lines.append(f"stage {stage.name} ({_shown(stage, 'name', 'sources', 'components')})")
        lines += [f"    source {source.name} ({_shown(source, 'name')})" for source in stage.sources]
        lines += [
            f"    {component.kind} {component.name} ({_settings(component.settings)}) {component.then or ''}".rstrip()
            for component in stage.components
        ]
    lines += [f"{number:3}  {' '.join(map(_argument, step))}" for number, step in enumerate(script.steps)]
    return "\n".join(lines)


def _shown(of: Any, *without: str) -> str:
    fields = {field.name: getattr(of, field.name) for field in attrs.fields(type(of)) if field.name not in without}
    return _settings({name: value for name, value in fields.items() if value not in (None, {}, False)})


def _settings(fields: dict[str, Any]) -> str:
    return ", ".join(f"{name}={value}" for name, value in fields.items())


def _argument(fields: Any) -> str:
    return str(fields)
