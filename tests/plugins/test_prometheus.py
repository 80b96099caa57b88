"""Metrics of runs that Prometheus scrapes."""

import http.client
import re
import socket
import sys
from collections.abc import Iterator
from datetime import datetime, timedelta, timezone
from pathlib import Path
from socketserver import BaseServer
from typing import Any
from urllib.error import URLError
from urllib.request import urlopen

import pytest
from prometheus_client.parser import text_string_to_metric_families
from tests.top_pages import top_pages, view
from typer.testing import CliRunner

from amadou import Handler, Job, KeyedEvent, MemorySink, MemorySource, Secret, SinkSpec, Subject
from amadou.errors import CallbackError, PluginError
from amadou.plugins import BatchReport, Counts, Metric, hookimpl
from amadou_plugins.metrics import PrometheusEndpoint
from amadou_plugins.metrics.plugin import amadou_register_metrics
from amadou_runtime import run
from amadou_runtime.command.cli import app

START = datetime(2025, 1, 1, tzinfo=timezone.utc)
PAGE = (Path(__file__).parents[2] / "docs" / "metrics.md").read_text()


class Reminding(Handler):
    reminders = SinkSpec(int)

    def key_event(self, record: int) -> KeyedEvent[int]:
        return KeyedEvent(record % 2, START + timedelta(seconds=record), record)

    def on_event(self, subject: Subject, event: KeyedEvent[int]) -> None:
        if event.value < 0:
            raise ValueError("below zero")
        subject.set_timer(START + timedelta(seconds=event.value + 2))
        subject.count("reminded")

    def on_timer_expired(self, subject: Subject, timestamp: datetime) -> None:
        self.reminders.collect(subject, 1)


class Scraping:
    """Scrapes the endpoint after each batch and before the end of the run. Must precede the endpoint in `plugins`, so
    that the endpoint still serves at the end.
    """

    def __init__(self, endpoint: PrometheusEndpoint) -> None:
        self.endpoint = endpoint
        self.seen: list[dict[str, float]] = []

    @hookimpl
    def amadou_run_ended(self) -> None:
        self.seen.append(scraped(self.endpoint))

    @hookimpl(trylast=True)
    def amadou_batch_completed(self) -> None:
        self.seen.append(scraped(self.endpoint))


def scraped(endpoint: PrometheusEndpoint) -> dict[str, float]:
    """Return the samples that an endpoint serves, by name and labels."""
    assert endpoint.url is not None
    with urlopen(endpoint.url) as answer:
        families = list(text_string_to_metric_families(answer.read().decode()))
    return {
        sample.name + "".join(f" {label}={value}" for label, value in sorted(sample.labels.items())): sample.value
        for family in families
        for sample in family.samples
    }


def job(*records: int, name: str = "views", plugins: Any = ()) -> Job:
    return Job(name, Reminding(), {"in": MemorySource(records)}, {"reminders": MemorySink()}, plugins=plugins)


@pytest.fixture(autouse=True)
def servers_end_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """By default, a server looks every half second whether it shall end."""
    monkeypatch.setattr(BaseServer.serve_forever, "__defaults__", (0.01,))


@pytest.fixture
def used_port() -> Iterator[int]:
    """A port on which another server listens."""
    with socket.create_server(("127.0.0.1", 0)) as other:
        yield other.getsockname()[1]


def test_metrics_of_a_run_are_served_during_the_run() -> None:
    endpoint = PrometheusEndpoint(port=0)
    scraping = Scraping(endpoint)
    run(job(1, 2, 4, plugins=[scraping, endpoint]), engine="embedded")
    first, second, last = scraping.seen
    assert last == second
    of_job = {name.replace(" job=views", ""): number for name, number in last.items()}
    assert (
        of_job.items()
        >= {
            "amadou_batches_total": 2,
            "amadou_records_total source=in": 3,
            "amadou_events_total": 3,
            "amadou_late_events_total": 0,
            "amadou_dead_letters_total": 0,
            "amadou_outputs_total port=reminders": 2,
            "amadou_timers_set_total": 3,
            "amadou_timers_fired_total": 2,
            "amadou_timers_pending": 1,
            "amadou_keys": 1,
            "amadou_counter_total counter=reminded": 3,
            "amadou_callback_calls_total callback=key_event": 3,
            "amadou_callback_calls_total callback=on_timer_expired": 2,
            "amadou_watermark_timestamp_seconds": (START + timedelta(seconds=4)).timestamp(),
        }.items()
    )
    assert of_job["amadou_watermark_lag_seconds"] > timedelta(days=1).total_seconds()
    assert of_job["amadou_state_bytes"] > 0
    assert of_job["amadou_state_written_bytes_total"] > of_job["amadou_state_bytes"]
    assert 0 < of_job["amadou_stage_seconds_total stage=processing"] < of_job["amadou_batch_seconds_total"]
    assert of_job["amadou_callback_seconds_total callback=on_event"] > 0
    assert not any("watermark" in name for name in first)
    assert (first["amadou_timers_pending job=views"], first["amadou_batches_total job=views"]) == (3, 1)


