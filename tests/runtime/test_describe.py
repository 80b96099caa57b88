import io
from datetime import datetime, timedelta
from typing import Any

import attrs
import pytest
from rich.console import Console

from amadou import (
    DependsOn,
    Handler,
    Job,
    Lookup,
    MapSpec,
    MemorySink,
    MemorySource,
    Param,
    Secret,
    SinkSpec,
    ValueSpec,
)
from amadou.errors import ParamError
from amadou_plugins.connectors import ConsoleSink, HttpSink, JsonLinesSink, KafkaSource, LinesSource
from amadou_plugins.lookups import PostgresRows
from amadou_plugins.windows import TumblingWindow
from amadou_runtime.command.describe import describe


class Views(Handler):
    """Views of each channel.

    And more about them.
    """

    counts = MapSpec(datetime, int)
    names = ValueSpec(list[str] | None)
    sums = SinkSpec(dict[str, int])
    alarms = SinkSpec(str)

    def __init__(self) -> None:
        self.limit = Param("LIMIT", default=3, type=int)

    def key_event(self, record: Any) -> None: ...

    def on_event(self, subject: Any, event: Any) -> None: ...


class Timed(Views):
    def on_timer_expired(self, subject: Any, timestamp: datetime) -> None: ...


def by_line(line: bytes) -> None: ...


def job_of(handler: Handler, **settings: Any) -> Job:
    return Job(
        "views",
        handler,
        {"views": LinesSource(Param("VIEWS"), key_event=by_line), "memory": MemorySource([1, 2])},
        {"sums": JsonLinesSink("sums/"), "alarms": ConsoleSink()},
        **settings,
    )


def described(job: Job, **params: str) -> str:
    out = io.StringIO()
    describe(job, params, Console(file=out, width=80, markup=False, highlight=False))
    return out.getvalue()


def row(shown: str, name: str) -> list[str]:
    [line] = [line for line in shown.splitlines() if line.split()[:1] == [name]]
    return [cell.strip() for cell in line.strip().split("  ") if cell.strip()]


def test_describe_shows_the_handler_with_the_first_line_of_its_docstring() -> None:
    shown = described(job_of(Views()))
    assert row(shown, "handler")[1].endswith("test_describe.Views")
    assert "Views of each channel." in shown
    assert "more about them" not in shown


def test_describe_shows_whether_the_handler_has_timers() -> None:
    assert row(described(job_of(Views())), "timers") == ["timers", "no"]
    assert row(described(job_of(Timed())), "timers") == ["timers", "yes"]


def test_describe_shows_settings() -> None:
    shown = described(job_of(Views(), watermark_delay=timedelta(seconds=90), key_groups=8))
    assert "watermark delay  90 s" in shown
    assert "key groups       8" in shown
    assert "watermark delay  -p DELAY" in described(job_of(Views(), watermark_delay=Param("DELAY")))


def test_describe_shows_state_with_its_types() -> None:
    shown = described(job_of(Views()))
    assert row(shown, "counts") == ["counts", "MapSpec", "datetime → int"]
    assert row(shown, "names") == ["names", "ValueSpec", "list[str] | None"]


def test_describe_shows_ports_with_their_sinks_and_guarantees() -> None:
    shown = described(job_of(Views()))
    assert row(shown, "sums") == ["sums", "dict[str, int]", "JsonLinesSink('sums/')", "exactly-once"]
    assert row(shown, "alarms") == ["alarms", "str", "ConsoleSink()", "at-least-once"]


def test_describe_shows_sources_and_whether_they_end() -> None:
    shown = described(job_of(Views()))
    assert row(shown, "memory") == ["memory", "MemorySource(2 records)", "yes", "key_event of the handler"]
    assert "LinesSource(-p VIEWS)" in shown
    assert "by_line" in shown


def test_describe_shows_that_a_directory_does_not_end() -> None:
    job = Job("views", Views(), {"in": LinesSource("in/")}, {"sums": MemorySink(), "alarms": MemorySink()})
    assert row(described(job), "in")[:3] == ["in", "LinesSource('in/')", "no"]


def test_describe_shows_a_connector_as_the_call_that_makes_it() -> None:
    source = KafkaSource("views", "kafka:9092", tls=True)
    job = Job("views", Views(), {"in": source}, {"sums": MemorySink(), "alarms": MemorySink()})
    shown = described(job)
    assert shown.index("'kafka:9092'") < shown.index("tls=True"), "a call has its positional arguments first"


