"""Valid savepoints, checkpoints, rows and dead letters, and the calls that read them, or keys and requests."""

import asyncio
import json
import os
import shlex
import shutil
from collections.abc import Callable, Mapping, Sequence
from contextlib import redirect_stderr, redirect_stdout
from functools import partial
from io import BytesIO, TextIOWrapper
from pathlib import Path, PurePosixPath
from typing import Any
from urllib.parse import unquote

import typer
from attrs import field, frozen
from tests.archives import unpack_archive
from tests.qualify.figures import ROOT

from amadou import AmadouError
from amadou_plugins.console._application import application
from amadou_runtime import TestRun, run
from amadou_runtime.command.cli import app
from amadou_runtime.command.console_command import stored_run
from amadou_runtime.jobs.load_job import load_job
from amadou_runtime.savepoint.job_savepoint import JobSavepoint

_ARCHIVES: Mapping[str, Mapping[str, str]] = {
    "kinds": {"groups/checkpoint": "groups"},
    "columns-tumbling": {"log/checkpoint": "log", "log-by-key/checkpoint": "by-key", "log/savepoint": "columns"},
}
"""Directories of stored fixtures, with their names here."""
_JOBS = {
    "kinds": """
from attrs import evolve
from amadou_plugins.connectors import JsonLinesSink
sinks = {port: JsonLinesSink(f"written/{port}") for port in ("out", "late_events", "dead_letters")}
job = evolve(kinds_job(".", "written", "groups", 4), sinks=sinks)
""",
    "stages": "job = stages_job('.', 'written', 4)",
    "columns": "job = columns_job('tumbling', 'nothing', 'written', 'log', 16)",
}
"""What makes the jobs of `tests/stored/jobs`."""
_RECORDS: Mapping[str, Sequence[object]] = {
    "events": [("a", 1, 1001), (("a", 1), 1, 1003), (b"\0\xff", 2, 1004), ("a", 30, 1005), ("a", 40, 1200)],
    "needed": [("a", 4, 1)],
    "right": [("a", 2, 1100)],
    "limits": [("low", 0, 5), ("high", 0, 50), ("low", 1, None)],
    "in": [["a1", "2025-01-01T00:00:05+00:00", 3], ["b2", "2025-01-01T00:00:25+00:00", 4]],
    "extra": [["group 1", "2025-01-01T00:00:30+00:00", 100]],
    "factors": [["all", "2025-01-01T00:00:00+00:00", 2]],
}
"""Records of the jobs by source. Those of `kinds` are as in Python, the others as in JSON."""
KEYS = {"kinds": "a", "columns": "k1", "stages": "a1"}
"""The savepoints, with a key of each."""
OWNERS = {"groups": "kinds", "log": "columns", "by-key": "columns"}
"""The checkpoints, with their jobs."""
_HOLDER = {"lease": "x", "host": "elsewhere", "processes": "x", "pid": 1, "started": "x", "since": 0, "renewed": 1}
"""A process that no longer uses its checkpoint; see `runs/lease.py`."""
PATHS = (
    *("/", "/state", "/pipeline", "/letters", "/batches", "/letters/0-0", "/letters/0-0/test", "/letters/0-0/test.py"),
    *(f"/api/v1/{name}" for name in ("overview", "charts", "pipeline", "state", "letters", "letters/0-0", "batches")),
    *("/static/console.css", "/favicon.ico"),
)
"""Paths of the console. The biggest keys are left out: another process finds them."""
_SCOPE: Mapping[str, Any] = {
    "type": "http",
    "http_version": "1.1",
    "method": "GET",
    "scheme": "http",
    "root_path": "",
    "headers": [(b"host", b"127.0.0.1")],
    "client": ("127.0.0.1", 1),
    "server": ("127.0.0.1", 80),
}
_OUTPUTS = ("new*", "out.*", "test_*", "written")
"""Where calls write."""


@frozen
class Call:
    """A command, or another call.

    :param text: what is shown of it
    """

    text: str
    make: Callable[[], object]


@frozen
class Input:
    """A call, with the files that are other ones for it.

    :param files: the content by name; `None` for a file that is missing
    """

    call: Call
    files: Mapping[str, bytes | None] = field(factory=dict)


class WrongEndError(Exception):
    """A command ended without a message, or printed a traceback, or the console answered that it has failed."""