@pytest.mark.parametrize("records", [[1], [-1]], ids=["a run that ends", "a run that fails"])
def test_the_port_of_the_endpoint_is_free_after_the_run(records: list[int]) -> None:
    endpoint = PrometheusEndpoint(port=0)
    urls: list[Any] = []

    class RecordingUrl:
        @hookimpl(trylast=True)
        def amadou_run_started(self) -> None:
            urls.append(endpoint.url)

    for _ in range(2):
        try:
            run(job(*records, plugins=[endpoint, RecordingUrl()]), engine="embedded")
        except CallbackError:
            assert records == [-1]
        assert endpoint.url is None
    for url in urls:
        with pytest.raises(URLError, match="refused"):
            urlopen(url, timeout=10)
    assert len(urls) == 2


def test_metrics_of_the_next_run_begin_at_zero() -> None:
    endpoint = PrometheusEndpoint(port=0)
    scraping = Scraping(endpoint)
    for _ in range(2):
        run(job(1, plugins=[scraping, endpoint]), engine="embedded")
        assert scraping.seen[-1]["amadou_events_total job=views"] == 1


def test_a_used_port_ends_the_run_before_its_first_batch(used_port: int) -> None:
    written = job(1, plugins=[PrometheusEndpoint(used_port)])
    with pytest.raises(PluginError) as caught:
        run(written, engine="embedded")
    where = (
        f"metrics cannot be served on 127.0.0.1:{used_port}: use a different port or address (Address already in use)"
    )
    assert where in str(caught.value)
    assert written.sinks["reminders"].records == []  # type: ignore[attr-defined]


def test_the_error_for_an_unknown_address_names_it() -> None:
    with pytest.raises(PluginError, match=r"on no\.such\.host\.invalid:0: use a different port or address \(.+\)"):
        run(job(1, plugins=[PrometheusEndpoint(0, "no.such.host.invalid")]), engine="embedded")


@pytest.mark.parametrize("port", [-1, 65536])
def test_a_port_out_of_range_is_refused(port: int) -> None:
    with pytest.raises(ValueError, match=f"port must be between 0 and 65535, not {port}"):
        PrometheusEndpoint(port)


def test_the_error_for_a_missing_prometheus_client_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "prometheus_client", None)
    with pytest.raises(
        PluginError, match=r"the endpoint needs prometheus-client: run pip install 'amadou\[prometheus\]'"
    ):
        run(job(1, plugins=[PrometheusEndpoint(0)]), engine="embedded")


def test_concurrent_jobs_share_an_endpoint() -> None:
    endpoint = PrometheusEndpoint(0)
    scraping = Scraping(endpoint)

    class Nesting:
        """Runs another job during the first one."""

        @hookimpl(trylast=True)
        def amadou_run_started(self) -> None:
            run(job(1, 2, name="other", plugins=[endpoint]), engine="embedded")

    run(job(1, plugins=[scraping, endpoint, Nesting()]), engine="embedded")
    last = scraping.seen[-1]
    assert last["amadou_events_total job=views"] == 1
    assert last["amadou_events_total job=other"] == 2
    assert endpoint.url is None


