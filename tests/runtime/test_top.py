"""`amadou top`: the console's overview in the terminal."""

import json
import math
import os
import pty
import selectors
import signal
import socket
import subprocess
import sys
import time
import tracemalloc
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from io import StringIO
from threading import Event, Thread
from typing import Any, NamedTuple

import attrs
import pytest
import rich.console
from rich.cells import cell_len
from tests.plugins.test_console import job_named, report
from typer.testing import CliRunner, Result

from amadou import AmadouError
from amadou.plugins import PartitionReport, Run, RunSummary
from amadou_plugins.connectors import MemorySource
from amadou_plugins.console import Console
from amadou_runtime.command.cli import app
from amadou_runtime.command.console_client import ConsoleClient
from amadou_runtime.command.printable import printable
from amadou_runtime.command.sparkline import sparkline
from amadou_runtime.command.top_display import TopScreen
from amadou_runtime.command.top_view import read_view
from amadou_runtime.command.top_watch import watch

HOSTILE = "[bold]x[/bold]<script>\x1b[31m\x9b31m\u202e\n:smile:" + "long name " * 40
ENDED = "does not answer: the run may have ended; if not, check the address"
TWO_WIDTHS = pytest.mark.parametrize("width", [80, 160])
NOT_A_CONSOLE = "use the address that a run with --console printed"


class Served(NamedTuple):
    """A console that serves a run."""

    url: str
    console: Console
    run: Run


@pytest.fixture(autouse=True)
def terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    for name in ("AMADOU_CONSOLE", "FORCE_COLOR"):
        monkeypatch.delenv(name, raising=False)


@contextmanager
def served(name: str = "views", checkpoint: str = "/checkpoints/views", sources: int = 1) -> Iterator[Served]:
    """A console with a run after three batches."""
    console, job = Console(), job_named(name)
    job = attrs.evolve(job, sources={f"{name}{number}": MemorySource() for number in range(sources)})
    run = Run("abc", job, "spark", checkpoint, trigger="1 second", interval=timedelta(seconds=1))
    console.amadou_run_started(run)
    try:
        last = list(job.sources)[-1]
        for number in range(3):
            batch = report(number, events=10, keys=number, late=number, held={"x": 4})
            partitions = [attrs.evolve(each, source=last) for each in batch.partitions]
            console.amadou_batch_completed(run, attrs.evolve(batch, partitions=partitions, down={last: True}))
        assert console.url is not None
        yield Served(console.url, console, run)
    finally:
        console.amadou_run_ended(run, RunSummary(name))


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with served() as console:
        yield console.url


def top(*arguments: str) -> Result:
    return CliRunner().invoke(app, ["top", *arguments])


def shown(url: str, width: int, height: int | None = None) -> list[str]:
    """The lines of a screen."""
    console = rich.console.Console(file=StringIO(), width=width)
    options = console.options.update(height=height)
    lines = console.render_lines(TopScreen(read_view(ConsoleClient(url))), options)
    return ["".join(segment.text for segment in line) for line in lines]


@contextmanager
def server(status: int, body: str = "", **headers: str) -> Iterator[tuple[str, list[str]]]:
    """The address of a server that is not a console, and the paths that it is asked for."""
    asked = []

    class Answers(BaseHTTPRequestHandler):
        """Answers each request alike."""

        def do_GET(self) -> None:
            asked.append(self.path)
            self.send_response(status)
            for name, value in headers.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(body.encode())

        def log_message(self, format: str, *args: Any) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Answers) as listening:
        Thread(target=listening.serve_forever, args=(0.01,)).start()
        yield f"http://127.0.0.1:{listening.server_port}", asked
        listening.shutdown()


