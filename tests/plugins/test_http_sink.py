import gc
import json
import logging
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import datetime, timedelta, timezone
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import SimpleNamespace
from typing import Any

import attrs
import pytest

from amadou import Handler, Job, KeyedEvent, MemorySource, Param, Secret, SinkSpec, Subject
from amadou.errors import SinkError
from amadou.plugins import SinkBatch
from amadou_plugins.connectors import HttpSink, _http_sink
from amadou_runtime import run

START = datetime(2025, 1, 1, tzinfo=timezone.utc)
SHORT = timedelta(seconds=0.2)


class Numbers(Handler):
    numbers = SinkSpec(int)

    def key_event(self, record: int) -> KeyedEvent[int]:
        return KeyedEvent("a", START, record)

    def on_event(self, subject: Subject, event: KeyedEvent[int]) -> None:
        self.numbers.collect(subject, event.value)


@attrs.define
class Request:
    path: str
    headers: dict[str, str]
    values: list[Any]
    status: int
    client: Any = None

    @property
    def key(self) -> str:
        return self.headers["Idempotency-Key"]


@attrs.define
class Service:
    """An endpoint that gives each request the next of some answers, and 200 when there are no more.

    An answer is a status, a status with headers and a text, or a function that does what it likes with the connection.
    """

    url: str
    answers: list[Any] = attrs.field(factory=list)
    requests: list[Request] = attrs.field(factory=list)
    released: threading.Event = attrs.field(factory=threading.Event)

    def hang(self, request: BaseHTTPRequestHandler) -> None:
        """Take the request, and give no answer before the test ends."""
        self.released.wait()

    def hang_in_the_answer(self, request: BaseHTTPRequestHandler) -> None:
        request.send_response(500)
        request.send_header("Content-Length", "100")
        request.end_headers()
        request.wfile.write(b"half of")
        request.wfile.flush()
        self.released.wait()

    def drip(self, request: BaseHTTPRequestHandler, status: int, text: str) -> None:
        """Give an answer whose text comes slowly, and never to its end."""
        request.send_response(status)
        request.send_header("Content-Length", "1000")
        request.end_headers()
        with suppress(OSError):  # when the sink has closed the connection
            request.wfile.write(text.encode())
            while not self.released.wait(0.05):
                request.wfile.write(b".")
                request.wfile.flush()

    def drip_the_head(self, request: BaseHTTPRequestHandler) -> None:
        """Give an answer whose head comes slowly, and never to its end."""
        with suppress(OSError):
            request.wfile.write(b"HTTP/1.1 200 OK\r\nX-Long: ")
            while not self.released.wait(0.05):
                request.wfile.write(b".")
                request.wfile.flush()

    @property
    def values(self) -> list[Any]:
        """What a service has that takes each idempotency key once."""
        taken = {request.key: request.values for request in self.requests if request.status == 200}
        return [value for values in taken.values() for value in values]