def test_the_metrics_of_a_job_with_stages_name_the_stage() -> None:
    endpoint = PrometheusEndpoint(port=0)
    scraping = Scraping(endpoint)

    class Own:
        """Registers a metric for each stage, and runs another job during this one."""

        @hookimpl
        def amadou_register_metrics(self) -> list[Metric]:
            return [Metric("own", "Of each stage.", "gauge", lambda batch: batch.counts.timers_fired)]

        @hookimpl(trylast=True)
        def amadou_run_started(self) -> None:
            run(job(1, plugins=[endpoint]), engine="embedded")

    views = MemorySource([view("/a", 1), view("/odd", 2), view("/a", 61), view("/a", 400)])
    staged = top_pages(views, on_error="dead_letter", dead_letters=MemorySink(), plugins=[scraping, endpoint, Own()])
    run(staged, engine="embedded")
    first, *_, last = scraping.seen
    of_job = {name.replace(" job=top-pages", ""): number for name, number in last.items() if "job=top-pages" in name}
    assert (
        of_job.items()
        >= {
            "amadou_batches_total": 3,
            "amadou_records_total source=clicks stage=views": 4,
            "amadou_records_total source=sums stage=top": 3,
            "amadou_events_total stage=views": 4,
            "amadou_events_total stage=top": 3,
            "amadou_dead_letters_total stage=views": 0,
            "amadou_dead_letters_total stage=top": 1,
            "amadou_outputs_total port=top stage=top": 2,
            "amadou_keys stage=views": 1,
            "amadou_timers_pending stage=views": 1,
            "amadou_timers_pending stage=top": 0,
            "amadou_callback_calls_total callback=key_event stage=top": 3,
            "amadou_partition_holds_back partition=clicks stage=views": 1,
            "amadou_watermark_timestamp_seconds stage=top": (START + timedelta(seconds=400)).timestamp(),
            "own stage=views": 0,
            "own stage=top": 2,
        }.items()
    )
    assert of_job["amadou_stage_seconds_total part=processing stage=top"] > 0
    whole = {name for name in of_job if "stage=" not in name}
    assert whole == {"amadou_batches_total", "amadou_batch_seconds_total"}
    assert first["amadou_dead_letters_total job=top-pages stage=top"] == 0
    assert last["amadou_events_total job=views"] == 1
    assert "amadou_stage_seconds_total job=views stage=keying" in last


def test_labels_that_a_gauge_no_longer_has_are_removed() -> None:
    class Batches:
        @hookimpl
        def amadou_register_metrics(self) -> list[Metric]:
            return [
                Metric("current", "The batch.", "gauge", lambda batch: {batch.number: 1.5}, label="batch"),
                Metric("first", "Something of the first.", "gauge", lambda batch: None if batch.number else 1),
            ]

    endpoint = PrometheusEndpoint(0)
    scraping = Scraping(endpoint)
    run(job(1, plugins=[scraping, endpoint, Batches()]), engine="embedded")
    first, second, _ = (
        {name: number for name, number in seen.items() if not name.startswith("amadou")} for seen in scraping.seen
    )
    assert first == {"current batch=0 job=views": 1.5, "first job=views": 1}
    assert second == {"current batch=1 job=views": 1.5}


JOB_FILE = """
from urllib.request import urlopen

from amadou import Job, MemorySink, MemorySource
from amadou.plugins import hookimpl
from tests.plugins.test_prometheus import Reminding


class Reading:
    @hookimpl(trylast=True)
    def amadou_run_started(self):
        print(urlopen("http://127.0.0.1:PORT/metrics").read().decode())


job = Job("views", Reminding(), {"in": MemorySource([1])}, {"reminders": MemorySink()}, plugins=[Reading()])
"""


