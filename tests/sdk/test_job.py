import pickle
import re
import sys
from datetime import timedelta
from types import ModuleType
from typing import Any

import attrs
import pytest
from tests.ids import shown

from amadou import (
    DependsOn,
    Handler,
    Job,
    KeyedEvent,
    ListSpec,
    MapSpec,
    MemorySink,
    MemorySource,
    Param,
    SinkSpec,
    Subject,
    ValueSpec,
)
from amadou.errors import JobError, ParamError

_SINK = MemorySink()


class Counter(Handler):
    """A valid handler."""

    total = ValueSpec(int, default=0)
    by_name = MapSpec(str, int)
    sums = SinkSpec(int)

    def key_event(self, record: Any) -> KeyedEvent[Any]:
        raise NotImplementedError

    def on_event(self, subject: Subject, event: KeyedEvent[Any]) -> None:
        raise NotImplementedError


def job(handler: Any = None, **settings: Any) -> Job:
    """Make a job that is valid except for the test's settings."""
    settings = {"sources": {"in": MemorySource()}, "sinks": {"sums": MemorySink()}, **settings}
    return Job(settings.pop("name", "counter"), handler or Counter(), **settings)


def problems_of(handler: Any = None, **settings: Any) -> tuple[str, ...]:
    with pytest.raises(JobError) as caught:
        job(handler, **settings)
    assert all(f"- {problem}" in str(caught.value) for problem in caught.value.problems)
    return caught.value.problems


TWO = {"in": MemorySource(), "other": MemorySource()}

sys.modules["nowhere"] = ModuleType("nowhere")


def handler_with(**attributes: Any) -> Handler:
    """Make an instance of a subclass of `Counter` with these attributes on the class."""
    return type("Odd", (Counter,), attributes)()  # type: ignore[no-any-return]


class Shared(Handler):
    first = ValueSpec(int, name="same")
    second = MapSpec(str, int, name="same")
    port = SinkSpec(int)

    def key_event(self, record: Any) -> None: ...

    def on_event(self, subject: Subject, event: KeyedEvent[Any]) -> None: ...


async def waiting(*_: Any) -> None:
    """Cannot be a callback, because no one awaits it."""


def yielding(*_: Any) -> Any:
    """Cannot be a callback, because a call only makes a generator."""
    yield


class Silent(Handler):
    pass


def test_a_job_lists_the_specs_and_ports_of_its_handler() -> None:
    made = job()
    assert list(made.specs) == ["total", "by_name"]
    assert list(made.ports) == ["sums"]
    assert not made.has_timers
    made.validate()


def test_jobs_that_divert_late_events_or_write_dead_letters_have_ports_for_them() -> None:
    assert list(job(late_events="divert", on_error="dead_letter").ports) == ["sums", "late_events", "dead_letters"]
    sinks = {"sums": MemorySink(), "dead_letters": MemorySink()}
    assert list(job(sinks=sinks, on_error="dead_letter").ports) == ["sums", "dead_letters"]


def test_a_handler_inherits_specs_and_can_replace_them() -> None:
    made = job(handler_with(total=ValueSpec(str), more=ValueSpec(int)))
    assert sorted(made.specs) == ["by_name", "more", "total"]
    assert made.specs["total"].type is str