class Artefacts:
    """A directory with a valid artefact of each kind. It becomes the working directory."""

    def __init__(self, directory: Path) -> None:
        directory.mkdir()
        os.chdir(directory)
        Path("nothing", "in", "in").mkdir(parents=True)
        for source, records in _RECORDS.items():
            Path("in", source).mkdir(parents=True)
            shown = repr if type(records[0]) is tuple else json.dumps
            Path("in", source, "1.jsonl").write_text("".join(f"{shown(each)}\n" for each in records))
        for name, made in _JOBS.items():
            _job(name).write_text(f"from tests.stored.jobs.{name} import {name}_job\n{made}\n")
        for name in ("kinds", "stages"):
            run(load_job(str(_job(name))), engine="embedded", to_savepoint=name)
        for name, directories in _ARCHIVES.items():
            _unpack(name, directories)
        for checkpoint in OWNERS:
            Path(checkpoint, "run.json").write_text(json.dumps(_HOLDER))
        for suffix in ("jsonl", "parquet"):
            command("state", "export", "kinds", f"rows.{suffix}").make()
        (letters,) = Path("groups", "dead_letters").glob("*.jsonl")
        shutil.copy(letters, "letters.jsonl")
        shutil.rmtree("written")
        self.files = {str(path): path.read_bytes() for path in sorted(Path().rglob("*")) if path.is_file()}
        self._run = self._shown = stored_run("groups", str(_job("kinds")))
        self._console = application(lambda: [self._shown.history()], acts=False, time_limit=30)
        self._loop = asyncio.new_event_loop()

    def named(self, *patterns: str) -> list[str]:
        """Return the names of the files that match one of some patterns."""
        return [name for name in self.files if any(PurePosixPath(name).match(pattern) for pattern in patterns)]

    def make(self, given: Input) -> None:
        """Write the files of an input, make its call, and put everything back."""
        try:
            for name, content in given.files.items():
                Path(name).unlink() if content is None else Path(name).write_bytes(content)
            given.call.make()
        finally:
            for name in given.files:
                Path(name).write_bytes(self.files[name])
            for path in (path for pattern in _OUTPUTS for path in Path().glob(pattern)):
                shutil.rmtree(path) if path.is_dir() else path.unlink()

    def request(self, path: str, query: str) -> Call:
        """Return a request to the console of a checkpoint that stays as it is."""
        return Call(f"GET {path}?{query}", partial(self._get, path, query))

    def console(self, checkpoint: str, path: str) -> Call:
        """Return a request to a new console of a checkpoint."""

        def make() -> None:
            self._shown = stored_run(checkpoint, str(_job(OWNERS[checkpoint])))
            try:
                self._get(path, "key=a")
            finally:
                self._shown = self._run

        return Call(f"amadou console {checkpoint}, GET {path}", make)

    def _get(self, path: str, query: str) -> None:
        scope = {**_SCOPE, "path": unquote(path), "raw_path": path.encode(), "query_string": query.encode()}
        received = iter([{"type": "http.request", "body": b"", "more_body": False}])
        statuses: list[int] = []

        async def receive() -> dict[str, Any]:
            return next(received, {"type": "http.disconnect"})

        async def send(message: Any) -> None:
            statuses.append(message.get("status", 0))

        self._loop.run_until_complete(self._console(scope, receive, send))
        if statuses[0] == 500:
            raise WrongEndError("the console answered with the status 500")


def _job(name: str) -> Path:
    return Path(f"{name}_job.py")


def _unpack(archive: str, directories: Mapping[str, str]) -> None:
    unpack_archive(ROOT / "tests" / "stored" / "checkpoints-4" / f"{archive}.tar.xz", Path("unpacked"))
    for directory, name in directories.items():
        shutil.move(f"unpacked/{directory}", name)
    shutil.rmtree("unpacked")


# Calls

_command = typer.main.get_command(app)


def command(*words: str) -> Call:
    """Return a call of the command `amadou`."""
    return Call(f"amadou {shlex.join(words)}", partial(_run_command, words))


def _run_command(words: Sequence[str]) -> None:
    output = TextIOWrapper(BytesIO(), "utf-8", write_through=True)
    messages = TextIOWrapper(BytesIO(), "utf-8", errors="backslashreplace", write_through=True)
    with redirect_stdout(output), redirect_stderr(messages):
        try:
            _command.main(args=list(words), prog_name="amadou")
        except SystemExit as ended:
            _check_end(ended, output.buffer.getvalue() + messages.buffer.getvalue())


def _check_end(ended: SystemExit, printed: bytes) -> None:
    if cause(ended, MemoryError):
        raise ended
    if b"Traceback (most recent call last)" in printed and not cause(ended, AmadouError):
        raise WrongEndError(printed.decode())  # an amadou error may have the traceback of a callback
    if ended.code and not printed.strip():
        raise WrongEndError(f"status {ended.code} without a message")


