"""The console: what it shows, and to whom."""

import html
import http.client
import json
import re
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta, timezone
from typing import Any
from urllib.parse import quote

import attrs
import pytest
from tests.waits import wait_for

from amadou import AmadouError, Handler, Job, KeyedEvent, Secret, Subject
from amadou._connectors.secret import _revealing
from amadou.errors import CheckpointError
from amadou.plugins import (
    BatchReport,
    Counts,
    DeadLetterReport,
    FailedBatch,
    LateEventReport,
    PartitionReport,
    Run,
    RunSummary,
    hookimpl,
)
from amadou_plugins.connectors import MemorySource
from amadou_plugins.console import Console, _biggest_keys
from amadou_plugins.console._facts import RunFacts
from amadou_plugins.console._history import MOST_BATCHES, RunHistory
from amadou_plugins.console._letters import MOST_LETTERS
from amadou_plugins.console._series import SERIES
from amadou_plugins.console._server import Server
from amadou_plugins.console._text import shown_number, shown_seconds
from amadou_runtime import run as run_job
from amadou_runtime.jobs.job_document import job_document, read_job_document

NAME = "<script>alert(1)</script>"
PATHS = (
    *(
        "/",
        "/pipeline",
        "/state?key=x",
        "/state?biggest=1",
        "/letters",
        "/letters/2-0",
        "/letters/2-0/test",
        "/letters/2-0/test.py",
    ),
    *("/batches", "/static/console.css", "/nothing"),
    *(f"/api/v1/{name}" for name in ("overview", "charts", "pipeline", "batches", "state?key=x", "biggest")),
    *(f"/api/v1/letters{name}" for name in ("", "/2-0", "/2-0/test")),
)
ACTIONS = ("/stop", "/savepoint", "/api/v1/stop", "/api/v1/savepoint")
NOW = datetime.now(timezone.utc)


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
        dead_letters=[letter(f"{NAME}: no {number}")],
        late_events=[LateEventReport("dropped", NAME, NAME, NOW - timedelta(seconds=75), NAME, NOW, NAME)],
    )


def letter(error: str, packed: bytes | None = b"packed") -> DeadLetterReport:
    return DeadLetterReport(
        "on_event", error, f"Traceback: {error}", NAME, NAME, NAME, NOW, NAME, NOW, {NAME: NAME}, [(NOW, NAME)], packed
    )


DESCRIPTION = read_job_document(
    {
        "job": NAME,
        "handler": NAME,
        "summary": NAME,
        "specs": [{"name": NAME, "kind": NAME, "type": NAME, "ttl": NAME}],
        "lookups": [{"name": NAME, "fetch": NAME, "type": NAME}],
        "sources": [
            {"name": "a", "connector": NAME, "bounded": True},
            {"name": NAME, "connector": NAME, "bounded": None},
        ],
        "dependencies": [{"source": NAME, "needs": "a", "threshold": NAME}],
        "ports": [{"name": NAME, "type": NAME, "sinks": [{"connector": NAME, "guarantee": NAME}]}],
        "settings": {NAME: NAME},
    }
)


class Stored:
    """State with a key."""

    def find(self, key: str, stage: str = "") -> dict[str, Any] | None:
        if key == "broken":
            raise CheckpointError("state", "its state cannot be read")
        value = {"type": "ValueSpec str", "text": NAME, "expires": None, "next_timer": NOW.isoformat()}
        found = {"key": repr(key), "batch": 2, "state": {NAME: value}, "timers": [[NOW.isoformat(), NAME]]}
        return {**found, "held": {NAME: [[NOW.isoformat(), NAME]]}, "hidden": [NAME]} if "script" in key else None

    def biggest(self, limit: int, stage: str = "") -> dict[str, Any]:
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

    def biggest(self, limit: int, stage: str = "") -> dict[str, Any]:
        self.calls.append(limit)
        assert self.goes_on.wait(20)
        if isinstance(self.result, Exception):
            raise self.result
        return self.result


def code_for(letter: DeadLetterReport) -> str:
    if letter.packed is None:
        raise AmadouError("too large")
    return f"def test():  # {letter.error}"


