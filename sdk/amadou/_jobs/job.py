from collections.abc import Mapping, Sequence
from copy import copy
from datetime import timedelta
from types import MappingProxyType
from typing import Any, Literal, TypeVar

import attrs

from amadou._components.component import Component
from amadou._connectors.connector import Sink, Source
from amadou._connectors.settings import (
    HandlerSettings,
    as_tuple,
    frozen_mapping,
    pickled_state,
    restore_state,
    sinks_by_port,
    sources_by_name,
)
from amadou._handler.handler import Handler
from amadou._handler.letters import DEAD_LETTERS, LATE_EVENTS, DeadLetter, LateEvent
from amadou._handler.lookup import Lookup
from amadou._handler.port import SinkSpec, declared_specs
from amadou._handler.reference import ON_CHANGE, ReferenceSpec, TableSource
from amadou._jobs.checks import broken, connectors, dependencies, handler, settings
from amadou._jobs.params import Param, params_of, with_values
from amadou._jobs.stage import FedSource, Stage, in_order, job_settings, stage_problems
from amadou._state.spec import Spec
from amadou.errors import JobError, ParamError

S = TypeVar("S", "Job", Stage)

_IDLE_IN_MEMORY = timedelta(seconds=5)
"""Default idle timeout for handlers with in-memory windows. If events stop arriving, these windows close at most 10
seconds later than if events kept arriving."""


