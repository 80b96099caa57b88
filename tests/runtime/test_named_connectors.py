import traceback
from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path
from types import MappingProxyType
from typing import Any

import attrs
import pytest
from tests.top_pages import top_pages

from amadou import Handler, Job, MemorySink, MemorySource, Secret, SinkSpec
from amadou.errors import JobError, LoadError
from amadou.plugins import Sink, Source, hookimpl
from amadou_plugins.connectors import ConsoleSink, JsonLinesSink, KafkaSink, KafkaSource, LinesSource, PostgresSink
from amadou_runtime.jobs.named_connectors import with_connectors


class Copying(Handler):
    out = SinkSpec(str)

    def key_event(self, record: Any) -> None:
        return None

    def on_event(self, subject: Any, event: Any) -> None:
        pass


class Queue(Source):
    def __init__(self, *, depth: int = 5, name: str = "q") -> None:
        self.received = (depth, name)


@attrs.frozen
class Strict(Sink):
    left: str
    right: float | None = None
    is_loud: bool = False
    password: str | Secret | None = None


class Open(Source):
    def __init__(
        self, kind: str, *, depth: int = 5, options: Mapping[str, str | Secret] = MappingProxyType({})
    ) -> None:
        self.received = (kind, depth, dict(options))


class Untyped(Source):
    def __init__(self, received):  # type: ignore[no-untyped-def]
        self.received = received


class Named:
    @hookimpl
    def amadou_register_sources(self) -> Any:
        return {"queue": Queue, "open": Open, "untyped": Untyped}

    @hookimpl
    def amadou_register_sinks(self) -> Any:
        return {"strict": Strict}


def job() -> Job:
    return Job("copying", Copying(), {"in": MemorySource()}, {"out": MemorySink()}, plugins=[Named()])


def sink(text: str) -> Any:
    return with_connectors(job(), {}, {"out": [text]}).sinks["out"]


def source(text: str) -> Any:
    return with_connectors(job(), {"in": text}, {}).sources["in"]


def test_a_connector_is_made_from_its_kind_its_first_parameter_and_options() -> None:
    assert source("lines:in/") == LinesSource("in/")
    assert source("lines:in/?max_files_per_batch=3") == LinesSource("in/", max_files_per_batch=3)
    assert source("lines:a%3F.txt") == LinesSource("a?.txt")
    assert source("lines:s3://bucket/views/") == LinesSource("s3://bucket/views/")
    assert sink("console") == ConsoleSink()
    assert sink("json-lines:out") == JsonLinesSink("out")
    assert source("queue:?depth=7&name=a%26b").received == (7, "a&b")
    assert sink("strict:a?right=1.5&is_loud=yes") == Strict("a", 1.5, True)
    assert source("untyped:a").received == "a"


def test_connectors_for_kafka_and_postgresql_are_made_from_texts() -> None:
    kafka = source("kafka:views,clicks?servers=h:9092&start=latest&username=u&password=sesame-of-kafka&tls=yes")
    assert kafka == KafkaSource(
        ["views", "clicks"], "h:9092", start="latest", username="u", password=Secret("sesame-of-kafka"), tls=True
    )
    assert sink("kafka:sums?servers=h:9092&key=channel&give_up_after=30") == KafkaSink(
        "sums", "h:9092", key="channel", give_up_after=timedelta(seconds=30)
    )
    table = sink("postgres:postgresql%3A//h/d?table=sums&upsert_key=a,b&username=u&password=sesame-of-postgres")
    assert table == PostgresSink(
        "postgresql://h/d", "sums", upsert_key=["a", "b"], username="u", password=Secret("sesame-of-postgres")
    )


def test_a_named_source_is_added_and_a_named_sink_replaces_the_sink_of_its_port() -> None:
    changed = with_connectors(job(), {"more": "lines:in/"}, {})
    assert list(changed.sources) == ["in", "more"]
    with pytest.raises(JobError, match="has no port for the sink 'other'"):
        with_connectors(job(), {}, {"other": ["console"]})


def test_a_named_source_has_the_key_event_of_the_source_that_it_replaces() -> None:
    own = attrs.evolve(job(), sources={"in": LinesSource("in/", key_event=len)})
    assert with_connectors(own, {"in": "lines:other/"}, {}).sources["in"] == LinesSource("other/", key_event=len)
    with pytest.raises(LoadError, match="Queue does not accept the old source's key_event: use a different source"):
        with_connectors(own, {"in": "queue:"}, {})


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("nothing:x", "--sink out=nothing:x: no connector is named 'nothing': use one of console, .*, strict"),
        ("json-lines", "JsonLinesSink needs a value for path"),
        ("console:x", "pass all settings of ConsoleSink as options"),
        ("json-lines:x?mode=a", "JsonLinesSink has no option mode .options: path."),
        ("strict:x?right=much", "'much' is not a valid float for parameter right"),
        ("strict:x?is_loud=maybe", "use true or false"),
    ],
)
def test_the_error_for_an_invalid_text_of_a_connector_says_what_is_valid(text: str, why: str) -> None:
    with pytest.raises(LoadError, match=why):
        sink(text)