class Browser:
    """Sends requests to a console."""

    def __init__(self, console: Console | Server) -> None:
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

    def document(self, path: str) -> Any:
        """Return a document of the API."""
        return json.loads(self.get(f"/api/v1/{path}"))


@pytest.fixture(scope="module")
def console() -> Iterator[Console]:
    """A console with a run after three batches, and a fourth that failed."""
    console = Console()
    run = Run(
        "abc",
        job_named(NAME),
        "spark",
        f"/checkpoints/{NAME}",
        trigger="1 second",
        interval=timedelta(seconds=1),
        description=DESCRIPTION,
        state=Stored(),
        reproduce=code_for,
    )
    console.amadou_run_started(run)
    for number in range(3):
        counts = {"records": {"a": 12, NAME: 3}, "outputs": {NAME: 6}, "held": {NAME: 5}, "timers_fired": 1234}
        console.amadou_batch_completed(
            run, report(number, datetime.now(timezone.utc), events=10, keys=4, late=number, **counts)
        )
    yield console
    console.amadou_run_ended(run, RunSummary(NAME))


@pytest.fixture(scope="module")
def browser(console: Console) -> Browser:
    return Browser(console)


def cookie_of(browser: Browser) -> str:
    """Return the cookie that a browser gets for the token."""
    headers = browser.ask(f"/?token={browser.token}")[1]
    return headers["set-cookie"].partition(";")[0]


