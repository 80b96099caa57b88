"""The console: what it shows, and to whom."""

import html
import http.client
import json
import re
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import Any
from urllib.parse import quote

import pytest

from amadou import (
    AmadouError,
    BatchReport,
    Counts,
    Handler,
    Job,
    KeyedEvent,
    PartitionReport,
    Run,
    RunSummary,
    Secret,
    Subject,
    hookimpl,
)
from amadou.errors import CheckpointError
from amadou_plugins.connectors import MemorySource
from amadou_plugins.console import Console, _biggest_keys
from amadou_plugins.console._history import MOST_BATCHES, SERIES, RunHistory
from amadou_plugins.console._text import shown_number, shown_seconds
from amadou_runtime import run as run_job

NAME = "<script>alert(1)</script>"
PATHS = (
    *("/", "/state?key=x", "/state?biggest=1", "/batches", "/static/console.css", "/nothing"),
    *(f"/api/v1/{name}" for name in ("overview", "charts", "batches", "state?key=x", "biggest")),
)
NOW = datetime.now(UTC)


class Counter(Handler):
    """Counts events."""

    def key_event(self, record: Any) -> list[KeyedEvent]:
        return [KeyedEvent(record, NOW)]

    def on_event(self, subject: Subject, event: KeyedEvent) -> None:
        pass


def job_named(name: str, *plugins: Any) -> Job:
    return Job(name, Counter(), {"a": MemorySource(["x", "y"])}, {}, plugins=plugins)


def report(number: int, completed: datetime = NOW, **counts: Any) -> BatchReport:
    partitions = (PartitionReport("a", "", completed - timedelta(seconds=2), 7, timedelta(seconds=2), True),)
    return BatchReport(
        number,
        Counts(**counts),
        completed - timedelta(seconds=5),
        0.5,
        completed,
        {"keying": 0.25},
        partitions=partitions,
    )


class Stored:
    """State with a key."""

    def find(self, key: str) -> dict[str, Any] | None:
        if key == "broken":
            raise CheckpointError("state", "its state cannot be read")
        value = {"type": "ValueSpec str", "text": NAME, "expires": None, "next_timer": NOW.isoformat()}
        found = {"key": repr(key), "batch": 2, "state": {NAME: value}, "timers": [[NOW.isoformat(), NAME]]}
        return {**found, "held": {NAME: [[NOW.isoformat(), NAME]]}, "hidden": [NAME]} if "script" in key else None

    def biggest(self, limit: int) -> dict[str, Any]:
        keys = [{"key": key, "bytes": 4567, "timers": 1, "next": NOW.isoformat()} for key in (repr(NAME), "'long…")]
        return {"batch": 2, "keys": keys}


class SlowlyStored(Stored):
    """State whose biggest keys are found when the test wants it.

    :param result: the keys, or an error
    """

    def __init__(self, result: dict[str, Any] | Exception) -> None:
        self.result = result
        self.calls: list[int] = []
        self.goes_on = threading.Event()

    def biggest(self, limit: int) -> dict[str, Any]:
        self.calls.append(limit)
        assert self.goes_on.wait(20)
        if isinstance(self.result, Exception):
            raise self.result
        return self.result