@attrs.frozen(eq=False)
class Job(HandlerSettings):
    """A handler with its sources and sinks, or several stages: the unit that is tested, described, run and submitted.

    A job with one handler has `handler`, `sources` and `sinks`. A job with several handlers has `stages` instead, and
    each `Stage` has the settings that concern its handler.

    The constructor checks the arguments and the handler, but does not access the systems that the sources and sinks
    connect to. One error reports all mistakes.

    :param name: the job's name in checkpoints, outputs and the Spark UI
    :param handler: an instance of a `Handler`
    :param sources: the sources by name; `subject.source` is the name of an event's source
    :param sinks: a sink, or a list of sinks, for each port (`SinkSpec`) of the handler, by the port's name. Each sink
        in a list receives every value of the port and has its own guarantee
    :param watermark_delay: time by which the watermark trails the newest event (`semantics.md` 2): a `timedelta`, a
        number of seconds, or a mapping by source name. Sources that are not in the mapping have no delay
    :param idle_timeout: time without events after which a source is idle and no longer holds the watermark back: a
        `timedelta`, a number of seconds, or a mapping by source name. Sources that are not in the mapping have the
        default: 5 seconds for a handler with in-memory windows, otherwise no timeout. A source without a timeout never
        becomes idle. With 0 in the mapping, a source holds the watermark only for unread records. When all sources are
        idle, the watermark advances with the clock (`semantics.md` 3)
    :param late_events: `"deliver"` passes late events to `on_event` like other events, `"drop"` discards and counts
        them, and `"divert"` sends them to the `late_events` sink as `LateEvent`s (`semantics.md` 13)
    :param on_error: `"fail"` stops the run at the first failing callback, with state and outputs as of the last
        complete batch (`semantics.md` 18). `"dead_letter"` undoes only the failing callback, sends a `DeadLetter` to
        the `dead_letters` sink and continues (`semantics.md` 19). If the job has no sink for dead letters or diverted
        events, the run writes them to its checkpoint as JSON lines
    :param max_dead_letters: maximum number of dead letters across all runs on a checkpoint, with
        `on_error="dead_letter"`. If the limit is exceeded, the run ends without committing the batch. A fraction below
        1, such as 0.01, limits the failure rate of each callback, once ten calls of the callback have failed. Each
        record counts as a call of `key_event`, and each event as a call of `on_event`. Each timer that fires counts as
        a call of `on_timer_expired`. Each time at which windows of a key close counts as one call, under the window's
        name. By default, there is no limit
    :param max_ahead: limit on how far an event's timestamp can be ahead of the clock: a `timedelta` or a number of
        seconds. A record with an event beyond the limit fails (`semantics.md` 4). Without a limit, one wrong timestamp
        in the far future can make all other events late
    :param retired: policy for the stored state of specs that the handler no longer declares, by spec name. `"drop"`
        removes the spec's state from a key group when the key group is next processed, or when one of the spec's
        windows is due. The counter ``<name>.dropped`` shows the number of keys whose state was removed. `"keep"` leaves
        the state unchanged until a handler declares the spec again. State of specs that are not in the mapping is kept
        as well, but the run fails when one of their windows is due. In a job with stages, `"drop"` for the name of a
        stage that the job no longer has leaves out its state when the job starts from a savepoint
    :param key_groups: number of key groups, fixed by the first run on a checkpoint. A run loads the subjects of a key
        group together; with many key groups, the subjects of one group fit into the CPU cache. 256 key groups were
        fastest in measurements with 1,000 to 1,000,000 keys. The job can use at most as many cores as there are key
        groups
    :param state: where a run on Spark stores state; fixed by the first run on a checkpoint. `"groups"` stores the state
        of each range of keys as one value, which is fastest while state is small. `"log"` reads and writes only the
        state of the keys that a batch touches, for state of any size. `"auto"` takes the store of the checkpoint, and
        `"groups"` for a new checkpoint
    :param plugins: plugins to load for this job, after the installed plugins: module names, ``module:attribute``, or
        objects with hooks (`amadou.hookspecs`)
    :param types: classes of objects in `Any` state whose modules the job's modules do not import, such as those of a
        plugin. amadou never imports a module because stored bytes name it: a stored object can have an attrs class, a
        dataclass, a named tuple or an enum that is listed here, or that is in an imported module
    :param check_in_place: `True` if runs check one of ten calls of a callback for values of state that it changes in
        place, which is not stored; such a call fails. Test runs check all calls (`semantics.md` 14)
    :param dependencies: the dependencies between sources. While a source is down, events from its dependent sources
        are held; see `DependsOn`
    :param stages: the stages by name, in place of `handler`, `sources` and `sinks`. A stage can read the ports of other
        stages (`FromPort`), as long as no stage reads, directly or through others, what it emits (`semantics.md` 36).
        A name consists of letters, digits, ``-`` and ``_``. A job with several stages needs the store `"log"`, which
        `"auto"` then takes
    :param feeds: the ports that feed other stages. Set by amadou on the jobs in `by_stage`
    :raises JobError: the job has mistakes; the message has one sentence per mistake
    """

    name: str
    handler: Handler = attrs.field(default=None)  # None only if there are stages
    sources: Mapping[str, Source] = attrs.field(factory=dict, converter=sources_by_name)
    sinks: Mapping[str, Sink | tuple[Sink, ...]] = attrs.field(factory=dict, converter=sinks_by_port)
    key_groups: int | Param = attrs.field(default=256, kw_only=True)
    state: Literal["auto", "groups", "log"] = attrs.field(default="auto", kw_only=True)
    plugins: Sequence[Any] = attrs.field(default=(), converter=as_tuple, kw_only=True)
    types: Sequence[type] = attrs.field(default=(), converter=as_tuple, kw_only=True)
    check_in_place: bool = attrs.field(default=False, kw_only=True)
    stages: Mapping[str, Stage] = attrs.field(factory=dict, converter=frozen_mapping, kw_only=True)
    feeds: frozenset[str] = attrs.field(default=frozenset(), repr=False, kw_only=True)

    component_order: Sequence[str] = attrs.field(
        init=False, repr=False, eq=False, default=attrs.Factory(lambda self: tuple(self.components), takes_self=True)
    )
    """The names of the handler's components in declaration order. The job stores the names, because pickling the
    handler's class for Spark workers loses the order."""

    _stage_jobs: "Mapping[str, Job]" = attrs.field(init=False, repr=False, factory=dict)

    def __attrs_post_init__(self) -> None:
        self.validate()

    @property
    def by_stage(self) -> "Mapping[str, Job]":
        """The stages as jobs with one handler, by name, each after the stages that feed it. The name of such a job is
        ``<job>.<stage>``. A job with one handler is its only stage, with an empty name.
        """
        return self._stage_jobs or {"": self}

    __getstate__, __setstate__ = pickled_state, restore_state

    @property
    def specs(self) -> dict[str, Any]:
        """The handler's state specs by name."""
        watches = hasattr(self.handler, ON_CHANGE)
        specs = declared_specs(self.handler).values()
        declared = (_of_state(spec) for spec in specs if watches or not isinstance(spec, ReferenceSpec))
        return {spec.name: spec for spec in declared if spec is not None}

    @property
    def lookups(self) -> dict[str, Lookup[Any, Any]]:
        """The handler's lookups by name."""
        return {spec.name: spec for spec in declared_specs(self.handler).values() if isinstance(spec, Lookup)}

    @property
    def references(self) -> dict[str, ReferenceSpec[Any, Any]]:
        """The handler's references by name."""
        return {spec.name: spec for spec in declared_specs(self.handler).values() if isinstance(spec, ReferenceSpec)}

    @property
    def reference_sources(self) -> dict[str, ReferenceSpec[Any, Any]]:
        """The references by the name of their source."""
        return {spec.source: spec for spec in self.references.values()}

    @property
    def components(self) -> dict[str, Component]:
        """The handler's components by name."""
        specs = declared_specs(self.handler).values()
        return {spec._name: spec for spec in specs if isinstance(spec, Component) and spec._name is not None}

    @property
    def ports(self) -> dict[str, SinkSpec[Any]]:
        """The output ports by name: the handler's ports and, if the job uses them, the ports for late events and dead
        letters.
        """
        ports = {spec.name: spec for spec in declared_specs(self.handler).values() if isinstance(spec, SinkSpec)}
        return ports | self.own_ports

    @property
    def all_sinks(self) -> list[tuple[str, Sink]]:
        """Pairs of a port's name and a sink, one pair per sink."""
        return [(port, sink) for port, given in self.sinks.items() for sink in _several(given)]

    @property
    def delays(self) -> dict[str, timedelta]:
        """The `watermark_delay` of each source; zero for sources without a delay."""
        return {source: _of(source, self.watermark_delay) or timedelta(0) for source in self.sources}

    @property
    def idle_after(self) -> dict[str, timedelta]:
        """The idle timeouts by source, without the sources that never become idle. If the handler has components with
        state in memory, sources without an `idle_timeout` have a default timeout.
        """
        in_memory = any(component.in_memory for component in self.components.values())
        default = _IDLE_IN_MEMORY if in_memory else None
        given = {source: _of(source, self.idle_timeout) for source in self.stream_sources}
        timeouts = {source: default if timeout is None else timeout for source, timeout in given.items()}
        return {source: timeout for source, timeout in timeouts.items() if timeout is not None}

    @property
    def external_sources(self) -> dict[str, Source]:
        """The sources that are not ports of other stages, by name."""
        return {name: source for name, source in self.sources.items() if not isinstance(source, FedSource)}

    @property
    def stream_sources(self) -> dict[str, Source]:
        """The external sources that are not tables, by name."""
        return {name: source for name, source in self.external_sources.items() if not isinstance(source, TableSource)}

    @property
    def table_sources(self) -> dict[str, TableSource]:
        """The sources that are tables, by name."""
        return {name: source for name, source in self.sources.items() if isinstance(source, TableSource)}

    @property
    def fed_sources(self) -> dict[str, FedSource]:
        """The sources that are ports of other stages, by name."""
        return {name: source for name, source in self.sources.items() if isinstance(source, FedSource)}

    @property
    def own_ports(self) -> dict[str, SinkSpec[Any]]:
        """The ports for late events and dead letters, if the job uses them."""
        ports: dict[str, SinkSpec[Any]] = {}
        may_divert = hasattr(self.handler, "on_recover_window") and LATE_EVENTS in self.sinks
        if self.late_events == "divert" or may_divert or any(spec.diverts for spec in self.components.values()):
            ports[LATE_EVENTS] = SinkSpec(LateEvent, name=LATE_EVENTS)
        if self.on_error == "dead_letter":
            ports[DEAD_LETTERS] = SinkSpec(DeadLetter, name=DEAD_LETTERS)
        return ports

    @property
    def has_timers(self) -> bool:
        """`True` if the handler defines `on_timer_expired`."""
        return type(self.handler).on_timer_expired is not Handler.on_timer_expired

    @property
    def params(self) -> list[Param]:
        """The deployment parameters of the job."""
        if self.stages:
            own = params_of((self,))
            return list(dict.fromkeys((*own, *(param for job in self._stage_jobs.values() for param in job.params))))
        sinks = [sink for _, sink in self.all_sinks]
        services = [lookup.fetch for lookup in self.lookups.values()]
        return params_of((self, self.handler, *self.sources.values(), *sinks, *services, *self.dependencies))

    def with_sinks(self, added: Mapping[str, Mapping[str, Sink]]) -> "Job":
        """Return the job with more sinks.

        :param added: the sinks by stage and port; see `by_stage`
        """
        if not self.stages:
            return attrs.evolve(self, sinks={**self.sinks, **added[""]})
        stages = {name: attrs.evolve(of, sinks={**of.sinks, **added[name]}) for name, of in self.stages.items()}
        return attrs.evolve(self, stages=stages)

    def with_params(self, given: Mapping[str, str] = MappingProxyType({}), *, connectors: bool = True) -> "Job":
        """Return the job with each `Param` replaced by its value.

        :param given: values as strings, by parameter name, as on the command line; other parameters are read from the
            environment or have their defaults
        :param connectors: `True` if the parameters of sources and sinks must have values. If `False`, a `Param` of a
            source or sink need not have a value, as in test runs
        :raises ParamError: a parameter has no value, a value cannot be parsed, or `given` contains a name that is not a
            parameter of this job
        """
        known = {param.name for param in self.params}
        files = {param.file_name for param in self.params if param.secret}
        problems = [
            f"the job {self.name!r} has no parameter {name} (its parameters: {', '.join(sorted(known)) or 'none'})"
            for name in given
            if name not in known and name not in files
        ]
        of_connectors: list[str] = []
        stages = {name: _with_values(stage, given, problems, of_connectors) for name, stage in self.stages.items()}
        filled = (
            attrs.evolve(with_values(self, given, problems), stages=stages)
            if stages
            else _with_values(self, given, problems, of_connectors)
        )
        problems += of_connectors if connectors else []
        if problems:
            raise ParamError(tuple(dict.fromkeys(problems)))
        return filled if known else self

    def validate(self) -> None:
        """Check the job. The constructor calls this method.

        :raises JobError: the job has mistakes; the message has one sentence per mistake
        """
        problems = broken(self, settings.RULES)
        problems += self._stage_problems() if self.stages != {} else self._problems()
        if problems:
            raise JobError(str(self.name), tuple(problems))

    def _problems(self) -> list[str]:
        """Return a sentence for each mistake in the handler, the connectors and the dependencies."""
        of_handler = broken(self, (handler.is_handler,))
        of_form = broken(self, connectors.FORM)
        of_connectors = of_form if of_form or of_handler else sorted(broken(self, connectors.RULES))
        of_dependencies = broken(self, (dependencies.are_dependencies,))
        if not of_dependencies and isinstance(self.sources, Mapping):
            of_dependencies = broken(self, dependencies.RULES)
        return [*(of_handler or broken(self, handler.RULES)), *of_connectors, *of_dependencies]

    def _stage_problems(self) -> list[str]:
        """Create the jobs of the stages. Return a sentence for each mistake."""
        problems = [
            f"{name} cannot be set together with stages: set it on a Stage"
            for name in attrs.fields_dict(Stage)
            if name != "retired" and _is_set(self, name)
        ]
        problems += self._retired_stage_problems()
        if self.state == "groups" and len(self.stages) > 1:
            problems.append('state="groups" cannot store several stages: use "log" or "auto"')
        problems += stage_problems(self.stages)
        if problems:
            return problems
        shared = {name: getattr(self, name) for name in ("key_groups", "state", "plugins", "types", "check_in_place")}
        jobs: dict[str, Job] = {}
        for name in in_order(self.stages):
            try:
                jobs[name] = Job(f"{self.name}.{name}", **job_settings(self.stages, name), **shared)
            except JobError as error:
                problems += [f"stage {name!r}: {problem}" for problem in error.problems]
        object.__setattr__(self, "_stage_jobs", MappingProxyType(jobs))
        return problems

    def _retired_stage_problems(self) -> list[str]:
        """Return a sentence for each mistake in how stages are retired. Other mistakes are those of any job."""
        if not isinstance(self.retired, Mapping) or not isinstance(self.stages, Mapping):
            return []
        return [
            *(
                f"retired contains the stage {name!r}, but the job has it: remove the name from retired"
                for name in self.retired
                if name in self.stages
            ),
            *(
                f'retired[{name!r}] must be "drop": the state of a stage cannot be kept without the stage'
                for name, fate in self.retired.items()
                if fate == "keep"
            ),
        ]