def test_a_job_has_timers_if_its_handler_defines_on_timer_expired() -> None:
    assert job(handler_with(on_timer_expired=lambda self, subject, timestamp: None)).has_timers


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({"name": ""}, "the name must be a non-blank string, not ''"),
        ({"name": 5}, "the name must be a non-blank string, not 5"),
        ({"handler": Counter}, "the handler is the class Counter: pass an instance, Counter()"),
        ({"handler": "counter"}, "the handler must be an instance of a subclass of amadou.Handler, not 'counter'"),
        ({"sources": {}}, "the job has no source: add one to sources"),
        ({"sources": {"in": "file"}}, "sources['in'] must be an amadou.Source, not 'file'"),
        ({"sources": {"": MemorySource()}}, "a name in sources must be a non-empty string, not ''"),
        (
            {"sources": MemorySink()},
            "sources must be a mapping from names to amadou.Source, not MemorySink(0 records)",
        ),
        (
            {"sinks": {"sums": MemorySource()}},
            "sinks['sums'] must be an amadou.Sink, not MemorySource(0 records)",
        ),
        ({"sinks": {"sums": []}}, "sinks['sums'] is empty: add at least one sink"),
        (
            {"sinks": {"sums": [MemorySink(), MemorySource()]}},
            "sinks['sums'][1] must be an amadou.Sink, not MemorySource(0 records)",
        ),
        ({"sinks": {"sums": [_SINK, _SINK]}}, "sinks['sums'] contains MemorySink(0 records) twice: remove one"),
        ({"sinks": {}}, "the port 'sums' of Counter has no sink: add one to sinks"),
        (
            {"sinks": {"sums": MemorySink(), "sum": MemorySink()}},
            "Counter has no port for the sink 'sum': name the sink after a port (sums)",
        ),
        ({"watermark_delay": -1}, "watermark_delay must be a non-negative timedelta or number of seconds, not "),
        ({"watermark_delay": "5"}, "watermark_delay must be a non-negative timedelta or number of seconds, not '5'"),
        ({"watermark_delay": True}, "watermark_delay must be a non-negative timedelta or number of seconds, not True"),
        (
            {"watermark_delay": float("nan")},
            "watermark_delay must be a non-negative timedelta or number of seconds, not nan",
        ),
        ({"key_groups": 0}, "key_groups must be an integer from 1 to 32768, not 0"),
        ({"key_groups": 1.5}, "key_groups must be an integer from 1 to 32768, not 1.5"),
        ({"late_events": "lose"}, 'late_events must be "deliver", "drop" or "divert", not \'lose\''),
        ({"on_error": "ignore"}, 'on_error must be "fail" or "dead_letter", not \'ignore\''),
        (
            {"handler": handler_with(remind=lambda self, subject: [subject.set_timer(time) for time in ()])},
            "Odd.remind sets a timer without a callback: define on_timer_expired(self, subject, timestamp)",
        ),
        (
            {"handler": handler_with(__module__="nowhere")},
            "workers cannot import Odd, because the module nowhere has no file: move Odd to a file",
        ),
        ({"handler": handler_with(on_event=waiting)}, "Odd.on_event is async: make it a plain function"),
        ({"handler": handler_with(on_dependency_down=waiting)}, "Odd.on_dependency_down is async"),
        ({"handler": handler_with(on_dependency_recovered=yielding)}, "Odd.on_dependency_recovered has a yield"),
        (
            {"handler": handler_with(on_dependency_down=lambda self, source, since: None)},
            "Odd.on_dependency_down must take one argument, the change: define on_dependency_down(self, change)",
        ),
        (
            {"handler": handler_with(on_event=yielding)},
            "Odd.on_event has a yield, so calling it does nothing: collect values with "
            "self.<port>.collect(subject, value)",
        ),
        ({"handler": handler_with(on_timer_expired=yielding)}, "Odd.on_timer_expired has a yield"),
        ({"idle_timeout": 0}, "idle_timeout must be a positive timedelta or number of seconds, or None, not "),
        (
            {"idle_timeout": {"in": -1}},
            "idle_timeout['in'] must be a non-negative timedelta or number of seconds, or None, not ",
        ),
        (
            {"watermark_delay": {"in": -1}},
            "watermark_delay['in'] must be a non-negative timedelta or number of seconds, not ",
        ),
        ({"watermark_delay": {"view": 1}}, "watermark_delay: the job has no source 'view': correct the name"),
        ({"max_ahead": -1}, "max_ahead must be a positive timedelta or number of seconds, or None, not "),
        (
            {"sinks": {"sums": MemorySink(), "dead_letters": MemorySink()}},
            "the sink 'dead_letters' receives no values: set on_error=\"dead_letter\" on the job",
        ),
        (
            {
                "handler": handler_with(late_events=SinkSpec(int)),
                "sinks": {"sums": MemorySink(), "late_events": MemorySink()},
            },
            "Odd.late_events: the port name 'late_events' is reserved: use a different name",
        ),
        (
            {"handler": handler_with(key_event=Handler.key_event)},
            "no function turns records from source 'in' into events: define Odd.key_event(self, record) "
            "or set key_event= on the source",
        ),
        ({"handler": handler_with(on_event=Handler.on_event)}, "Odd has no on_event(self, subject, event): define it"),
        ({"handler": handler_with(odd=ValueSpec(complex))}, "Odd.odd: the type complex is not supported: "),
        ({"handler": handler_with(odd=ValueSpec(complex))}, "a TypedDict, or set codec= on the spec"),
        ({"handler": handler_with(odd=MapSpec(str, Counter))}, "Odd.odd: the type Counter is not supported: "),
        ({"handler": handler_with(odd=MapSpec(complex, int))}, "a TypedDict, or set key_codec= on the spec"),
        ({"handler": handler_with(odd=MapSpec(list[int], int))}, "the keys of a map must be hashable"),
        ({"handler": handler_with(odd=ValueSpec(int, "x"))}, "Odd.odd: cannot store 'x' (str) as int"),
        (
            {"handler": handler_with(odd=ValueSpec(int, ttl=timedelta(0)))},
            "Odd.odd: ttl must be a positive timedelta",
        ),
        ({"handler": handler_with(odd=ListSpec(int, ttl=60))}, "ttl must be a positive timedelta or None, not 60"),  # type: ignore[arg-type]
        (
            {"handler": handler_with(odd=ValueSpec(int, version=-1))},
            "version must be a non-negative integer, not -1",
        ),
        ({"handler": handler_with(odd=ValueSpec(int, version=1))}, "version= and migrate= go together"),
        ({"handler": handler_with(odd=MapSpec(int, int, migrate=max))}, "version= and migrate= go together"),
        ({"handler": handler_with(sums=SinkSpec(complex))}, "Odd.sums: the type complex is not supported: "),
        (
            {"handler": Shared(), "sinks": {"port": MemorySink()}},
            "the name 'same' is used by 2 specs of Shared (first, second): use a different name for each spec",
        ),
        ({"dependencies": "weather"}, "dependencies must be a list of amadou.DependsOn, not 'weather'"),
        (
            {"dependencies": [DependsOn("in", on="weather")]},
            "a dependency refers to 'weather', but the job has no source with this name (sources: in): "
            "correct the name, or add the source",
        ),
        ({"dependencies": [DependsOn("in", on="in")]}, "a source cannot depend on itself"),
        ({"dependencies": [DependsOn("in", on=["a"])]}, "on=['a']): dependent and on must each be"),  # type: ignore
        (
            {"sources": TWO, "dependencies": [DependsOn("in", on="other", threshold=timedelta(0) - timedelta(1))]},
            "DependsOn('in', on='other'): threshold must be zero or more, as a timedelta or in seconds",
        ),
        (
            {"sources": TWO, "dependencies": [DependsOn("in", on="other", threshold=float("inf"))]},
            "threshold must be zero or more, as a timedelta or in seconds, not inf",
        ),
        (
            {"sources": TWO, "dependencies": [DependsOn("in", on="other", max_held=0)]},
            "DependsOn('in', on='other'): max_held must be a positive integer, not 0",
        ),
        (
            {"sources": TWO, "dependencies": [DependsOn("in", on="other"), DependsOn("in", on="other", threshold=5)]},
            "DependsOn('in', on='other') is listed 2 times: keep one",
        ),
        (
            {"sources": TWO, "dependencies": [DependsOn("in", on="other"), DependsOn("other", on="in")]},
            "sources depend on each other in a cycle: in → other → in: remove one DependsOn",
        ),
    ],
    ids=shown,
)
def test_the_error_for_an_invalid_job_names_the_mistake(settings: dict[str, Any], reason: str) -> None:
    (problem,) = problems_of(**settings)
    assert reason in problem


