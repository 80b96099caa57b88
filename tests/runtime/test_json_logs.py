"""`--log-format json`: each line on standard error is a JSON object."""

import json
import logging
import os
import re
import subprocess
import sys
from datetime import datetime, timedelta, timezone
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest

from amadou import FromPort, Handler, Job, KeyedEvent, MemorySource, Secret, SinkSpec, Stage
from amadou._connectors import secret as _secret
from amadou.errors import SinkError
from amadou.plugins import Sink
from amadou_runtime import run as run_job
from amadou_runtime.formats.json_logs import JsonFormatter, log_context
from amadou_runtime.jobs.stages import errors_of_stage
from amadou_runtime.spark.session import log_options

JOB = """
    import logging
    import warnings
    from datetime import datetime, timezone

    from amadou import Handler, Job, KeyedEvent, Param
    from amadou_plugins.connectors import LinesSource
    from amadou_runtime import main

    logging.basicConfig(format="set by the job file: %(message)s")


    class Words(Handler):
        password = Param("PASSWORD", secret=True)

        def key_event(self, record):
            logging.getLogger("words").warning("%s, %s", record.decode(), self.password.reveal())
            return KeyedEvent("all", datetime(2025, 1, 1, tzinfo=timezone.utc), record.decode())

        def on_event(self, subject, event):
            if event.value == "warn":
                warnings.warn("take care", stacklevel=1)
            if event.value == "fail":
                raise ValueError("asked to fail")


    job = Job("words", Words(), {"words": LinesSource(Param("WORDS"))}, {})
    if __name__ == "__main__":
        main(job)
    """


@pytest.fixture
def run(tmp_path: Path) -> Any:
    """Runs the job on the embedded engine with these words."""
    (tmp_path / "words.py").write_text(dedent(JOB))
    (tmp_path / "in").mkdir()

    def run(*words: str, status: int = 0, **environment: str) -> list[dict[str, Any]]:
        (tmp_path / "in" / "words").write_text("".join(f"{word}\n" for word in words))
        options = ["--engine", "embedded", "-p", "WORDS=in", "-p", "PASSWORD=sesame-open"]
        ended = subprocess.run(
            [sys.executable, "words.py", *options],
            cwd=tmp_path,
            env={**os.environ, "AMADOU_LOG_FORMAT": "json", **environment},
            capture_output=True,
            text=True,
            check=False,
        )
        assert ended.returncode == status, ended.stderr
        return [json.loads(line) for line in ended.stderr.splitlines()]

    return run


def test_log_records_warnings_and_the_summary_are_json_lines(run: Any) -> None:
    begun = datetime.now(timezone.utc) - timedelta(seconds=1)
    mine, warning, summary = run("warn")
    assert {mine["job"], warning["job"], summary["job"]} == {"words"}
    assert (mine["batch"], warning["batch"], "batch" in summary) == (0, 0, False)
    assert (mine["level"], mine["logger"], mine["message"]) == ("WARNING", "words", "warn, ***")
    assert begun < datetime.fromisoformat(mine["time"].replace("Z", "+00:00")) < datetime.now(timezone.utc)
    assert (warning["logger"], "take care" in warning["message"]) == ("py.warnings", True)
    assert (summary["level"], summary["logger"]) == ("INFO", "amadou")
    assert summary["message"].startswith("words: 1 events in 2 batches")
    assert (summary["batches"], summary["counts"]["events"]) == (2, 1)


def test_the_json_line_for_an_error_of_a_callback_has_type_and_traceback(run: Any) -> None:
    error = run("fail", status=1)[-1]
    assert (error["level"], error["error"]["type"]) == ("ERROR", "CallbackError")
    assert (error["job"], error["batch"], "stage" in error) == ("words", 0, False)
    assert error["message"].startswith("Words.on_event failed: ValueError: asked to fail\n")
    assert error["error"]["traceback"].startswith("Traceback (most recent call last):\n")
    assert error["error"]["traceback"].endswith("\nValueError: asked to fail")