class Browser:
    """Sends requests to a console."""

    def __init__(self, console: Console) -> None:
        assert console.url is not None
        found = re.fullmatch(r"http://127\.0\.0\.1:(\d+)/\?token=(.+)", console.url)
        assert found is not None
        self.port, self.token = int(found[1]), found[2]

    def ask(self, path: str, method: str = "GET", **headers: str) -> tuple[int, dict[str, str], str]:
        """Send a request without the token."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=20)
        try:
            connection.request(method, path, headers=headers)
            answer = connection.getresponse()
            return answer.status, {name.lower(): text for name, text in answer.getheaders()}, answer.read().decode()
        finally:
            connection.close()

    def get(self, path: str) -> str:
        """Return a page."""
        status, _, text = self.ask(path, Authorization=f"Bearer {self.token}")
        assert status == 200, text
        return text


@pytest.fixture(scope="module")
def console() -> Iterator[Console]:
    """A console with a run after three batches."""
    console = Console()
    run = Run("abc", job_named(NAME), "spark", f"/checkpoints/{NAME}", trigger="1 second", state=Stored())
    console.amadou_run_started(run)
    for number in range(3):
        console.amadou_batch_completed(run, report(number, events=10, keys=4, late=number, timers_fired=1234))
    yield console
    console.amadou_run_ended(run, RunSummary(NAME))


@pytest.fixture(scope="module")
def browser(console: Console) -> Browser:
    return Browser(console)


@pytest.mark.parametrize("path", PATHS)
def test_nothing_is_answered_without_the_token(path: str, browser: Browser) -> None:
    for headers in (
        {},
        {"Authorization": "Bearer wrong"},
        {"Authorization": "Bearer "},
        {"Cookie": f"amadou-console-{browser.port}="},
        {"Cookie": f"amadou-console-{browser.port}=wrong"},
        {"Cookie": f"token={browser.token}"},
    ):
        status, _, text = browser.ask(path, **headers)
        assert status == 401
        assert "script" not in text
    more = "&" if "?" in path else "?"
    assert browser.ask(f"{path}{more}token=wrong")[0] == 401
    assert browser.ask(f"{path}{more}token=")[0] == 401


def test_the_address_with_the_token_sets_a_cookie(browser: Browser) -> None:
    status, headers, text = browser.ask(f"/batches?before=2&token={browser.token}")
    assert (status, headers["location"], text) == (303, "/batches?before=2", "")
    cookie, *attributes = headers["set-cookie"].split("; ")
    assert {each.lower() for each in attributes} >= {"httponly", "samesite=strict", "path=/"}
    status, _, text = browser.ask("/batches?before=2", Cookie=cookie)
    assert status == 200
    assert NAME not in text


def test_the_token_never_leads_to_another_server(browser: Browser) -> None:
    for path in ("//example.com/", "///example.com", "/\\example.com"):
        _, headers, _ = browser.ask(f"{path}?token={browser.token}")
        assert re.match(r"/(?![/\\])", headers["location"])


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("method", ["HEAD", "POST", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE", "CONNECT", "BREW"])
def test_every_method_but_get_is_refused(method: str, path: str, browser: Browser) -> None:
    status, headers, _ = browser.ask(path, method, Authorization=f"Bearer {browser.token}")
    assert (status, headers["allow"]) == (405, "GET")


@pytest.mark.parametrize(
    "host", ["example.com", "example.com:{port}", "127.0.0.1", "127.0.0.1:1", "127.0.0.2:{port}", ""]
)
def test_other_host_names_are_refused(host: str, browser: Browser) -> None:
    status, _, text = browser.ask("/", Host=host.format(port=browser.port), Authorization=f"Bearer {browser.token}")
    assert status == 421
    assert "script" not in text


@pytest.mark.parametrize("host", ["localhost:{port}", "LOCALHOST:{port}", "127.0.0.1:{port}", "[::1]:{port}"])
def test_names_of_this_machine_are_answered(host: str, browser: Browser) -> None:
    assert browser.ask("/", Host=host.format(port=browser.port), Authorization=f"Bearer {browser.token}")[0] == 200


@pytest.mark.parametrize("path", [*PATHS, "/?token=wrong"])
def test_every_answer_is_protected(path: str, browser: Browser) -> None:
    for given in ({}, {"Authorization": f"Bearer {browser.token}", "Origin": "http://example.com"}, {"Host": "other"}):
        _, headers, _ = browser.ask(path, **given)
        assert headers["content-security-policy"].startswith("default-src 'none'; script-src 'self'; style-src 'self'")
        assert "unsafe" not in headers["content-security-policy"]
        assert (headers["cache-control"], headers["referrer-policy"]) == ("no-store", "no-referrer")
        assert (headers["x-content-type-options"], headers["x-frame-options"]) == ("nosniff", "DENY")
        assert not [name for name in headers if name.startswith("access-control")]
        assert "server" not in headers


def test_text_from_data_is_escaped(browser: Browser) -> None:
    for path in ("/", "/batches", f"/state?key={quote(NAME)}"):
        text = browser.get(path)
        assert "<script>alert" not in text
        assert "&lt;script&gt;alert(1)&lt;/script&gt;" in text
    assert json.loads(browser.get("/api/v1/overview"))["job"] == NAME


def test_the_overview_shows_what_holds_the_watermark_back(browser: Browser) -> None:
    overview = json.loads(browser.get("/api/v1/overview"))
    (source,) = overview["sources"]
    assert (source["name"], source["lag"], source["age_seconds"], source["holds_back"]) == ("a", 7, 2.0, True)
    assert (overview["status"], overview["trigger"], overview["batches"]) == ("running", "1 second", 3)
    assert (overview["totals"]["events"], overview["totals"]["late"]) == (30, 3)
    assert (overview["figures"]["delay_seconds"], overview["figures"]["watermark_lag_seconds"]) == (2.0, 5.0)
    page = browser.get("/")
    for text in ("holds it back", "1 second", "500 ms", "keying"):
        assert text in page


def test_batches_are_shown_in_pages(browser: Browser) -> None:
    def numbers(query: str) -> list[int]:
        return [each["number"] for each in json.loads(browser.get(f"/api/v1/batches{query}"))["batches"]]

    assert (numbers(""), numbers("?limit=2"), numbers("?before=2"), numbers("?limit=0")) == (
        [2, 1, 0],
        [2, 1],
        [1, 0],
        [],
    )
    assert "1,234" in browser.get("/batches")
    for query in ("?limit=x", "?before=-1", "?before=1e3", f"?before={'9' * 30}"):
        status, _, text = browser.ask(f"/api/v1/batches{query}", Authorization=f"Bearer {browser.token}")
        assert status == 400
        assert "must be a number" in json.loads(text)["error"]
    status, _, text = browser.ask("/batches?before=x", Authorization=f"Bearer {browser.token}")
    assert status == 400
    assert "before must be a number" in text
    assert browser.ask("/nothing", Authorization=f"Bearer {browser.token}")[0] == 404


def test_a_key_is_found(browser: Browser) -> None:
    page, _, _ = browser.get(f"/state?key={quote(NAME)}").partition("Biggest keys")
    assert page.count("&lt;script&gt;alert(1)") == 10
    found = json.loads(browser.get(f"/api/v1/state?key={quote(NAME)}"))
    assert (found["key"], found["state"][NAME]["text"]) == (repr(NAME), NAME)
    assert "Nothing is stored for the key nobody." in browser.get("/state?key=nobody")
    assert "Nothing is stored" not in browser.get("/state")
    for path, status, why in (
        ("/api/v1/state", 400, "name the key, such as key=news"),
        ("/api/v1/state?key=nobody", 404, "nothing is stored for the key 'nobody'"),
        ("/api/v1/state?key=broken", 503, "its state cannot be read"),
        (f"/api/v1/state?key={'x' * 2001}", 400, "a key has at most 2,000 characters here"),
    ):
        found_status, _, text = browser.ask(path, Authorization=f"Bearer {browser.token}")
        assert (found_status, why in json.loads(text)["error"]) == (status, True)


@contextmanager
def running(reader: Any) -> Iterator[Browser]:
    """A browser of a console with a run, which has the given state."""
    console, run = Console(), Run("abc", job_named("a"), "spark", None, state=reader)
    console.amadou_run_started(run)
    try:
        yield Browser(console)
    finally:
        console.amadou_run_ended(run, RunSummary("a"))


def biggest_of(browser: Browser, *, ends_with: str = "") -> dict[str, Any]:
    """The biggest keys, once their status is the wanted one."""
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline:
        found: dict[str, Any] = json.loads(browser.get("/api/v1/biggest"))
        if found["status"].endswith(ends_with):
            return found
        time.sleep(0.01)
    raise AssertionError(found)


def test_the_biggest_keys_are_found_when_somebody_asks() -> None:
    reader = SlowlyStored(Stored().biggest(20))
    with running(reader) as browser:
        page = browser.get("/state")
        assert '<a href="/state?biggest=1">Find the biggest keys</a>' in page
        assert browser.get("/state?key=x")
        assert reader.calls == []
        assert "All state is being read." in browser.get("/state?biggest=1")
        nothing = {"status": "computing", "batch": None, "found": None, "keys": [], "error": None}
        assert biggest_of(browser) == nothing
        assert "All state is being read." in browser.get("/state")
        assert reader.calls == [20]
        reader.goes_on.set()
        found = biggest_of(browser, ends_with="found")
        assert (found["batch"], found["keys"], found["error"]) == (2, Stored().biggest(20)["keys"], None)
        assert datetime.fromisoformat(found["found"]) >= NOW
        for path in ("/state", "/state?biggest=1"):
            page = browser.get(path)
            assert f'<a href="/state?key={quote(repr(NAME))}"><code>&#39;&lt;script&gt;alert(1)' in page
            assert "<script>alert" not in page
            assert "<code>&#39;long…</code>" in page
            assert "long…</code></a>" not in page  # what is cut cannot be found
            assert "4,567" in page
            assert "As of batch 2" in page


def test_the_biggest_keys_are_found_once_at_a_time_and_not_too_often(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = [1000.0]
    monkeypatch.setattr(_biggest_keys, "monotonic", lambda: clock[0])
    reader = SlowlyStored({"batch": 1, "keys": []})
    with running(reader) as browser:
        for _ in range(5):
            assert biggest_of(browser)["status"] == "computing"
        clock[0] += 20  # finding the keys takes 20 seconds
        reader.goes_on.set()
        biggest_of(browser, ends_with="found")
        assert "No keys have state of their own." in browser.get("/state?biggest=1")
        clock[0] += 9 * 20 - 1
        assert biggest_of(browser)["status"] == "found"
        assert len(reader.calls) == 1
        reader.goes_on.clear()
        clock[0] += 1
        again = biggest_of(browser)
        assert (again["status"], again["batch"]) == ("computing", 1)  # the old keys are shown meanwhile
        reader.goes_on.set()
        biggest_of(browser, ends_with="found")
        assert len(reader.calls) == 2
        clock[0] += 59
        assert biggest_of(browser)["status"] == "found"
        clock[0] += 1
        assert biggest_of(browser)["status"] == "computing"


@pytest.mark.parametrize(
    ("error", "shown"),
    [
        (CheckpointError(NAME, "its state cannot be read"), f"checkpoint {NAME}: its state cannot be read"),
        (KeyError("x"), "KeyError: 'x'"),
    ],
)
def test_why_the_biggest_keys_were_not_found_is_shown(error: Exception, shown: str) -> None:
    reader = SlowlyStored(error)
    reader.goes_on.set()
    with running(reader) as browser:
        found = biggest_of(browser, ends_with="failed")
        assert (found["error"], found["keys"]) == (shown, [])
        page = browser.get("/state?biggest=1")
        assert html.escape(shown).replace("&#x27;", "&#39;") in page
        assert "<script>alert" not in page
        assert len(reader.calls) == 1


def test_the_biggest_keys_are_those_of_the_run_that_is_shown() -> None:
    first, second = SlowlyStored({"batch": 1, "keys": []}), SlowlyStored({"batch": 2, "keys": []})
    console = Console()
    runs = [Run(str(number), job_named("a"), "spark", None, state=each) for number, each in enumerate((first, second))]
    console.amadou_run_started(runs[0])
    try:
        browser = Browser(console)
        assert biggest_of(browser)["status"] == "computing"
        console.amadou_run_started(runs[1])
        assert biggest_of(browser)["status"] == "computing"
        assert second.calls == []  # one at a time
        second.goes_on.set()
        first.goes_on.set()
        assert biggest_of(browser, ends_with="found")["batch"] == 2
    finally:
        for run in runs:
            console.amadou_run_ended(run, RunSummary("a"))


def test_only_runs_on_spark_have_biggest_keys() -> None:
    with running(None) as browser:
        status, _, text = browser.ask("/api/v1/biggest", Authorization=f"Bearer {browser.token}")
        assert (status, json.loads(text)["error"]) == (404, "only runs on Spark have state that can be looked into")
        assert browser.ask("/state?biggest=1", Authorization=f"Bearer {browser.token}")[0] == 404


def test_the_history_is_bounded() -> None:
    history = RunHistory(Run("abc", job_named("a"), "spark", None), most=50)
    for number in range(200):
        history.add(report(number, NOW - timedelta(minutes=200 - number), events=60, keys=number))
    assert len(history.batches(1000)) == 50
    assert MOST_BATCHES == 10_000
    overview = history.overview(NOW)
    assert (overview["batches"], overview["totals"]["events"]) == (200, 12000)
    keys = [value for _, value in history.chart("keys", NOW) if value is not None]
    assert keys == list(map(float, range(150, 200)))
    events = history.chart("events", NOW)
    assert len(events) == 120
    assert {value for _, value in events} == {None, 2.0}
    assert history.chart("events", NOW + timedelta(hours=3)) == [
        (time, None) for time, _ in history.chart("events", NOW + timedelta(hours=3))
    ]


def test_a_run_is_shown_until_it_ends(capsys: pytest.CaptureFixture[str]) -> None:
    console, seen = Console(), []

    class Watcher:
        """Reads the console in each batch."""

        @hookimpl
        def amadou_batch_completed(self) -> None:
            seen.append(json.loads(Browser(console).get("/api/v1/overview")))
            assert set(json.loads(Browser(console).get("/api/v1/charts"))) == set(SERIES)

    run_job(job_named("views", console, Watcher()), engine="embedded")
    assert [each["totals"]["events"] for each in seen] == [2, 2]
    assert console.url is None
    assert re.search(r"console: http://127\.0\.0\.1:\d+/\?token=\S{32}", capsys.readouterr().err)


def test_many_jobs_share_a_console() -> None:
    console = Console()
    runs = [Run(str(number), job_named(f"job-{number}"), "spark", None) for number in range(60)]
    for run in runs:
        console.amadou_run_started(run)
    try:
        for run in runs:
            console.amadou_batch_completed(run, report(0, events=1))
        overview = json.loads(Browser(console).get("/api/v1/overview"))
        assert (overview["job"], overview["batches"]) == ("job-59", 1)
    finally:
        for run in runs:
            console.amadou_run_ended(run, RunSummary(run.job.name))
    assert console.url is None


def test_errors_are_shown_without_secrets() -> None:
    console, run = Console(), Run("abc", job_named("a"), "spark", None)
    other = Run("def", job_named("b"), "spark", None)
    console.amadou_run_started(run)
    console.amadou_run_started(other)
    try:
        Secret("swordfish")
        console.amadou_run_failed(other, AmadouError("cannot log in with swordfish"))
        page = Browser(console).get("/")
        assert "cannot log in with ***" in page
        assert "failed" in page
    finally:
        console.amadou_run_ended(run, RunSummary("a"))


def test_a_port_that_is_taken_ends_the_run() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(AmadouError, match=rf"cannot listen on 127.0.0.1:{port}: use a different port"):
            run_job(job_named("a", Console(port)), engine="embedded")
    with pytest.raises(ValueError, match="port must be between 0 and 65535"):
        Console(70000)


def test_other_machines_can_be_let_in(caplog: pytest.LogCaptureFixture) -> None:
    console, run = Console(host="0.0.0.0"), Run("abc", job_named("a"), "spark", None)
    console.amadou_run_started(run)
    try:
        assert "other machines can connect, and the connection is not encrypted" in caplog.text
        assert console.url is not None
        console.url = console.url.replace("0.0.0.0", "127.0.0.1")
        browser = Browser(console)
        for host, status in (("10.1.2.3", 401), ("[fe80::1]", 401), (socket.gethostname(), 401), ("example.com", 421)):
            assert browser.ask("/", Host=f"{host}:{browser.port}")[0] == status
    finally:
        console.amadou_run_ended(run, RunSummary("a"))


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.0123, "12 ms"),
        (2.34, "2.3 s"),
        (-75, "-1 min 15 s"),
        (3725, "1 h 2 min"),
        (200_000, "2 days 7 h"),
        (None, "–"),
    ],
)
def test_durations_are_readable(seconds: float | None, text: str) -> None:
    assert shown_seconds(seconds) == text


def test_numbers_are_readable() -> None:
    assert [shown_number(each) for each in (None, 3, 12345.0, 0.125, 1234.5)] == ["–", "3", "12,345", "0.12", "1,234"]