@TWO_WIDTHS
def test_the_overview_is_shown(width: int, url: str) -> None:
    lines = shown(url, width)
    assert len(lines) <= 24
    assert {cell_len(line) for line in lines} == {width}
    assert ("At most" in "".join(lines)) == (width == 160)
    text = " ".join(" ".join(lines).split())
    for part in (
        "views running since 20",
        "Engine spark Trigger 1 second Batches 3 Events 30",
        "Checkpoint /checkpoints/views",
        "Watermark 20",
        "Batch time 500 ms of 1.0 s",
        "Delay 2.0 s",
        "Watermark lag 5.0 s",
        "Keys 2 ",
        "Late events ",
        "Events held 4",
        "Last batch keying over all tasks 250 ms",
        "7 2.0 s 0 holds it back, down",
    ):
        assert part in text


def test_a_run_without_batches_is_shown() -> None:
    console, run = Console(), Run("abc", job_named("views"), "embedded", None)
    console.amadou_run_started(run)
    try:
        assert console.url is not None
        text = "\n".join(shown(console.url, 80))
    finally:
        console.amadou_run_ended(run, RunSummary("views"))
    for part in ("Trigger back to back", "Checkpoint none", "No batch has been completed."):
        assert part in text


def test_a_source_that_has_not_delivered_yet_is_shown_as_what_the_watermark_waits_for() -> None:
    console, run = Console(), Run("abc", job_named("views"), "spark", None)
    console.amadou_run_started(run)
    try:
        waits = PartitionReport("a", "", None, None, None, True)
        console.amadou_batch_completed(run, attrs.evolve(report(0), watermark=None, partitions=(waits,)))
        assert console.url is not None
        assert "waits for its first event" in shown(console.url, 120)[-1]
    finally:
        console.amadou_run_ended(run, RunSummary("views"))


@TWO_WIDTHS
def test_text_from_data_cannot_change_the_terminal(width: int) -> None:
    with served(HOSTILE, f"/{HOSTILE}") as (url, *_):
        lines, printed, document = shown(url, width), top(url).stdout, top(url, "--json").stdout
    assert len(lines) <= 24
    assert {cell_len(line) for line in lines} == {width}
    assert lines[0].startswith("[bold]x[/bold]<script>�[31m�31m��:sm")
    assert "… " in lines[0]
    assert "running since" in lines[0]
    assert "/[bold]x[/bold]<script>�[31m" in lines[2]
    assert lines[-1].startswith("[bold]x[/bo")
    assert lines[-1].endswith("  2.0 s     0  holds it back, down")
    for text in ("".join(lines), printed.replace("\n", ""), document.replace("\n", "")):
        assert text.isprintable()
    assert json.loads(document)["job"] == HOSTILE


def test_only_characters_that_move_or_hide_text_are_replaced() -> None:
    assert printable("naïve 日本 ▁ a\tb\x00\u2066c") == "naïve 日本 ▁ a�b��c"


def test_sources_that_hold_the_watermark_back_are_shown_where_not_all_fit() -> None:
    with served(sources=40) as (url, *_):
        low, high, printed = shown(url, 80, 24), shown(url, 80, 70), top(url).stdout
    assert [line.split()[0] for line in low[-5:]] == ["views39", "views0", "views1", "views2", "…"]
    assert "… and 36 more" in low[-1]
    assert [line.split()[0] for line in high if line.startswith("views")][1:] == [f"views{at}" for at in range(40)]
    assert "views38 " in printed


def test_the_error_of_a_failed_run_is_shown() -> None:
    with served() as (url, console, run):
        failed = attrs.evolve(run, id="def")
        console.amadou_run_started(failed)
        console.amadou_batch_completed(failed, report(0))
        error = AmadouError(f"line one\n\x1b[31m[red]line two {'long' * 30}\n" + "more\n" * 90)
        console.amadou_run_failed(failed, error)
        low, printed = "\n".join(shown(url, 80, 24)), top(url).stdout
    for text in (low, printed):
        assert "failed since" in text
        assert "AmadouError: line one" in text
        assert "�[31m[red]line two" in text
        assert "\nviews0 " in text
    assert printed.count("more\n") == 90