def test_secret_options_of_a_connector_are_hidden() -> None:
    assert sink("strict:a?password=sesame-of-sinks").password == Secret("sesame-of-sinks")
    with pytest.raises(LoadError, match="Strict has no option mode") as caught:
        sink("strict:a?password=sesame-of-sinks&mode=b")
    assert "sesame-of-sinks" not in str(caught.value)


@pytest.mark.parametrize(
    "text",
    [
        "strit:a?password=sesame-of-typos",
        "strict:a?passwort=x&password=sesame%2Dof%2Dtypos",
        "strict:a?right=much&password=sesame%2Dof%2Dtypos",
        "postgres:postgresql%3A//u:sesame-of-typos@h/d?table=t",
        "postgres:postgresql://u:sesame-of-typos@h/d?table=t",
        "http:https://u:sesame-of-typos@h/",
        "postgres:postgresql://u:p/sesame-of-typos@h/d?table=t",
        "postgres:postgresql://u:p@sesame-of-typos@h/d?table=t",
        "postgres:postgresql:%2F%2Fu:sesame-of-typos%40h/d?table=t",
        "postgres:postgresql://h/d%3Fpassword=sesame-of-typos?table=t",
    ],
)
def test_errors_about_the_text_of_a_connector_hide_passwords(text: str) -> None:
    with pytest.raises(LoadError) as caught:
        sink(text)
    shown = "".join(traceback.format_exception(caught.value)) + caught.value.target
    assert "sesame" not in shown.replace(text, "")
    assert "sesame" not in str(caught.value) + caught.value.target


def test_options_that_are_not_parameters_are_passed_to_a_connector_with_options() -> None:
    assert source("open:a").received == ("a", 5, {})
    assert source("open:a?depth=7&path=b%26c&max.records=3").received == ("a", 7, {"path": "b&c", "max.records": "3"})
    kind, _, options = source("open:a?user=me&dbPassword=sesame-of-options&fs.access.key=key-of-options").received
    assert (kind, options["user"]) == ("a", "me")
    assert options["dbPassword"] == Secret("sesame-of-options")
    assert options["fs.access.key"] == Secret("key-of-options")
    assert "***" in repr(options)


def test_the_error_for_an_invalid_setting_of_a_named_connector_states_the_reason() -> None:
    with pytest.raises(LoadError, match="max_files_per_batch must be a positive integer, not 0"):
        source("lines:in/?max_files_per_batch=0")


def test_run_replaces_sources_and_sinks_that_the_command_line_names(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from typer.testing import CliRunner

    from amadou_runtime.command.cli import app

    views = Path(__file__).parents[2] / "examples" / "tumbling_window"
    options = ["--source", f"views=lines:{views / 'views'}", "--sink", f"sums=json-lines:{tmp_path / 'sums'}"]
    twice = CliRunner().invoke(app, ["run", str(views / "views.py"), "--engine", "embedded", *options, *options])
    assert twice.exit_code == 2
    assert "--source sets views more than once" in twice.output
    result = CliRunner().invoke(app, ["run", str(views / "views.py"), "--engine", "embedded", *options])
    assert result.exit_code == 0, result.output
    assert sum(len(file.read_text().splitlines()) for file in (tmp_path / "sums").iterdir()) == 20


def test_connectors_of_stages_are_set_with_the_name_of_the_stage() -> None:
    plugin = Named()
    job = with_connectors(
        top_pages(MemorySource(())),
        {"views.clicks": "lines:views/"},
        {"top.top": ["console"]},
        [plugin],  # type: ignore[list-item]
    )
    assert job.stages["views"].sources == {"clicks": LinesSource("views/")}
    assert job.stages["top"].sinks == {"top": ConsoleSink()}
    assert {*job.stages["top"].sources} == {"sums"}
    assert job.plugins == (plugin,)


@pytest.mark.parametrize("name", ["clicks", "other.clicks"])
def test_a_connector_of_a_job_with_stages_needs_the_name_of_a_stage(name: str) -> None:
    advice = r"--source .+: name one of the stages \(views, top\), as in views\.clicks"
    with pytest.raises(LoadError, match=advice):
        with_connectors(top_pages(MemorySource(())), {name: "lines:views/"}, {})