@pytest.mark.parametrize("by", ["option", "environment"])
def test_the_port_for_metrics_can_be_an_option_or_a_variable(
    by: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, used_port: int
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = str(other.getsockname()[1])
    (tmp_path / "views_with_metrics.py").write_text(JOB_FILE.replace("PORT", port))
    command = ["run", f"{tmp_path}/views_with_metrics.py", "--engine", "embedded"]
    if by == "option":
        command += ["--metrics-port", port]
    else:
        monkeypatch.setenv("AMADOU_METRICS_PORT", port)
    result = CliRunner().invoke(app, command)
    assert (result.exit_code, 'amadou_events_total{job="views"} 0.0' in result.stdout) == (0, True)

    result = CliRunner().invoke(app, [*command[:4], "--metrics-port", str(used_port)])
    assert result.exit_code == 1
    assert f"metrics cannot be served on 127.0.0.1:{used_port}" in result.stderr


def test_the_address_for_metrics_can_be_an_option(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = str(other.getsockname()[1])
    text = JOB_FILE.replace("127.0.0.1:PORT", f"127.0.0.2:{port}")
    (tmp_path / "views_for_others.py").write_text(text)
    command = ["run", f"{tmp_path}/views_for_others.py", "--engine", "embedded", "--metrics-host", "0.0.0.0"]
    result = CliRunner().invoke(app, [*command, "--metrics-port", port])
    assert (result.exit_code, 'amadou_events_total{job="views"} 0.0' in result.stdout) == (0, True)

    result = CliRunner().invoke(app, command)
    assert result.exit_code == 2
    assert "--metrics-host needs --metrics-port" in result.stderr


def test_sizes_of_stored_state_are_metrics() -> None:
    figures = {
        "state_entries": 1,
        "state_bytes": 2,
        "state_view_bytes": 3,
        "state_bytes_written": 4,
        "state_bytes_cleaned": 5,
        "state_view_hits": 6,
        "state_view_rebuilds": 7,
    }
    batch = BatchReport(0, Counts(**figures), None, 1.0, START)  # type: ignore[arg-type]
    read = {metric.name: (metric.kind, metric.read(batch)) for metric in amadou_register_metrics()}
    assert {name: of for name, of in read.items() if name.startswith("amadou_state_")} == {
        "amadou_state_entries": ("gauge", 1),
        "amadou_state_bytes": ("gauge", 2),
        "amadou_state_view_bytes": ("gauge", 3),
        "amadou_state_written_bytes": ("counter", 4),
        "amadou_state_cleaned_bytes": ("counter", 5),
        "amadou_state_view_hits": ("counter", 6),
        "amadou_state_view_rebuilds": ("counter", 7),
    }


def test_the_page_on_metrics_lists_each_metric_of_amadou() -> None:
    endpoint = PrometheusEndpoint(0)
    scraping = Scraping(endpoint)
    run(job(1, plugins=[scraping, endpoint]), engine="embedded")
    served = {re.split(" ", name)[0] for name in scraping.seen[-1]}
    assert served <= set(re.findall(r"`(amadou_\w+)`", PAGE))


def test_the_plugin_on_the_page_on_metrics_works(capsys: pytest.CaptureFixture[str]) -> None:
    (text,) = (text for text in re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL) if "class Shown" in text)
    names: dict[str, Any] = {}
    exec(compile(text, "metrics.md", "exec"), names)
    endpoint = PrometheusEndpoint(0)
    scraping = Scraping(endpoint)
    run(job(1, 2, 3, 4, 5, plugins=[names["Shown"](), scraping, endpoint]), engine="embedded")
    printed = capsys.readouterr().out
    assert "amadou_events: 5\n" in printed
    assert "late_ratio: 0.0\n" in printed
    assert scraping.seen[0]["late_ratio job=views"] == 0


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("127.0.0.1:{port}", 200),
        ("LOCALHOST:{port}", 200),
        ("[::1]:{port}", 200),
        ("metrics.internal", 200),
        ("metrics.internal:{port}", 200),
        ("localhost:9000", 200),
        ("192.0.2.1:{port}", 421),
        ("amadou-job:{port}", 421),
        ("attacker.example:{port}", 421),
        ("", 421),
    ],
)
def test_metrics_are_not_served_under_other_host_names(host: str, status: int) -> None:
    assert status_for(host, PrometheusEndpoint(0, hosts=["metrics.internal"])) == status


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("192.0.2.1:{port}", 200),
        ("[2001:db8::1]:80", 200),
        (f"{socket.gethostname()}:{{port}}", 200),
        ("amadou-job:{port}", 200),
        ("amadou.default.svc:{port}", 200),
        ("attacker.example:{port}", 421),
        ("192.0.2.1.attacker.example:{port}", 421),
        ("a:b:c", 421),
    ],
)
def test_an_open_endpoint_serves_addresses_and_names_that_nobody_can_register(host: str, status: int) -> None:
    assert status_for(host, PrometheusEndpoint(0, "0.0.0.0")) == status


def status_for(host: str, endpoint: PrometheusEndpoint) -> int:
    """Return the status of an answer under a host name."""
    found: list[int] = []

    class Asking:
        @hookimpl
        def amadou_run_ended(self) -> None:
            assert endpoint.url is not None
            port = int(endpoint.url.rpartition(":")[2].partition("/")[0])
            connection = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
            connection.request("GET", "/metrics", headers={"Host": host.format(port=port)})
            found.append(connection.getresponse().status)
            connection.close()

    job = Job(
        "asked", Reminding(), {"in": MemorySource([1])}, {"reminders": MemorySink()}, plugins=[Asking(), endpoint]
    )
    run(job, engine="embedded")
    return found[0]


class Letters:
    """A metric whose labels are texts of data."""

    @hookimpl
    def amadou_register_metrics(self) -> list[Metric]:
        return [Metric("letters", "Letters.", "gauge", lambda _: {"\ud800": 1, "a swordfish": 2}, "letter")]


def test_labels_from_data_are_valid_text_without_secrets() -> None:
    Secret("swordfish")
    endpoint = PrometheusEndpoint(port=0)
    scraping = Scraping(endpoint)
    run(job(1, plugins=[Letters(), scraping, endpoint]), engine="embedded")
    letters = {name: number for name, number in scraping.seen[-1].items() if name.startswith("letters")}
    assert letters == {"letters job=views letter=\\ud800": 1, "letters job=views letter=a ***": 2}