def cause(error: BaseException | None, kind: type[BaseException]) -> BaseException | None:
    """Return the error of a kind that an error is, or that has caused it; `None` if there is none."""
    while error is not None and not isinstance(error, kind):
        error = error.__cause__ or error.__context__
    return error


def starts(name: str) -> list[Call]:
    """Return what starts from a savepoint."""
    target = str(_job(name))

    def start(*, runs: bool) -> None:
        with TestRun(load_job(target), savepoint=name, engine="embedded") as test_run:
            if runs:
                test_run.run(flush=True)

    return [
        Call(f"TestRun(job, savepoint={name!r})", partial(start, runs=False)),
        Call(f"TestRun(job, savepoint={name!r}).run(flush=True)", partial(start, runs=True)),
        command("run", target, "--engine", "embedded", "--from", name),
        command("rehearse", name, target),
    ]


def savepoint_calls(name: str, stage: str) -> list[Call]:
    """Return what reads a savepoint.

    :param stage: the name of a stage; empty for a job with one handler
    """
    key, place = KEYS[name], [name, *(["--stage", stage] if stage else [])]
    target, job = str(_job(name)), ["--job", str(_job(name))]
    return [
        *starts(name),
        Call(f"JobSavepoint({name!r}).verify()", lambda: JobSavepoint(name).verify()),
        command("savepoint", "--verify", name),
        command("savepoint", name, "new", "--as-stage", "x"),
        command("state", "keys", *place),
        command("state", "keys", *place, "--json", "--oldest", "3"),
        command("state", "show", *place, key),
        command("state", "show", *place, key, "--json"),
        command("state", "show", *place, key, *job),
        command("state", "show", *place, "('a', 1)", *job),
        command("state", "export", *place, "out.jsonl"),
        command("state", "export", *place, "out.parquet", *job),
        command("state", "import", "rows.jsonl", "new", "--into", *place),
        command("reproduce", "--key", key, name, target, *place[1:], "--output", "test_key.py"),
    ]


def checkpoint_calls(name: str, artefacts: Artefacts) -> list[Call]:
    """Return what reads a checkpoint."""
    owner = OWNERS[name]
    key, target = KEYS[owner], str(_job(owner))
    return [
        command("state", "keys", name, "--json", "--biggest", "3"),
        command("state", "show", name, key),
        command("state", "show", name, key, "--job", target),
        command("state", "history", name, key, "--job", target),
        command("state", "history", name, key, "--json"),
        command("state", "export", name, "out.jsonl", "--job", target),
        command("reproduce", "--key", key, name, target, "--output", "test_key.py"),
        command("describe", target, "--checkpoint", name),
        *(artefacts.console(name, path) for path in ("/", "/state", "/pipeline", "/letters", "/batches")),
    ]


def row_calls(file: str) -> list[Call]:
    """Return what reads rows."""
    words, job = ("state", "import", file, "new"), ("--job", str(_job("kinds")))
    return [command(*words, "--into", "kinds"), command(*words, *job), command(*words, "--into", "kinds", *job)]


def letter_calls() -> list[Call]:
    """Return what reads dead letters."""
    words = ("reproduce", "letters.jsonl", "--output", "test_letters.py")
    with_job = (*words, "--job", str(_job("kinds")))
    return [command(*with_job), command(*with_job, "--line", "1"), command(*words)]


def key_calls(text: str) -> list[Call]:
    """Return what reads a key from the command line."""
    target = str(_job("kinds"))
    return [
        command("state", "show", "kinds", text),
        command("state", "show", "kinds", text, "--json", "--job", target),
        command("state", "show", "groups", text),
        command("state", "history", "groups", text),
        command("state", "keys", "kinds", "--prefix", text),
        command("state", "export", "kinds", "out.jsonl", "--key", text),
        command("reproduce", "--key", text, "kinds", target, "--output", "test_key.py"),
        command("reproduce", "--key", text, "kinds", target),
    ]


def all_calls(artefacts: Artefacts) -> list[Call]:
    """Return calls with what is valid, of each kind."""
    of_savepoints = [call for name in KEYS for call in savepoint_calls(name, "totals" if name == "stages" else "")]
    of_checkpoints = [call for name in OWNERS for call in checkpoint_calls(name, artefacts)]
    of_rows = [*row_calls("rows.jsonl"), *row_calls("rows.parquet")]
    of_console = [artefacts.request(path, "key=a") for path in PATHS]
    return [*of_savepoints, *of_checkpoints, *of_rows, *letter_calls(), *key_calls("a"), *of_console]