@pytest.fixture
def service() -> Iterator[Service]:
    class Answering(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            answer = service.answers.pop(0) if service.answers else 200
            status, headers, text = (answer, {}, "") if isinstance(answer, int) else (200, {}, "")
            if isinstance(answer, tuple):
                status, headers, text = answer
            service.requests.append(Request(self.path, dict(self.headers), body, status, self.client_address))
            if callable(answer):
                service.requests[-1].status = 0
                self.close_connection = True
                return answer(self)
            self.send_response(status)
            for name, value in {"Content-Length": str(len(text)), **headers}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(text.encode())
            return None

        def log_message(self, *arguments: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Answering)
    service = Service(f"http://127.0.0.1:{server.server_port}/hook")
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield service
    service.released.set()
    server.shutdown()
    server.server_close()
    thread.join()


@pytest.fixture(autouse=True)
def warned() -> Iterator[None]:
    _http_sink._warned.clear()
    yield
    _http_sink._warned.clear()


@pytest.fixture
def pauses(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The pauses between attempts, which take no time: the sink's alone, since other threads sleep, too."""
    taken: list[float] = []
    monkeypatch.setattr(_http_sink, "time", SimpleNamespace(monotonic=time.monotonic, sleep=taken.append))
    return taken


def job(sink: HttpSink, *records: int) -> Job:
    return Job("numbers", Numbers(), {"in": MemorySource(records)}, {"numbers": sink})


def send(sink: HttpSink, *records: int) -> None:
    run(job(sink, *records), engine="embedded")


def commit(sink: HttpSink, *values: int, number: int = 0, run: str = "run1", port: str = "numbers") -> None:
    """One batch, as an engine does it."""
    sink.check(port, int)
    batch = SinkBatch(run, "job", port, number, sink.codec(int))
    writer = sink.open(batch, "00000")
    writer.write([batch.codec.encode(value) for value in values])
    part = writer.finish()
    sink.commit(batch, [] if part is None else [part])


def test_values_arrive_as_json_arrays_in_their_order(service: Service) -> None:
    send(HttpSink(service.url, max_values_per_request=2), 1, 2, 3, 4, 5)
    assert [request.values for request in service.requests] == [[1, 2], [3, 4], [5]]
    assert {request.path for request in service.requests} == {"/hook"}
    assert {request.headers["Content-Type"] for request in service.requests} == {"application/json"}


def test_a_batch_without_values_sends_nothing(service: Service) -> None:
    send(HttpSink(service.url))
    assert service.requests == []


def test_values_are_json_as_in_files(service: Service) -> None:
    sink = HttpSink(service.url)
    batch = SinkBatch("run1", "job", "times", 0, sink.codec(datetime))
    sink.commit(batch, [[batch.codec.encode(START)], [batch.codec.encode(START + timedelta(minutes=1))]])
    assert service.requests[0].values == ["2025-01-01T00:00:00Z", "2025-01-01T00:01:00Z"]


def test_nothing_is_sent_before_the_batch_is_complete(service: Service) -> None:
    sink = HttpSink(service.url)
    batch = SinkBatch("run1", "job", "numbers", 0, sink.codec(int))
    writer = sink.open(batch, "00000")
    writer.write([b"1"])
    writer.finish()
    assert service.requests == []


def test_each_request_has_the_headers_and_the_token(service: Service) -> None:
    headers = {"X-Team": "views", "X-Key": Secret("key-of-the-team"), "content-type": "application/vnd.views+json"}
    send(HttpSink(service.url + "?mode=a", headers=headers, token=Secret("token-of-the-team")), 1)
    (request,) = service.requests
    assert request.path == "/hook?mode=a"
    assert request.headers["X-Team"] == "views"
    assert request.headers["X-Key"] == "key-of-the-team"
    assert request.headers["content-type"] == "application/vnd.views+json"
    assert request.headers["Authorization"] == "Bearer token-of-the-team"
    assert "Content-Type" not in request.headers


def test_settings_may_be_parameters(service: Service) -> None:
    sink = HttpSink(
        Param("URL"),
        headers={"X-Key": Param("KEY", secret=True)},
        token=Param("TOKEN", secret=True),
        max_values_per_request=Param("MOST", type=int),
        timeout=Param("TIMEOUT", type=timedelta),
    )
    given = {"URL": service.url, "KEY": "a-key-of-params", "TOKEN": "a-token-of-params", "MOST": "1", "TIMEOUT": "5"}
    run(job(sink, 1, 2), engine="embedded", params=given)
    assert [request.values for request in service.requests] == [[1], [2]]
    assert service.requests[0].headers["X-Key"] == "a-key-of-params"
    assert service.requests[0].headers["Authorization"] == "Bearer a-token-of-params"


def test_the_http_sink_has_a_name_on_the_command_line(service: Service) -> None:
    from amadou_runtime.jobs.named_connectors import with_connectors

    text = f"http:{service.url}?token=token-of-the-line&max_values_per_request=2&timeout=5&give_up_after=0.5"
    named = with_connectors(job(HttpSink("http://host/"), 1, 2, 3), {}, {"numbers": [text]})
    assert named.sinks["numbers"] == HttpSink(
        service.url,
        token=Secret("token-of-the-line"),
        max_values_per_request=2,
        timeout=timedelta(seconds=5),
        give_up_after=timedelta(seconds=0.5),
    )
    run(named, engine="embedded")
    assert [request.values for request in service.requests] == [[1, 2], [3]]


@pytest.mark.parametrize("status", [500, 502, 503, 504, 429])
def test_a_service_that_fails_for_a_while_receives_everything(
    service: Service, pauses: list[float], status: int
) -> None:
    service.answers = [200, *[status] * 6, 200]
    send(HttpSink(service.url, max_values_per_request=2), 1, 2, 3, 4, 5)
    assert service.values == [1, 2, 3, 4, 5]
    assert [request.values for request in service.requests] == [[1, 2], *[[3, 4]] * 7, [5]]
    assert len({request.key for request in service.requests}) == 3
    assert all(0.1 * 2**attempt <= pause <= 0.2 * 2**attempt for attempt, pause in enumerate(pauses))


def test_pauses_grow_up_to_ten_seconds(service: Service, pauses: list[float]) -> None:
    service.answers = [500] * 12
    send(HttpSink(service.url), 1)
    assert len(pauses) == 12
    assert 5 <= pauses[-1] <= 10


def test_a_service_that_hangs_is_asked_again(service: Service) -> None:
    service.answers = [500, service.hang, service.hang_in_the_answer]
    send(HttpSink(service.url, timeout=SHORT), 1, 2)
    assert [request.values for request in service.requests] == [[1, 2]] * 4
    assert service.values == [1, 2]


@pytest.fixture
def released_at_last(service: Service) -> Iterator[None]:
    """Ends what a service drips, so that a sink that waits for it fails and does not hang."""
    timer = threading.Timer(3, service.released.set)
    timer.start()
    yield
    timer.cancel()


def test_the_sink_does_not_wait_for_the_end_of_a_successful_response(service: Service, released_at_last: None) -> None:
    service.answers = [lambda request: service.drip(request, 200, "taken")]
    began = time.monotonic()
    commit(HttpSink(service.url, timeout=SHORT, max_values_per_request=1), 1, 2)
    assert time.monotonic() - began < 1.5
    assert [request.values for request in service.requests] == [[1], [2]]


def test_a_response_whose_head_never_ends_is_no_response_and_its_connection_is_closed(
    service: Service, released_at_last: None, recwarn: pytest.WarningsRecorder
) -> None:
    service.answers = [service.drip_the_head] * 100
    began = time.monotonic()
    with pytest.raises(SinkError, match="no response"):
        commit(HttpSink(service.url, timeout=SHORT, give_up_after=3 * SHORT), 1)
    assert time.monotonic() - began < 2.5
    gc.collect()
    assert [str(warning.message) for warning in recwarn] == []


@pytest.mark.parametrize(("status", "message"), [(500, "Internal Server Error"), (400, "Bad Request")])
def test_the_sink_does_not_wait_for_the_end_of_the_text_of_an_error(
    service: Service, released_at_last: None, status: int, message: str
) -> None:
    token = Secret("Zq7-token-that-drips")
    service.answers = [lambda request: service.drip(request, status, "no access with Zq7-token-th")] * 100
    began = time.monotonic()
    with pytest.raises(SinkError, match=f"the response is {status} {message}: no access with[;.]") as caught:
        commit(HttpSink(service.url, token=token, timeout=SHORT, give_up_after=SHORT), 1)
    assert time.monotonic() - began < 2.5
    assert "Zq7" not in str(caught.value)


def test_requests_share_a_connection(service: Service) -> None:
    for length in (0, 5, 50_000):
        service.answers += [(200, {}, "x" * length)] * 2
    commit(HttpSink(service.url, max_values_per_request=1), *range(6))
    assert len(service.requests) == 6
    assert len({request.client for request in service.requests}) == 1


def test_a_connection_that_breaks_is_opened_again(service: Service) -> None:
    service.answers = [lambda request: None]
    send(HttpSink(service.url), 1)
    assert service.values == [1]
    assert len(service.requests) == 2


def test_the_sink_pauses_for_the_time_that_the_service_asks_for(service: Service, pauses: list[float]) -> None:
    service.answers = [
        (429, {"Retry-After": "7"}, ""),
        (503, {"Retry-After": "7"}, ""),
        (429, {"Retry-After": "x"}, ""),
    ]
    send(HttpSink(service.url), 1)
    assert pauses[:2] == [7, 7]
    assert pauses[2] < 1
    assert service.values == [1]


@pytest.mark.parametrize("asked", ["9" * 5000, "Mon, 01 Jan 99999999999999 00:00:00 GMT", "9" * 400])
def test_a_pause_that_no_number_can_hold_is_no_error(service: Service, pauses: list[float], asked: str) -> None:
    service.answers = [(503, {"Retry-After": asked}, "")]
    send(HttpSink(service.url, give_up_after=SHORT), 1)
    assert service.values == [1]


def test_a_pause_is_never_longer_than_the_time_to_give_up(service: Service, pauses: list[float]) -> None:
    service.answers = [(429, {"Retry-After": "3600"}, "")] * 1000
    with pytest.raises(SinkError, match=r"429 Too Many Requests; retried for 0\.2 s"):
        commit(HttpSink(service.url, give_up_after=SHORT), 1)
    assert max(pauses) <= 0.2


def test_a_service_that_hangs_ends_the_run_and_the_next_run_continues(service: Service) -> None:
    service.answers = [200, *[service.hang] * 50]
    sink = HttpSink(service.url, max_values_per_request=2, timeout=SHORT, give_up_after=SHORT)
    with pytest.raises(SinkError) as caught:
        commit(sink, 1, 2, 3, 4)
    assert str(caught.value) == (
        f"HttpSink({service.url}): no response within 0.2 s; retried for 0.2 s (give_up_after). Check the service, "
        "and restart the job from its checkpoint. The job resumes with this batch"
    )
    service.answers = []
    commit(sink, 1, 2, 3, 4)
    assert service.values == [1, 2, 3, 4]


def test_the_error_of_a_service_that_keeps_failing_has_its_response(service: Service, pauses: list[float]) -> None:
    service.answers = [(500, {}, "out of\n  memory" + " x" * 1000)] * 1000
    with pytest.raises(SinkError) as caught:
        commit(HttpSink(service.url, give_up_after=SHORT), 1)
    message = str(caught.value)
    assert "the response is 500 Internal Server Error: out of memory x x" in message
    assert len(message) < 700


def test_a_service_that_cannot_be_reached_is_an_error() -> None:
    with pytest.raises(SinkError, match=r"HttpSink\(http://127.0.0.1:1/hook\): no connection: .*Connection refused"):
        commit(HttpSink("http://127.0.0.1:1/hook", give_up_after=SHORT), 1)


@pytest.mark.parametrize(
    ("status", "message"),
    [
        (
            400,
            "the response is 400 Bad Request: no such field. "
            "Fix the problem that the response describes, and restart the job",
        ),
        (401, "401 Unauthorized: no such field. Check token= and headers=, and restart"),
        (404, "404 Not Found: no such field. Check the url, and restart"),
        (413, "Lower max_values_per_request, and restart"),
        (
            308,
            "308 Permanent Redirect: no such field. Set the url to the address that the response redirects to, "
            "and restart",
        ),
        (499, "the response is 499: no such field. Fix the problem"),
    ],
)
def test_a_response_that_no_further_request_can_change_ends_the_run_at_once(
    service: Service, status: int, message: str
) -> None:
    service.answers = [(status, {"Location": "/elsewhere"}, "no such field")]
    with pytest.raises(SinkError) as caught:
        send(HttpSink(service.url), 1)
    assert message in str(caught.value)
    assert len(service.requests) == 1


def test_a_reprocessed_batch_has_the_same_idempotency_keys(service: Service) -> None:
    sink = HttpSink(service.url, max_values_per_request=2)
    for _ in range(2):
        commit(sink, 1, 2, 3, number=7)
    keys = [request.key for request in service.requests]
    assert keys[:2] == keys[2:]
    assert [key.rpartition("-")[0] for key in keys[:2]] == ["run1-numbers-7-0", "run1-numbers-7-2"]
    assert service.values == [1, 2, 3]


def test_a_batch_that_is_reprocessed_in_another_order_loses_no_values(service: Service) -> None:
    sink = HttpSink(service.url, max_values_per_request=2)
    commit(sink, 1, 2, 3, number=7)
    commit(sink, 3, 1, 2, number=7)
    assert set(service.values) == {1, 2, 3}
    assert len({request.key for request in service.requests}) == 4


def test_other_batches_ports_and_runs_have_other_idempotency_keys(service: Service) -> None:
    sink = HttpSink(service.url)
    commit(sink, 1)
    commit(sink, 2, number=1)
    commit(sink, 3, run="run2")
    commit(sink, 4, port="größer/als")
    assert service.values == [1, 2, 3, 4]


def test_a_batch_that_is_reprocessed_in_other_requests_loses_no_values(service: Service) -> None:
    commit(HttpSink(service.url, max_values_per_request=2), 1, 2)
    service.answers = [200, 400]
    with pytest.raises(SinkError):
        commit(HttpSink(service.url, max_values_per_request=2), 1, 2, 3, 4, number=1)
    commit(HttpSink(service.url, max_values_per_request=4), 1, 2, 3, 4, number=1)
    assert set(service.values) == {1, 2, 3, 4}


def test_a_run_that_waits_logs_why_but_not_too_often(
    service: Service, pauses: list[float], caplog: pytest.LogCaptureFixture
) -> None:
    service.answers = [(503, {}, "in maintenance")] * 5
    commit(HttpSink(service.url), 1)
    (record,) = [record for record in caplog.records if record.name == "amadou"]
    assert record.levelno == logging.WARNING
    assert record.getMessage() == (
        f"HttpSink({service.url}): the response is 503 Service Unavailable: in maintenance; the run waits "
        "and retries for up to 300 s"
    )


def test_a_secret_in_a_long_response_is_hidden_entirely(service: Service) -> None:
    token = "Zq7-token-across-the-cut-of-answers"
    for before in range(270, 301, 5):
        service.answers = [(403, {}, f"{'x' * before}{token}")]
        with pytest.raises(SinkError) as caught:
            send(HttpSink(service.url, token=Secret(token)), 1)
        assert "Zq7" not in str(caught.value)


def test_secrets_are_neither_in_errors_nor_in_logs(
    service: Service, caplog: pytest.LogCaptureFixture, pauses: list[float]
) -> None:
    caplog.set_level(logging.DEBUG)
    token, header, path = "token-that-hides", "header-that-hides", "path-that-hides"
    host = service.url.removesuffix("/hook")
    sink = HttpSink(Secret(f"{host}/{path}?a=b"), token=Secret(token), headers={"X-Key": Secret(header)})
    assert repr(sink) == (
        "HttpSink(url=***, token=***, max_values_per_request=500, "
        "timeout=datetime.timedelta(seconds=10), give_up_after=datetime.timedelta(seconds=300))"
    )
    echo = f"no access with {token} and {header} to {host}/{path}?a=b"
    service.answers = [(500, {}, echo), (403, {}, echo)]
    with pytest.raises(SinkError) as caught:
        send(sink, 1)
    assert service.requests[0].path == f"/{path}?a=b"
    message = f"{caught.value} {caught.value!r} {caplog.text}"
    assert f"HttpSink({host}/***): the response is 403 Forbidden: no access with *** and *** to ***. " in message
    assert "503" not in message
    assert not [secret for secret in (token, header, path) if secret in message]


@pytest.mark.parametrize("url", ["hook", "ftp://host/hook", "http:///hook", "http://host:x/", "http://host:99999/"])
def test_an_unusable_url_is_an_error(url: str) -> None:
    with pytest.raises(SinkError, match="HttpSink needs a url such as https://host:port/path, not "):
        HttpSink(url)
    with pytest.raises(SinkError, match="not this one"):
        HttpSink(Secret(url))


@pytest.mark.parametrize("url", ["http://me:hidden-login@host/hook", "x://me:hidden-login@host", "http://a@b:x/"])
def test_a_login_in_the_url_is_an_error_that_does_not_show_it(url: str) -> None:
    with pytest.raises(SinkError, match="does not accept a login in its url") as caught:
        HttpSink(url)
    assert "hidden-login" not in str(caught.value)


def test_a_password_in_a_parameter_of_the_url_is_an_error_that_does_not_show_it() -> None:
    with pytest.raises(SinkError, match="the url contains a password") as caught:
        HttpSink("http://host/hook?api_key=hidden-key")
    assert "hidden-key" not in str(caught.value)
    HttpSink(Secret("http://host/hook?api_key=hidden-key"))


@pytest.mark.parametrize(
    ("settings", "why"),
    [
        ({"max_values_per_request": 0}, "max_values_per_request must be a positive integer, not 0"),
        ({"timeout": 5}, "timeout must be a positive timedelta, not 5"),
        ({"give_up_after": timedelta(0)}, "give_up_after must be a positive timedelta"),
        ({"token": "a-token-in-plain-text"}, "token must be a Secret, or a Param with secret=True"),
    ],
)
def test_an_unusable_setting_is_an_error(settings: dict[str, Any], why: str) -> None:
    with pytest.raises(SinkError, match=why) as caught:
        HttpSink("http://host/", **settings)
    assert "plain-text" not in str(caught.value)


@pytest.mark.parametrize(
    ("settings", "name"),
    [
        ({"token": Secret("token-with-a-line-feed\n")}, "Authorization"),
        ({"headers": {"X-Key": Secret("kęy-of-headers")}}, "X-Key"),
        ({"headers": {"X Key": "a"}}, "X Key"),
    ],
)
def test_a_header_that_cannot_be_sent_is_an_error_before_the_run(settings: dict[str, Any], name: str) -> None:
    with pytest.raises(
        SinkError, match=f"the header '{name}' cannot be sent: its name or value contains a line feed or "
    ) as caught:
        HttpSink("http://host/", **settings).check("numbers", int)
    assert "of-headers" not in str(caught.value)
    assert "line-feed" not in str(caught.value)


def test_a_missing_library_is_an_error_before_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    found: Callable[[str], Any] = lambda name: None  # noqa: E731
    monkeypatch.setattr(_http_sink.importlib.util, "find_spec", found)
    with pytest.raises(SinkError, match=r"HttpSink needs urllib3: run pip install 'amadou\[http\]'"):
        HttpSink("http://host/").check("numbers", int)


@pytest.mark.spark
def test_on_spark_a_service_that_fails_for_a_while_receives_everything(spark: Any, service: Service) -> None:
    service.answers = [500, 200]
    run(job(HttpSink(service.url, token=Secret("token-on-spark"), max_values_per_request=2), 1, 2, 3), engine="spark")
    assert service.values == [1, 2, 3]
    assert len({request.key for request in service.requests}) == 2