def test_describe_shows_the_origin_of_each_parameters_value(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("VIEWS", raising=False)
    shown = described(job_of(Views()))
    assert row(shown, "VIEWS") == ["VIEWS", "str", "missing: -p VIEWS=…"]
    assert row(shown, "LIMIT") == ["LIMIT", "int", "3", "3 (default)"]
    assert row(described(job_of(Views()), VIEWS="in/"), "VIEWS") == ["VIEWS", "str", "'in/' (-p)"]
    monkeypatch.setenv("VIEWS", "env/")
    shown = described(job_of(Views()))
    assert row(shown, "VIEWS") == ["VIEWS", "str", "'env/' (environment)"]
    assert "LinesSource('env/')" in shown


def test_describing_a_job_with_an_unknown_or_invalid_parameter_is_an_error() -> None:
    with pytest.raises(ParamError, match="has no parameter VIEW "):
        described(job_of(Views()), VIEW="in/")
    with pytest.raises(ParamError, match=r".many. is not a valid int for parameter LIMIT"):
        described(job_of(Views()), LIMIT="many")


def test_describe_leaves_out_tables_without_rows() -> None:
    class Ignore(Handler):
        def key_event(self, record: Any) -> None: ...

        def on_event(self, subject: Any, event: Any) -> None: ...

    shown = described(Job("ignore", Ignore(), {"memory": MemorySource()}, {}))
    assert "Sources" in shown
    for title in ("State", "Ports", "Parameters"):
        assert title not in shown


def test_describe_prints_no_line_wider_than_the_console() -> None:
    assert max(len(line) for line in described(job_of(Views())).splitlines()) <= 80


def test_describe_shows_windows_in_memory_and_their_idle_timeout() -> None:
    class Counted(Views):
        hits = TumblingWindow(timedelta(minutes=1), on_close=print)
        lately = TumblingWindow(timedelta(minutes=1), on_close=print, storage="memory")

    shown = described(job_of(Counted()), VIEWS="views/")
    assert row(shown, "idle") == ["idle timeout", "5 s"]
    assert row(shown, "hits")[1] == "TumblingWindow"
    assert row(shown, "lately")[1] == "TumblingWindow in memory"
    assert row(described(job_of(Counted(), idle_timeout=2), VIEWS="views/"), "idle") == ["idle timeout", "2 s"]


def test_describe_hides_secrets() -> None:
    handler = Views()
    handler.limit = Param("LIMIT", default="for-development", secret=True)
    for params in ({"VIEWS": "in/", "LIMIT": "sesame-0815"}, {"VIEWS": "in/"}):
        shown = described(job_of(handler), **params)
        assert "***" in shown
        assert "sesame" not in shown
        assert "for-development" not in shown


def test_describe_shows_the_plugins_of_the_job() -> None:
    assert row(described(job_of(Views(), plugins=["my_company.audit"])), "plugins")[-1] == "my_company.audit"


def test_describe_shows_lookups_without_secrets() -> None:
    class Looking(Views):
        rows: Any = Lookup(
            PostgresRows("postgresql://db", "rows", key="id", password=Secret("swordfish")),
            key=lambda event: event.key,
            on_failure=0,
        )
        others: Any = Lookup(by_line, key=lambda event: event.key)

    shown = described(job_of(Looking()))
    assert "swordfish" not in shown
    assert "password=***" in "".join(shown.split())
    assert row(shown, "others") == ["others", "Lookup(by_line)", "Any", "500", "fail"]


def test_describe_shows_dependencies() -> None:
    waiting = job_of(Views(), dependencies=[DependsOn("views", on="memory", threshold=90, max_held=5000)])
    assert "views    memory   90 s        5,000 events" in described(waiting)


def test_describe_shows_parameters_in_mappings_of_connectors_and_hides_secrets() -> None:
    job = job_of(Views())
    plain, keyed = (
        HttpSink("http://host/"),
        HttpSink("http://host/", headers={"Key": Param("KEY", default="hidden-key")}),
    )
    shown = described(attrs.evolve(job, sinks={"sums": plain, "alarms": keyed}))
    assert row(shown, "sums")[2] == "HttpSink('http://host/')"
    assert "headers={'Key': -p KEY}" in shown
    plain = HttpSink("http://host/", headers={"Authorization": "Basic plain-login"})
    shown = described(attrs.evolve(job, sinks={"sums": plain, "alarms": keyed}))
    assert "headers={'Authorization': ***}" in shown
    assert "plain-login" not in shown
    assert row(shown, "KEY")[:2] == ["KEY", "str"]