def test_a_narrow_terminal_cuts_lines(url: str) -> None:
    lines = shown(url, 50)
    assert len(lines) <= 24
    assert {cell_len(line) for line in lines} == {50}


def test_without_a_terminal_the_overview_is_printed_once(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for arguments in ((url,), (url, "--once")):
        result = top(*arguments)
        assert (result.exit_code, result.stderr) == (0, "")
        assert "views" in result.stdout
        assert max(map(cell_len, result.stdout.splitlines())) <= 80
    monkeypatch.setenv("AMADOU_CONSOLE", url)
    assert "Batch time" in top().stdout


def test_the_overview_is_printed_as_json(url: str) -> None:
    result = top(url, "--json")
    document = json.loads(result.stdout)
    assert (result.exit_code, document["job"], document["totals"]["events"]) == (0, "views", 30)


def test_a_wrong_token_is_an_error_that_says_where_the_right_one_is(url: str) -> None:
    for option in ("--once", "--json"):
        result = top(f"{url.partition('?')[0]}?token=swordfish", option)
        assert (result.exit_code, result.stdout) == (1, "")
        assert "does not accept the token: use the address that the run printed when it started" in result.stderr
        assert "swordfish" not in result.stderr


def test_a_run_that_has_ended_is_an_error() -> None:
    with served() as (url, *_):
        pass
    for option in ("--once", "--json"):
        result = top(url, option)
        assert (result.exit_code, result.stdout) == (1, "")
        assert ENDED in result.stderr
        assert len(result.stderr.splitlines()) == 1


@pytest.mark.parametrize("host", ["none.invalid", "a b", "a..b", "ä.invalid", "[::1]:1"])
def test_a_host_that_does_not_answer_is_an_error(host: str) -> None:
    result = top(f"http://{host}/?token=x")
    assert result.exit_code == 1
    assert ENDED in result.stderr
    assert len(result.stderr.splitlines()) == 1


@pytest.mark.parametrize(
    ("address", "why"),
    [
        ("http://?token=x", "this is not an address of a console"),
        ("http://127.0.0.1:x/?token=x", "this is not an address of a console"),
        ("http://[::1/?token=x", "this is not an address of a console"),
        ("http://user@127.0.0.1/?token=x", "this is not an address of a console"),
        ("http://\x1b31m/?token=x", "this is not an address of a console"),
        ("http://127.0.0.1:1/", "the address has no token"),
        ("http://127.0.0.1:1/?token=", "the address has no token"),
        ("http://127.0.0.1:1/?token=a%0d%0ab", "the address has no token"),
        ("http://127.0.0.1:1/?token=ä", "the address has no token"),
    ],
)
def test_an_address_in_another_form_is_a_usage_error(address: str, why: str) -> None:
    result = top(address)
    message = " ".join(result.stderr.replace("│", " ").split())
    assert result.exit_code == 2
    assert f"{why}: {NOT_A_CONSOLE}" in message


@pytest.mark.parametrize("place", ["127.0.0.1:1/?token=x", "nowhere/", "file:/nowhere"])
def test_a_checkpoint_that_does_not_exist_is_an_error(place: str) -> None:
    result = top(place)
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr.startswith(f"checkpoint {place}: it does not exist: correct the path")


@pytest.mark.parametrize("seconds", ["0", "-1", "nan", "inf", "1e9"])
def test_an_interval_out_of_range_is_a_usage_error(seconds: str, url: str) -> None:
    result = top(url, "--interval", seconds)
    assert result.exit_code == 2
    assert "the interval must be between 0.1" in result.stderr


@pytest.mark.parametrize(
    ("status", "body", "message"),
    [
        (200, "<html>", NOT_A_CONSOLE),
        (200, "[]", NOT_A_CONSOLE),
        (200, "{}", NOT_A_CONSOLE),
        (404, "\x1b[31m", NOT_A_CONSOLE),
        (421, "", "use the address that the run printed, and the same port on both sides of a tunnel"),
        (503, "", "cannot answer now: try again"),
    ],
)
def test_another_server_is_an_error_that_says_what_to_do(status: int, body: str, message: str) -> None:
    with server(status, body) as (origin, asked):
        result = top(f"{origin}/?token=swordfish")
    assert (result.exit_code, result.stdout) == (1, "")
    assert message in result.stderr
    assert len(result.stderr.splitlines()) == 1
    assert "swordfish" not in "".join(asked)


@pytest.mark.parametrize("begin", [b"HTTP/1.1 200 OK\r\n\r\n", b"HTTP/1.1 200 OK\r\nX: "])
def test_a_server_that_sends_byte_by_byte_is_an_error(begin: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("amadou_runtime.command.console_client._LONGEST", 0.5)

    def send(listening: socket.socket) -> None:
        connection, _ = listening.accept()
        with connection, suppress(OSError):
            connection.sendall(begin)
            while not is_over.wait(0.05):
                connection.sendall(b" ")

    is_over = Event()
    with socket.create_server(("127.0.0.1", 0)) as listening:
        Thread(target=send, args=(listening,)).start()
        result = top(f"http://127.0.0.1:{listening.getsockname()[1]}/?token=x")
        is_over.set()
    assert result.exit_code == 1
    assert f"{ENDED} (no complete answer within 0.5 s)" in result.stderr
    assert len(result.stderr.splitlines()) == 1


def test_a_long_answer_takes_little_memory() -> None:
    with server(200, f'{{"job": [{"{}," * 5_000_000}{{}}]}}') as (origin, _):
        client = ConsoleClient(f"{origin}/?token=x")
        tracemalloc.start()
        with pytest.raises(AmadouError, match=NOT_A_CONSOLE):
            client.overview()
        _, most = tracemalloc.get_traced_memory()
        tracemalloc.stop()
    assert most < 100 << 20


def test_the_token_is_not_sent_to_another_server(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with server(200) as (other, asked):
        with server(303, Location=f"{other}/api/v1/overview") as (origin, _):
            assert NOT_A_CONSOLE in top(f"{origin}/?token=swordfish").stderr
        for name in ("http_proxy", "all_proxy"):
            monkeypatch.setenv(name, other)
        assert top(url).exit_code == 0
    assert asked == []


@pytest.mark.parametrize(("seconds", "is_warning"), [(0.9, False), (1.1, True)])
def test_a_batch_that_takes_longer_than_the_trigger_is_marked(seconds: float, is_warning: bool, url: str) -> None:
    view = read_view(ConsoleClient(url))
    view = attrs.evolve(view, overview=attrs.evolve(view.overview, figures={"batch_seconds": seconds}))
    console = rich.console.Console(file=StringIO(), width=80, force_terminal=True, color_system="standard")
    with console.capture() as printed:
        console.print(TopScreen(view))
    (line,) = (each for each in printed.get().splitlines() if each.startswith("Batch time"))
    assert ("\x1b[33m" in line) == is_warning


@pytest.mark.parametrize(
    "wrong",
    [
        {"figures": {"keys": math.inf}},
        {"started": "soon"},
        {"sources": 3},
        {"last_batch": {}},
        {"totals": None},
        {"batches": "9" * 400},
    ],
    ids=lambda wrong: str(wrong)[:20],
)
def test_figures_in_another_form_are_an_error(wrong: dict[str, Any], url: str) -> None:
    with pytest.raises(AmadouError, match="the answer is not that of a console"):
        read_view(Moments(lambda: {**ConsoleClient(url).overview(), **wrong}))


class Moments:
    """Documents that are different each time."""

    def __init__(self, *moments: Callable[[], Mapping[str, Any]]) -> None:
        self._moments = iter(moments)

    def overview(self) -> Mapping[str, Any]:
        return next(self._moments)()

    def charts(self) -> Mapping[str, Any]:
        points = [[0, None], [30, 1.5]]
        return {"batch_seconds": {"title": "Batch time", "unit": "s", "points": points}}


def test_the_last_figures_stay_until_the_console_answers_again(url: str) -> None:
    client = ConsoleClient(url)
    frames: list[str] = []

    def lost() -> Mapping[str, Any]:
        raise AmadouError(f"the console {ENDED}")

    def later() -> Mapping[str, Any]:
        frames.append(stream.getvalue())
        return {**client.overview(), "batches": 77}

    def interrupted() -> Mapping[str, Any]:
        frames.append(stream.getvalue())
        raise KeyboardInterrupt

    stream = StringIO()
    console = rich.console.Console(file=stream, width=80, height=24, force_terminal=True, color_system=None)
    with pytest.raises(KeyboardInterrupt):
        watch(Moments(client.overview, lost, later, interrupted), 0.01, console)
    lost_frame, later_frame = frames[0].rsplit("\x1b[H", 1)[1], frames[1].rsplit("\x1b[H", 1)[1]
    assert f"the console {ENDED}" in lost_frame
    assert "The figures are those of 20" in " ".join(lost_frame.split())
    assert "Batches 3 " in lost_frame
    assert "Batches 77 " in later_frame
    assert ENDED not in later_frame


def test_ctrl_c_leaves_a_clean_terminal() -> None:
    command = [sys.executable, "-c", "from amadou_runtime.command.cli import app; app()", "top", "--interval=0.1"]
    screen, terminal = pty.openpty()
    with served() as (url, *_):
        environment = {**os.environ, "TERM": "xterm", "AMADOU_CONSOLE": url}
        process = subprocess.Popen(command, stdin=terminal, stdout=terminal, stderr=terminal, env=environment)
        os.close(terminal)
        text = read_until(screen, "holds it back")
    text += read_until(screen, "the run may have ended")
    process.send_signal(signal.SIGINT)
    text += read_until(screen, "\x1b[?1049l")
    assert process.wait(30) == 0
    os.close(screen)
    assert "\x1b[?1049h" in text
    assert text.rstrip().endswith("\x1b[?25h\x1b[?1049l")
    assert "Traceback" not in text


def read_until(screen: int, part: str) -> str:
    """Read from a terminal until a text is shown."""
    text, end = "", time.monotonic() + 30
    with selectors.DefaultSelector() as selector:
        selector.register(screen, selectors.EVENT_READ)
        while part not in text:
            assert selector.select(max(end - time.monotonic(), 0)), text
            text += os.read(screen, 65536).decode(errors="replace")
    return text


def test_the_command_needs_neither_the_console_extra_nor_pyspark(url: str) -> None:
    script = (
        "import sys\n"
        "for name in ('starlette', 'uvicorn', 'jinja2', 'markupsafe', 'pyspark'): sys.modules[name] = None\n"
        "from amadou_runtime.command.cli import app\n"
        f"app(['top', {url!r}])"
    )
    ran = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert (ran.returncode, ran.stderr) == (0, "")
    assert "holds it back" in ran.stdout


@pytest.mark.parametrize(
    ("values", "width", "chart"),
    [
        ([0, 1, 2, 3, 4, 5, 6, 7, 8], 20, "▁▂▃▄▅▆▇██"),
        ([0, None, 8, None, None, 4], 6, "▁ █  ▅"),
        ([0, 1, 0, None, None, None, 8, 4], 4, "▂▁ █"),
        ([0, 0], 2, "▁▁"),
        ([-3, -1], 2, "▁▁"),
        ([-3, 4], 2, "▁█"),
        ([None, None], 2, "  "),
        ([], 5, ""),
    ],
)
def test_a_sparkline_shows_the_highest_values_and_gaps(values: list[float | None], width: int, chart: str) -> None:
    assert sparkline(values, width) == chart