def _with_values(holder: S, given: Mapping[str, str], problems: list[str], of_connectors: list[str]) -> S:
    """Return a job or a stage with each parameter replaced by its value; see `with_values`.

    :param of_connectors: list for the sentences about parameters of sources, sinks and services
    """
    filled = with_values(holder, given, problems)
    return attrs.evolve(
        filled,
        handler=_with_services(with_values(holder.handler, given, problems), given, of_connectors),
        sources={name: with_values(source, given, of_connectors) for name, source in holder.sources.items()},
        sinks={
            port: [with_values(sink, given, of_connectors) for sink in _several(of_port)]
            if isinstance(of_port, tuple)
            else with_values(of_port, given, of_connectors)
            for port, of_port in holder.sinks.items()
        },
        dependencies=[with_values(each, given, problems) for each in holder.dependencies],
    )


def _with_services(handler: Handler, given: Mapping[str, str], problems: list[str]) -> Handler:
    """Return a handler with each parameter of its lookups replaced by its value; see `with_values`."""
    filled = handler
    for attribute, spec in declared_specs(handler).items():
        if isinstance(spec, Lookup):
            fetch = with_values(spec.fetch, given, problems)
            if fetch is not spec.fetch:
                filled = copy(handler) if filled is handler else filled
                setattr(filled, attribute, spec.with_fetch(fetch))
    return filled


def _of_state(spec: Spec) -> Any:
    """Return the state that a spec declares; `None` if it declares none."""
    if isinstance(spec, Lookup):
        return spec.kept
    if isinstance(spec, ReferenceSpec):
        return spec.watching
    return None if isinstance(spec, SinkSpec) else spec


def _of(source: str, given: Any) -> Any:
    return given.get(source) if isinstance(given, Mapping) else given


def _is_set(job: Job, setting: str) -> bool:
    default: Any = attrs.fields_dict(Job)[setting].default
    return bool(getattr(job, setting) != (default.factory() if isinstance(default, attrs.Factory) else default))  # type: ignore[arg-type]


def _several(sinks: Any) -> tuple[Any, ...]:
    """Return the sinks of a port as a tuple, even if the port has a single sink."""
    return sinks if isinstance(sinks, tuple) else (sinks,)