@pytest.mark.parametrize("path", PATHS)
def test_nothing_is_answered_without_the_token(path: str, browser: Browser) -> None:
    for headers in (
        {},
        {"Authorization": "Bearer wrong"},
        {"Authorization": "Bearer "},
        {"Cookie": f"amadou-console-{browser.port}="},
        {"Cookie": f"amadou-console-{browser.port}=wrong"},
        {"Cookie": f"token={browser.token}"},
        {"Cookie": f"amadou-console-{browser.port}={browser.token}"},
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
def test_requests_to_other_host_names_are_refused(host: str, browser: Browser) -> None:
    status, _, text = browser.ask("/", Host=host.format(port=browser.port), Authorization=f"Bearer {browser.token}")
    assert status == 421
    assert "script" not in text


@pytest.mark.parametrize("host", ["localhost:{port}", "LOCALHOST:{port}", "127.0.0.1:{port}", "[::1]:{port}"])
def test_requests_to_names_of_this_machine_are_answered(host: str, browser: Browser) -> None:
    assert browser.ask("/", Host=host.format(port=browser.port), Authorization=f"Bearer {browser.token}")[0] == 200


@pytest.mark.parametrize("path", [*PATHS, "/?token=wrong"])
def test_every_answer_is_protected(path: str, browser: Browser) -> None:
    for given in ({}, {"Authorization": f"Bearer {browser.token}", "Origin": "http://example.com"}, {"Host": "other"}):
        _, headers, _ = browser.ask(path, **given)
        assert headers["content-security-policy"].startswith("default-src 'none'; script-src 'self'; style-src 'self'")
        assert "unsafe" not in headers["content-security-policy"]
        assert (headers["cache-control"], headers["referrer-policy"]) == ("no-store", "same-origin")
        assert (headers["x-content-type-options"], headers["x-frame-options"]) == ("nosniff", "DENY")
        assert not [name for name in headers if name.startswith("access-control")]
        assert "server" not in headers


def test_text_from_data_is_escaped(browser: Browser) -> None:
    paths = ("/", "/pipeline", "/letters", "/letters/2-0", "/letters/2-0/test", "/batches", f"/state?key={quote(NAME)}")
    for path in paths:
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


def test_a_source_that_has_not_delivered_yet_is_shown_as_what_the_watermark_waits_for() -> None:
    console, run = Console(), Run("abc", job_named("a"), "spark", None, description=job_document(job_named("a")))
    console.amadou_run_started(run)
    try:
        waits = PartitionReport("a", "", None, None, None, True)
        console.amadou_batch_completed(run, attrs.evolve(report(0), watermark=None, partitions=(waits,)))
        browser = Browser(console)
        assert "waits for its first event" in browser.get("/")
        assert "the watermark waits for its first event" in browser.get("/pipeline")
    finally:
        console.amadou_run_ended(run, RunSummary("a"))


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


def test_the_state_of_a_key_is_shown(browser: Browser) -> None:
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
    found: dict[str, Any] = {}

    def is_wanted() -> bool:
        found.update(json.loads(browser.get("/api/v1/biggest")))
        return str(found["status"]).endswith(ends_with)

    wait_for(is_wanted, lambda: str(found), pause=0.01)
    return found


def test_the_biggest_keys_are_looked_up_on_request() -> None:
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


def test_the_biggest_keys_are_looked_up_once_at_a_time_and_not_too_often(monkeypatch: pytest.MonkeyPatch) -> None:
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
def test_the_error_of_a_look_up_of_the_biggest_keys_is_shown(error: Exception, shown: str) -> None:
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
    history = RunHistory(RunFacts("a", ["a"], "abc", "spark", None, NOW), most=50)
    for number in range(200):
        history.add(report(number, NOW - timedelta(minutes=200 - number), events=60, keys=number))
    assert len(history.batches(1000)) == 50
    assert {name: len(found) for name, found in history.letters().items()} == {
        "dead_letters": MOST_LETTERS,
        "late_events": MOST_LETTERS,
    }
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


def test_the_charts_of_a_run_that_has_ended_end_with_its_last_batch() -> None:
    history = RunHistory(RunFacts("a", ["a"], "abc", "spark", None))
    history.add(report(0, NOW - timedelta(hours=5), events=60, keys=9))
    for status, shown in (("running", []), ("ended", [9.0]), ("failed", [9.0])):
        history.set_status(status)
        assert [value for _, value in history.chart("keys", NOW) if value is not None] == shown
    assert history.overview(NOW)["figures"]["events"] == 1.0


def test_the_pipeline_shows_rates_and_what_is_down(browser: Browser) -> None:
    pipeline = browser.document("pipeline")
    assert pipeline["description"]["handler"] == NAME
    assert pipeline["sources"]["a"]["records"] == 36
    assert pipeline["sources"]["a"]["records_per_second"] > 0.5
    assert (pipeline["sources"][NAME]["held"], pipeline["ports"][NAME]["values"]) == (5, 18)
    assert "holds 5 events" in browser.get("/pipeline")


def test_a_dead_letter_leads_to_its_test(browser: Browser) -> None:
    failures = browser.document("letters")
    assert [each["id"] for each in failures["dead_letters"]] == ["2-0", "1-0", "0-0"]
    assert "packed" not in failures["dead_letters"][0]
    assert (failures["late_events"][0]["late_seconds"], failures["late_events"][0]["outcome"]) == (75.0, "dropped")
    assert "1 min 15 s" in browser.get("/letters")
    page = browser.get("/letters/1-0")
    for text in ("no 1", 'action="/letters/1-0/test"', f"/state?key={quote(NAME)}"):
        assert text in page
    assert "no 1" in browser.get("/letters/1-0/test")
    assert browser.document("letters/1-0/test") == {"id": "1-0", "test": f"def test():  # {NAME}: no 1"}
    _, headers, text = browser.ask("/letters/1-0/test.py", Authorization=f"Bearer {browser.token}")
    assert (headers["content-disposition"], text) == (
        'attachment; filename="test_dead_letter.py"',
        f"def test():  # {NAME}: no 1",
    )
    for path in ("/api/v1/letters/9-9", "/api/v1/letters/9-9/test", "/letters/9-9", "/letters/x/test.py"):
        assert browser.ask(path, Authorization=f"Bearer {browser.token}")[0] == 404


def test_the_page_of_a_test_that_cannot_be_written_says_why() -> None:
    for reproduce, why in ((code_for, "too large"), (None, "the console does not know the job&#39;s code")):
        console, run = Console(), Run("abc", job_named("a"), "spark", None, reproduce=reproduce)
        console.amadou_run_started(run)
        try:
            batch = BatchReport(0, Counts(), None, 0.1, NOW, dead_letters=[letter("no", packed=None)])
            console.amadou_batch_completed(run, batch)
            browser = Browser(console)
            status, _, text = browser.ask("/letters/0-0/test", Authorization=f"Bearer {browser.token}")
            assert (status, why in text) == (404, True)
        finally:
            console.amadou_run_ended(run, RunSummary("a"))


def test_a_failed_batch_is_shown_with_its_error() -> None:
    console, run = Console(), Run("abc", job_named("a"), "spark", None)
    console.amadou_run_started(run)
    try:
        console.amadou_batch_completed(run, report(6, events=3))
        console.amadou_batch_failed(run, FailedBatch(7, f"KeyError: {NAME}", f"Traceback: {NAME}", 0.25, NOW))
        newest, older = Browser(console).document("batches")["batches"]
        assert (newest["number"], newest["error"], newest["details"]) == (7, f"KeyError: {NAME}", f"Traceback: {NAME}")
        assert older["number"] == 6
        page = Browser(console).get("/batches")
        assert "<summary>KeyError: &lt;script&gt;" in page
        assert "failed" in page
        assert Browser(console).document("overview")["figures"]["keys"] == 0
    finally:
        console.amadou_run_ended(run, RunSummary("a"))


def test_a_restarted_run_shows_the_batches_before() -> None:
    before = [report(4, NOW - timedelta(minutes=5), events=60, keys=9), FailedBatch(5, "KeyError", "", 0.25, NOW)]
    console, run = Console(), Run("abc", job_named("a"), "spark", None, history=lambda: before)
    console.amadou_run_started(run)
    try:
        browser = Browser(console)
        assert [each["number"] for each in browser.document("batches")["batches"]] == [5, 4]
        overview = browser.document("overview")
        assert (overview["batches"], overview["totals"]["events"], overview["figures"]["keys"]) == (0, 0, 9)
        assert [each["id"] for each in browser.document("letters")["dead_letters"]] == ["4-0"]
        console.amadou_batch_completed(run, report(5, events=3))
        assert [each["number"] for each in browser.document("batches")["batches"]] == [5, 5, 4]
        assert browser.document("overview")["totals"]["events"] == 3
    finally:
        console.amadou_run_ended(run, RunSummary("a"))


def test_a_batch_is_compared_with_the_trigger(browser: Browser) -> None:
    assert browser.document("overview")["trigger_seconds"] == 1.0
    page = browser.get("/")
    assert "500 ms of the 1.0 s until the next trigger" in page
    assert "longer than the trigger" not in page


class Controlled:
    """A run that records what it is asked for."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    def stop(self) -> None:
        self.asked.append("stop")

    def savepoint(self) -> str:
        self.asked.append("savepoint")
        if self.asked.count("savepoint") > 2:
            raise AmadouError("no directory for savepoints")
        return "savepoints"


@pytest.fixture
def controlled() -> Iterator[tuple[Controlled, Console]]:
    control, console = Controlled(), Console(actions=True)
    run = Run("abc", job_named("a"), "spark", None, control=control)
    console.amadou_run_started(run)
    yield control, console
    console.amadou_run_ended(run, RunSummary("a"))


def test_actions_are_offered_only_if_they_are_allowed(browser: Browser, controlled: tuple[Controlled, Console]) -> None:
    assert "Stop the run" not in browser.get("/")
    assert "Stop the run" in Browser(controlled[1]).get("/")
    for path in ACTIONS:
        status, headers, _ = browser.ask(path, "POST", Authorization=f"Bearer {browser.token}")
        assert (status, headers["allow"]) == (405, "GET")
    assert browser.ask("/stop", Authorization=f"Bearer {browser.token}")[0] == 404


def test_actions_stop_the_run_and_take_savepoints(controlled: tuple[Controlled, Console]) -> None:
    control, console = controlled
    browser = Browser(console)
    bearer = {"Authorization": f"Bearer {browser.token}"}
    assert "Stop the run?" in browser.get("/stop")
    assert control.asked == []
    for path in ("/savepoint", "/api/v1/savepoint"):
        status, _, text = browser.ask(path, "POST", **bearer)
        assert (status, "as a new directory in savepoints" in text) == (200, True)
    status, _, text = browser.ask("/api/v1/savepoint", "POST", **bearer)
    assert (status, json.loads(text)["error"]) == (409, "no directory for savepoints")
    assert browser.ask("/api/v1/stop", "POST", **bearer)[0] == 200
    cookie = cookie_of(browser)
    own = f"http://127.0.0.1:{browser.port}"
    assert browser.ask("/stop", "POST", Cookie=cookie, Origin=own)[0] == 200
    assert control.asked == ["savepoint", "savepoint", "savepoint", "stop", "stop"]


@pytest.mark.parametrize("path", ACTIONS)
def test_other_sites_cannot_act(path: str, controlled: tuple[Controlled, Console]) -> None:
    control, console = controlled
    browser = Browser(console)
    cookie = cookie_of(browser)
    for headers, expected in (
        ({"Cookie": cookie}, 403),
        ({"Cookie": cookie, "Origin": "null"}, 403),
        ({"Cookie": cookie, "Origin": "http://example.com"}, 403),
        ({"Cookie": cookie, "Origin": f"https://127.0.0.1:{browser.port}"}, 403),
        ({"Origin": f"http://127.0.0.1:{browser.port}"}, 401),
        ({"Authorization": "Bearer wrong", "Origin": f"http://127.0.0.1:{browser.port}"}, 401),
        ({"Cookie": cookie, "Host": "example.com", "Origin": "http://example.com"}, 421),
    ):
        assert browser.ask(path, "POST", **headers)[0] == expected
    own = {"Origin": f"http://127.0.0.1:{browser.port}"}
    assert browser.ask(f"{path}?token={browser.token}", "POST", **own)[0] == 401
    for method in ("PUT", "DELETE", "HEAD", "OPTIONS"):
        assert browser.ask(path, method, Authorization=f"Bearer {browser.token}")[0] == 405
    assert control.asked == []


def test_a_cookie_is_accepted_only_on_the_port_that_has_set_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AMADOU_CONSOLE_TOKEN", "a-token-that-stays")
    servers = [Server("127.0.0.1", 0, list) for _ in range(2)]
    try:
        first, second = map(Browser, servers)
        assert first.token == second.token == "a-token-that-stays"
        _, _, value = cookie_of(first).partition("=")
        assert first.token not in value
        assert first.ask("/api/v1/overview", Cookie=f"amadou-console-{first.port}={value}")[0] != 401
        assert second.ask("/api/v1/overview", Cookie=f"amadou-console-{second.port}={value}")[0] == 401
    finally:
        for server in servers:
            server.stop()


def test_a_token_from_the_environment_is_not_shown(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("AMADOU_CONSOLE_TOKEN", "a-token-that-stays")
    Server("127.0.0.1", 0, list).stop()
    shown = capsys.readouterr().err
    assert re.fullmatch(r"console: http://127\.0\.0\.1:\d+/\n", shown)
    monkeypatch.setenv("AMADOU_CONSOLE_TOKEN", "short")
    with pytest.raises(AmadouError, match="AMADOU_CONSOLE_TOKEN must have at least 16"):
        Server("127.0.0.1", 0, list)


def test_in_a_log_of_json_lines_the_address_is_a_line_of_the_log(
    caplog: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture[str]
) -> None:
    with caplog.at_level("INFO", "amadou"):
        server = Server("127.0.0.1", 0, list)
    server.stop()
    assert [record.getMessage() for record in caplog.records] == [f"console: {server.url}"]
    assert capsys.readouterr().err == ""


def test_clients_that_send_half_a_request_do_not_keep_others_out() -> None:
    server = Server("127.0.0.1", 0, list, head_limit=0.2)
    browser = Browser(server)
    half = [socket.create_connection(("127.0.0.1", browser.port)) for _ in range(70)]
    try:
        for connection in half:
            connection.sendall(b"GET / HTTP/1.1\r\nHost: 127")
        for connection in half:
            connection.settimeout(10)
            while connection.recv(1000):
                pass
        assert browser.ask("/api/v1/overview")[0] == 401
    finally:
        for connection in half:
            connection.close()
        server.stop()


def test_half_a_request_after_a_complete_one_is_not_waited_for() -> None:
    server = Server("127.0.0.1", 0, list, head_limit=0.2)
    server._server.config.timeout_keep_alive = 0.2
    browser = Browser(server)
    try:
        with socket.create_connection(("127.0.0.1", browser.port)) as connection:
            connection.settimeout(10)
            connection.sendall(f"GET / HTTP/1.1\r\nHost: 127.0.0.1:{browser.port}\r\n\r\nGET / HT".encode())
            received = b""
            while piece := connection.recv(1000):
                received += piece
        assert received.startswith(b"HTTP/1.1 401")
    finally:
        server.stop()


def test_a_request_that_takes_too_long_fails() -> None:
    going_on = threading.Event()

    class Slow:
        def find(self, key: str, stage: str = "") -> None:
            going_on.wait(20)

    history = RunHistory(RunFacts.of(Run("abc", job_named("a"), "spark", None, state=Slow()), NOW))
    server = Server("127.0.0.1", 0, lambda: [history], time_limit=0.5)
    try:
        browser = Browser(server)
        status, _, text = browser.ask("/api/v1/state?key=x", Authorization=f"Bearer {browser.token}")
        assert (status, "this took longer than 0.5 seconds" in text) == (503, True)
        assert browser.document("overview")["job"] == "a"
    finally:
        going_on.set()
        server.stop()


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


def test_no_page_shows_a_secret() -> None:
    Secret("swordfish")

    class Knowing:
        def find(self, key: str, stage: str = "") -> Any:
            value = {"type": "str", "text": "'swordfish'", "expires": None, "next_timer": None}
            return {"key": key, "batch": 1, "state": {"x": value}, "timers": [], "held": {}, "hidden": []}

    console = Console()
    run = Run(
        "abc",
        job_named("a"),
        "spark",
        "/swordfish",
        description={**DESCRIPTION, "summary": "swordfish", "settings": {"on error": "swordfish"}},
        state=Knowing(),
        reproduce=lambda letter: "password = 'swordfish'",
    )
    console.amadou_run_started(run)
    try:
        found = attrs.evolve(letter("swordfish"), shown="swordfish", state={"x": "swordfish"})
        late = LateEventReport("dropped", "a", "swordfish", NOW, "swordfish", NOW)
        batch = report(0, counters={"swordfish": 1})
        console.amadou_batch_completed(run, attrs.evolve(batch, dead_letters=[found], late_events=[late]))
        console.amadou_batch_failed(run, FailedBatch(1, "swordfish", "swordfish", 0.1, NOW))
        for path in PATHS[:-1]:
            _, _, text = Browser(console).ask(
                path.replace("2-0", "0-0"), Authorization=f"Bearer {Browser(console).token}"
            )
            assert "swordfish" not in text
        for path in ("/letters/0-0", "/letters/0-0/test", "/state?key=x", "/pipeline", "/batches"):
            assert "***" in Browser(console).get(path)
    finally:
        console.amadou_run_ended(run, RunSummary("a"))


LIKE_OTHERS = [
    *("2025", "running", "null", "true", 'pä"ss\\', "0000", "***"),
    *("status", "counters", "points", "late", "events", "keying", "records", "state", "sources", "timers"),
]
"""Secrets that are also texts, numbers, and names of fields, charts, counts and stages of a batch."""


@pytest.mark.parametrize("secret", LIKE_OTHERS)
def test_a_secret_that_looks_like_something_else_is_hidden_in_texts_only(secret: str) -> None:
    console, run = Console(), Run("abc", job_named("a"), "spark", "/place")
    console.amadou_run_started(run)
    _revealing.clear()
    try:
        console.amadou_batch_completed(run, attrs.evolve(report(0), dead_letters=[letter("before")]))
        browser = Browser(console)
        paths = ("overview", "charts", "pipeline", "letters", "batches")
        before = {path: browser.document(path) for path in paths}
        Secret(secret)
        for path in paths:
            assert fields_of(browser.document(path)) == fields_of(before[path])
        found = attrs.evolve(letter(f"no {secret} here"), shown=secret, traceback=f"{secret}!")
        console.amadou_batch_completed(run, attrs.evolve(report(1), dead_letters=[found]))
        (shown,) = [each for each in browser.document("letters")["dead_letters"] if each["id"] == "1-0"]
        assert (shown["error"], shown["shown"], shown["traceback"]) == ("no *** here", "***", "***!")
        overview = browser.document("overview")
        assert (overview["status"], overview["engine"], overview["totals"]["counters"]) == ("running", "spark", {})
        assert datetime.fromisoformat(overview["started"])
        for page in ("/", "/letters", "/pipeline", "/batches", "/letters/1-0"):
            assert browser.get(page)
    finally:
        _revealing.clear()
        console.amadou_run_ended(run, RunSummary("a"))


def test_names_in_the_code_are_shown_even_if_a_secret_has_the_same_text() -> None:
    name = "orders"
    source = {"name": name, "connector": f"Source({name!r})", "bounded": True}
    port = {"name": name, "type": name, "sinks": [{"connector": name, "guarantee": name}]}
    description = read_job_document(
        {**DESCRIPTION, "handler": name, "specs": [], "sources": [source], "dependencies": [], "ports": [port]}
    )
    console = Console()
    run = Run("abc", job_named(name), "spark", "/place", description=description)
    console.amadou_run_started(run)
    try:
        Secret(name)
        counts = report(0, records={name: 1}, outputs={name: 2}, held={name: 3})
        found = attrs.evolve(letter("no"), callback=name, source=name, stage=name, shown=f"a record of {name}")
        late = LateEventReport("dropped", name, "'k'", NOW, name, NOW, name)
        batch = attrs.evolve(counts, callback_calls={name: 5}, dead_letters=[found], late_events=[late])
        console.amadou_batch_completed(run, batch)
        browser = Browser(console)
        totals = browser.document("overview")["totals"]
        assert [totals[kind] for kind in ("records", "outputs", "held")] == [{name: n} for n in range(1, 4)]
        assert browser.document("batches")["batches"][0]["callback_calls"] == {name: 5}
        pipeline = browser.document("pipeline")
        assert (pipeline["sources"].keys(), pipeline["ports"].keys()) == ({name}, {name})
        of_source, of_port = pipeline["description"]["sources"][0], pipeline["description"]["ports"][0]
        assert (of_source["name"], of_source["connector"]) == (name, "Source('***')")
        assert (of_port["name"], of_port["type"], of_port["sinks"][0]["connector"]) == (name, name, "***")
        letters = browser.document("letters")
        shown, event = letters["dead_letters"][0], letters["late_events"][0]
        assert (shown["callback"], shown["source"], shown["stage"]) == (name, name, name)
        assert (shown["shown"], event["source"], event["by"], event["value"]) == ("a record of ***", name, name, "***")
        for page in ("/", "/letters", "/pipeline", "/batches", "/letters/0-0"):
            assert browser.get(page)
    finally:
        console.amadou_run_ended(run, RunSummary("a"))


def fields_of(document: Any) -> Any:
    """Return the fields of a document, without values."""
    if isinstance(document, dict):
        return {name: fields_of(value) for name, value in document.items()}
    return [fields_of(each) for each in document] if isinstance(document, list) else None


def test_answers_are_bounded() -> None:
    console, run = Console(), Run("abc", job_named("a"), "spark", None)
    console.amadou_run_started(run)
    try:
        large = attrs.evolve(
            letter("x" * 2_000, b"x" * 16_384),
            traceback="x" * 10_000,
            shown="x" * 2_000,
            state={f"{spec}": "x" * 2_000 for spec in range(20)},
            timers=[(NOW, "x")] * 100,
        )
        late = LateEventReport("dropped", "a", "x" * 2_000, NOW, "x" * 2_000, NOW)
        for number in range(2_000):
            batch = report(number, counters={f"counter {each}": each for each in range(20)})
            console.amadou_batch_completed(run, attrs.evolve(batch, dead_letters=[large], late_events=[late]))
        browser = Browser(console)
        paths = ("/", "/letters", "/batches", "/api/v1/letters", "/api/v1/overview", "/api/v1/batches?limit=999999")
        assert {path: len(browser.get(path)) < 10_000_000 for path in paths} == dict.fromkeys(paths, True)
        assert len(browser.document("batches?limit=999999")["batches"]) == 1_000
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


def test_a_console_can_listen_to_other_machines(caplog: pytest.LogCaptureFixture) -> None:
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