def test_the_error_for_a_spec_without_a_name_names_its_attribute() -> None:
    handler = Counter()
    handler.extra = ValueSpec(int)  # type: ignore[attr-defined]
    assert problems_of(handler) == ("Counter.extra has no name: pass name= to a spec that is created at run time",)


def test_a_port_and_a_state_cannot_share_a_name() -> None:
    (problem,) = problems_of(handler_with(other=ValueSpec(int, name="sums")))
    assert "the name 'sums' is used by 2 specs" in problem


def test_the_error_for_an_invalid_job_lists_all_mistakes() -> None:
    problems = problems_of(
        handler_with(odd=ValueSpec(complex)), name="", sinks={"sum": MemorySink()}, watermark_delay=-1, key_groups=0
    )
    assert len(problems) == 6


def test_the_error_for_an_empty_handler_lists_the_methods_to_define() -> None:
    problems = problems_of(Silent(), sinks={})
    assert [problem.partition(" has ")[2] or problem.partition("define")[2] for problem in problems] == [
        "no on_event(self, subject, event): define it",
        " Silent.key_event(self, record) or set key_event= on the source",
    ]


def test_a_source_with_a_key_event_needs_no_key_event_of_the_handler() -> None:
    class OnlyEvents(Counter):
        key_event = Handler.key_event  # type: ignore[assignment]

    made = job(OnlyEvents(), sources={"in": MemorySource(key_event=lambda record: record)})
    assert made.sources["in"].key_event("its own") == "its own"  # type: ignore[misc]


