"""The settings that jobs and stages share, and the conversion of their values."""

from collections.abc import Mapping, Sequence
from datetime import timedelta
from types import MappingProxyType
from typing import Any, Literal, TypeAlias

import attrs

from amadou._connectors.connector import Sink, Source
from amadou._engine.time import seconds_or_time
from amadou._jobs.params import Param
from amadou.dependencies import DependsOn

BySource: TypeAlias = timedelta | float | Param | Mapping[str, timedelta | float | Param]


def delay(value: Any) -> Any:
    if isinstance(value, Mapping):
        return MappingProxyType({source: delay(each) for source, each in value.items()})
    return seconds_or_time(value)


def timeout(value: Any) -> Any:
    return None if value is None else delay(value)


def letter_bound(value: Any) -> Any:
    """Convert a float without a fractional part into an `int`. A `Param` with `type=float` can have such a value. 1.0
    stays a float, because 1.0 may be meant as a fraction.
    """
    return int(value) if type(value) is float and value.is_integer() and value != 1 else value


def as_tuple(value: Any) -> Any:
    return tuple(value) if isinstance(value, Sequence) and not isinstance(value, str) else value


def frozen_mapping(value: Any) -> Any:
    return MappingProxyType(dict(value)) if isinstance(value, Mapping) else value


# Type checkers use the parameter types of these converters as the types of the job's arguments.
def sources_by_name(value: Mapping[str, Source]) -> Mapping[str, Source]:
    frozen: Mapping[str, Source] = frozen_mapping(value)
    return frozen


def sinks_by_port(value: Mapping[str, Sink | Sequence[Sink]]) -> Mapping[str, Sink | tuple[Sink, ...]]:
    given = {port: as_tuple(sinks) for port, sinks in value.items()} if isinstance(value, Mapping) else value
    frozen: Mapping[str, Sink | tuple[Sink, ...]] = frozen_mapping(given)
    return frozen


def retired_by_spec(value: Mapping[str, Literal["drop", "keep"]]) -> Mapping[str, Literal["drop", "keep"]]:
    frozen: Mapping[str, Literal["drop", "keep"]] = frozen_mapping(value)
    return frozen


@attrs.frozen(eq=False)
class HandlerSettings:
    """The settings that determine how a handler's events are processed; see `Job`."""

    watermark_delay: BySource = attrs.field(default=timedelta(0), converter=delay, kw_only=True)
    idle_timeout: BySource | None = attrs.field(default=None, converter=timeout, kw_only=True)
    late_events: Literal["deliver", "drop", "divert"] = attrs.field(default="deliver", kw_only=True)
    on_error: Literal["fail", "dead_letter"] = attrs.field(default="fail", kw_only=True)
    max_dead_letters: float | Param | None = attrs.field(default=None, converter=letter_bound, kw_only=True)
    max_ahead: timedelta | float | Param | None = attrs.field(default=None, converter=timeout, kw_only=True)
    retired: Mapping[str, Literal["drop", "keep"]] = attrs.field(factory=dict, converter=retired_by_spec, kw_only=True)
    dependencies: Sequence[DependsOn] = attrs.field(default=(), converter=as_tuple, kw_only=True)


def pickled_state(holder: Any) -> dict[str, Any]:
    """Return the attributes of a job or stage for pickle, which cannot pickle read-only mappings."""
    state = attrs.asdict(holder, recurse=False)
    return {name: dict(value) if isinstance(value, MappingProxyType) else value for name, value in state.items()}


def restore_state(holder: Any, state: dict[str, Any]) -> None:
    """Set the attributes that `pickled_state` returned."""
    for name, value in state.items():
        object.__setattr__(holder, name, frozen_mapping(value))