def test_the_error_of_a_job_that_cannot_be_loaded_is_a_json_line(tmp_path: Path) -> None:
    command = [sys.executable, "-c", "from amadou_runtime.command.cli import app; app()", "run", "nowhere.py"]
    ended = subprocess.run(
        [*command, "--log-format", "json"], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert ended.returncode == 1
    error = json.loads(ended.stderr)
    assert (error["job"], error["error"]["type"]) == ("nowhere.py", "LoadError")


def test_an_uncaught_error_is_a_json_line(tmp_path: Path) -> None:
    program = "from amadou_runtime.formats.json_logs import log_as_json; log_as_json('mine'); 1 / 0"
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert ended.returncode == 1
    error = json.loads(ended.stderr)
    assert (error["level"], error["job"], error["error"]["type"]) == ("CRITICAL", "mine", "ZeroDivisionError")
    assert error["message"] == "ZeroDivisionError: division by zero"


def test_a_json_line_has_the_batch_and_the_stage_and_hides_secrets() -> None:
    Secret("sesame-open")
    record = logging.LogRecord("amadou", logging.WARNING, "", 0, "the password is %s", ("sesame-open",), None)
    with log_context(batch=7), errors_of_stage("views"):
        line = json.loads(JsonFormatter("shop").format(record))
    assert (line["job"], line["batch"], line["stage"]) == ("shop", 7, "views")
    assert line["message"] == "the password is ***"
    assert not {"batch", "stage"} & json.loads(JsonFormatter("shop").format(record)).keys()
    record.fields = {"tried": {1: ["as sesame-open"], "sesame-open": None}}
    assert json.loads(JsonFormatter("shop").format(record))["tried"] == {"1": ["as ***"], "***": None}


@pytest.mark.parametrize("secret", ["-11-", "2026", "INFO", "amadou", "time", "message", "batch", "shown"])
def test_a_secret_leaves_the_form_of_a_json_line_as_it_is(secret: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_secret, "_revealing", set())
    record = logging.LogRecord("amadou", logging.INFO, "", 0, "the password is %s", (secret,), None)
    record.created, record.fields = 1_793_000_000, {"shown": [secret]}
    before = json.loads(JsonFormatter("shop").format(record))
    Secret(secret)
    after = json.loads(JsonFormatter("shop").format(record))
    assert after == {**before, "message": "the password is ***".replace(secret, "***"), "shown": ["***"]}


class Passing(Handler):
    passed = SinkSpec(str)

    def key_event(self, record: str) -> KeyedEvent[str]:
        return KeyedEvent("all", datetime(2025, 1, 1, tzinfo=timezone.utc), record)

    def on_event(self, subject: Any, event: Any) -> None:
        self.passed.collect(subject, event.value)


class FullSink(Sink):
    def open(self, batch: Any, part: str) -> Any:
        raise SinkError("the disk is full")


def test_the_json_line_for_an_error_that_ends_a_batch_has_the_batch_and_the_stage() -> None:
    stages = {
        "first": Stage(Passing(), {"words": MemorySource(["one"])}, {}),
        "second": Stage(Passing(), {"words": FromPort("first", "passed")}, {"passed": FullSink()}),
    }
    with pytest.raises(SinkError) as raised:
        run_job(Job("shop", stages=stages), engine="embedded")
    line = line_of("", error=raised.value)
    assert (line["job"], line["batch"], line["stage"]) == ("shop", 0, "second")


def line_of(message: Any, *arguments: Any, error: BaseException | None = None, **attributes: Any) -> dict[str, Any]:
    """Log a record, and return the line."""
    info = None if error is None else (type(error), error, error.__traceback__)
    record = logging.LogRecord("amadou", logging.WARNING, "words.py", 7, message, arguments, info)
    vars(record).update(attributes)
    line = JsonFormatter("shop").format(record)
    assert "\n" not in line
    fields: dict[str, Any] = json.loads(line)
    return fields


def test_json_lines_escape_text_that_utf8_cannot_encode() -> None:
    line = line_of("no file %s", "in/\udcff.txt", error=OSError("\udcff"), name="\udcff")
    assert (line["message"], line["logger"]) == ("no file in/\\udcff.txt", "\\udcff")
    assert line["error"]["traceback"] == "OSError: \\udcff\n"


def test_a_json_line_can_name_a_file_whose_name_utf8_cannot_encode(tmp_path: Path) -> None:
    command = [sys.executable, "-c", "from amadou_runtime.command.cli import app; app()", "run", b"\xff.py"]
    ended = subprocess.run([*command, "--log-format", "json"], cwd=tmp_path, capture_output=True, check=False)
    error = json.loads(ended.stderr)
    assert (error["job"], error["error"]["type"]) == ("\\udcff.py", "LoadError")
    assert "cannot load \\udcff.py" in error["message"]


def test_json_lines_have_text_for_values_that_json_cannot_represent() -> None:
    class Odd:
        def __repr__(self) -> str:
            return "Odd(sesame-open)"

    Secret("sesame-open")
    counts = {1: 2, "odd": Odd()}
    line = line_of("done", fields={"counts": counts, "by_pair": {("a", "b"): 1}, "big": 2**70, "text": "sesame-open"})
    assert line["counts"] == {"1": 2, "odd": "Odd(***)"}
    assert (line["by_pair"], line["big"], line["text"]) == ("{('a', 'b'): 1}", str(2**70), "***")
    assert line_of("done", fields=["mine"])["message"] == "done"


def test_the_json_line_for_a_message_with_wrong_arguments_has_no_arguments() -> None:
    Secret("sesame-open")
    line = line_of("%d words, as in sesame-open", "sesame-open")
    assert line["message"] == "%d words, as in ***"
    assert line["format_error"].startswith("words.py:7: TypeError: %d format: a ")
    assert "sesame-open" not in str(line)


def test_uncaught_errors_of_threads_and_finalizers_are_json_lines() -> None:
    program = """
        import threading
        from amadou import Secret
        from amadou_runtime.formats.json_logs import log_as_json

        class Broken:
            def __repr__(self):
                return "Broken(sesame-open)"

            def __del__(self):
                raise ValueError("sesame-open")

        def fail():
            1 / 0

        log_as_json("mine")
        Secret("sesame-open")
        for target in (exit, fail):
            thread = threading.Thread(target=target, name="refresh")
            thread.start()
            thread.join()
        Broken()
        """
    ended = subprocess.run([sys.executable, "-c", dedent(program)], capture_output=True, text=True, check=False)
    assert ended.returncode == 0
    of_thread, of_finalizer = (json.loads(line) for line in ended.stderr.splitlines())
    assert (of_thread["level"], of_thread["job"]) == ("ERROR", "mine")
    assert of_thread["message"] == "ZeroDivisionError: division by zero in the thread refresh"
    assert (of_thread["error"]["type"], of_finalizer["error"]["type"]) == ("ZeroDivisionError", "ValueError")
    ignored = "Exception ignored while calling deallocator" if sys.version_info >= (3, 14) else "Exception ignored in:"
    place = rf"{ignored} <function Broken\.__del__ at \w+>"
    assert re.fullmatch(rf"ValueError: \*\*\* \({place}\)", of_finalizer["message"])
    assert "sesame-open" not in ended.stderr


def test_spark_logs_text_if_it_cannot_log_json_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    pyspark = pytest.importorskip("pyspark")
    monkeypatch.setattr(pyspark, "__version__", "4.0.0")
    assert log_options("the shop", as_json=True).startswith("-Damadou.job='the shop' -Dlog4j2.configurationFile=file:")
    assert log_options("the shop", as_json=True).endswith("/log4j2-json.properties")
    text = log_options("the shop", as_json=False)
    assert text.endswith("/log4j2.properties")
    monkeypatch.setattr(pyspark, "__version__", "3.5.8")
    assert log_options("the shop", as_json=True) == text