@pytest.mark.parametrize("delay", [5, 5.0, timedelta(seconds=5)])
def test_the_watermark_delay_can_be_a_timedelta_or_a_number_of_seconds(delay: Any) -> None:
    assert job(watermark_delay=delay).watermark_delay == timedelta(seconds=5)


def test_a_job_cannot_be_changed() -> None:
    made = job()
    with pytest.raises(attrs.exceptions.FrozenInstanceError):
        made.name = "other"  # type: ignore[misc]
    with pytest.raises(TypeError):
        made.sinks["other"] = MemorySink()  # type: ignore[index]


def test_a_job_can_be_pickled() -> None:
    made = pickle.loads(pickle.dumps(job(watermark_delay=5)))
    assert (made.name, list(made.sources), list(made.sinks)) == ("counter", ["in"], ["sums"])
    assert made.watermark_delay == timedelta(seconds=5)


def test_with_params_fills_parameters_of_settings_and_attributes_in_a_copy_of_the_job() -> None:
    handler = Counter()
    handler.limit = Param("LIMIT", type=int)  # type: ignore[attr-defined]
    made = job(handler, watermark_delay=Param("DELAY", default=1.5, type=float), key_groups=Param("GROUPS", type=int))
    assert sorted(param.name for param in made.params) == ["DELAY", "GROUPS", "LIMIT"]
    filled = made.with_params({"LIMIT": "5", "GROUPS": "8"})
    assert (filled.handler.limit, filled.key_groups) == (5, 8)  # type: ignore[attr-defined]
    assert filled.watermark_delay == timedelta(seconds=1.5)
    assert filled.params == []
    assert isinstance(made.handler.limit, Param)  # type: ignore[attr-defined]


def test_a_parameter_can_be_an_attribute_of_the_handlers_class() -> None:
    handler = handler_with(limit=Param("LIMIT", type=int), other=Param("OTHER", default=0))
    made = job(handler)
    assert sorted(param.name for param in made.params) == ["LIMIT", "OTHER"]
    filled: Any = made.with_params({"LIMIT": "5"}).handler
    assert (filled.limit, filled.other) == (5, 0)
    assert isinstance(type(handler).limit, Param)  # type: ignore[attr-defined]


def test_parameters_can_be_values_of_a_mapping() -> None:
    handler = Counter()
    handler.limits = {"a": Param("LIMIT", type=int), "b": 2}  # type: ignore[attr-defined]
    made = job(handler)
    assert [param.name for param in made.params] == ["LIMIT"]
    filled: Any = made.with_params({"LIMIT": "5"}).handler
    assert filled.limits == {"a": 5, "b": 2}
    assert isinstance(made.handler.limits["a"], Param)  # type: ignore[attr-defined]
    with pytest.raises(ParamError, match="LIMIT is not set"):
        made.with_params()


def test_one_error_lists_missing_invalid_and_unknown_parameters() -> None:
    made = job(watermark_delay=Param("DELAY", type=float), key_groups=Param("GROUPS", type=int))
    with pytest.raises(ParamError) as caught:
        made.with_params({"GROUPS": "many", "GROUP": "5"})
    unknown, *others = caught.value.problems
    assert unknown == "the job 'counter' has no parameter GROUP (its parameters: DELAY, GROUPS)"
    assert sorted(re.findall("[A-Z]+", problem)[0] for problem in others) == ["DELAY", "GROUPS"]


def test_the_value_of_a_parameter_is_checked_like_a_setting_without_one() -> None:
    with pytest.raises(JobError, match="key_groups must be"):
        job(key_groups=Param("GROUPS", type=int)).with_params({"GROUPS": "0"})


def test_the_name_of_a_source_must_be_a_string() -> None:
    with pytest.raises(JobError, match="a name in sources must be a non-empty string, not 1") as caught:
        job(sources={1: MemorySource()}, dependencies=[DependsOn("a", on="b")])
    assert "(sources: 1)" in str(caught.value)


def test_the_threshold_of_a_dependency_can_be_a_parameter() -> None:
    threshold = Param("THRESHOLD", type=timedelta)
    waiting = job(sources=TWO, dependencies=[DependsOn("in", on="other", threshold=threshold)])
    assert [param.name for param in waiting.params] == ["THRESHOLD"]
    (dependency,) = waiting.with_params({"THRESHOLD": "90"}).dependencies
    assert dependency.threshold == timedelta(seconds=90)
