import json
import subprocess
import sys
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path

import pytest
from tests.commands import amadou

from amadou.errors import CheckpointError
from amadou_runtime import run
from amadou_runtime._run import replay
from amadou_runtime.command.main import main
from amadou_runtime.jobs.load_job import load_job
from amadou_runtime.jobs.trigger import trigger_problem

VIEWS = '''
import json
from datetime import datetime, timedelta

from amadou import Handler, Job, KeyedEvent, Param, SinkSpec, ValueSpec
from amadou_plugins.connectors import JsonLinesSink, LinesSource
from amadou_runtime.command.main import main


class Totals(Handler):
    """Totals by channel."""

    total = ValueSpec(int, default=0)
    totals = SinkSpec(dict[str, int])

    def key_event(self, record):
        view = json.loads(record)
        return KeyedEvent(view["channel"], datetime.fromisoformat(view["at"]), view["views"])

    def on_event(self, subject, event):
        total = self.total.state_for(subject)
        total.value += event.value
        self.totals.collect(subject, {subject.key: total.value})


job = Job(
    "totals",
    handler=Totals(),
    sources={"views": LinesSource(Param("VIEWS", default="views.jsonl"))},
    sinks={"totals": JsonLinesSink("out")},
)

if __name__ == "__main__":
    main(job)
'''


@pytest.fixture(autouse=True)
def program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setenv("COLUMNS", "100")
    views(tmp_path / "views.jsonl", 1, 2)
    path = tmp_path / "cli_totals.py"
    path.write_text(VIEWS)
    yield path
    sys.modules.pop("cli_totals", None)


def views(path: Path, *counts: object) -> None:
    path.write_text(
        "".join(json.dumps({"channel": "a", "at": "2025-01-01T00:00:00Z", "views": count}) + "\n" for count in counts)
    )


def outputs(directory: str = "out") -> list[object]:
    return [json.loads(line) for path in sorted(Path(directory).iterdir()) for line in path.read_text().splitlines()]


def test_run_runs_a_job_and_prints_its_summary() -> None:
    result = amadou("run", "cli_totals.py:job", "--engine", "embedded")
    assert (result.exit_code, result.stdout) == (0, "")
    assert result.stderr.startswith("totals: 2 events in ")
    assert outputs() == [{"a": 1}, {"a": 3}]


def test_parameters_can_be_set_on_the_command_line(tmp_path: Path) -> None:
    views(tmp_path / "a=b.jsonl", 7)
    assert amadou("run", "cli_totals.py", "-p", "VIEWS=a=b.jsonl", "--engine", "embedded").exit_code == 0
    assert outputs() == [{"a": 7}]


@pytest.mark.parametrize("option", ["-p", "--param", "--conf"])
@pytest.mark.parametrize("text", ["VIEWS", "=views"])
def test_a_setting_without_a_name_or_value_is_a_usage_error(option: str, text: str) -> None:
    result = amadou("run", "cli_totals.py", option, text)
    assert result.exit_code == 2
    assert f"expects NAME=VALUE, not '{text}'" in result.stderr


@pytest.mark.parametrize(
    "options", [("--checkpoint", "state"), ("--trigger", "5 seconds"), ("--master", "local"), ("--conf", "a=b")]
)
def test_options_of_spark_are_usage_errors_on_the_embedded_engine(options: tuple[str, str]) -> None:
    result = amadou("run", "cli_totals.py", "--engine", "embedded", *options)
    assert result.exit_code == 2
    assert f"{options[0]} works only on the Spark engine" in result.stderr


EMPTY = "the path is empty: name a directory. If a variable contains the path, check that it is set"


@pytest.mark.parametrize("engine", ["spark", "embedded"])
@pytest.mark.parametrize("option", ["--checkpoint", "--from", "--savepoint", "--savepoint-dir"])
def test_options_of_run_refuse_empty_paths(option: str, engine: str) -> None:
    result = amadou("run", "cli_totals.py", "--engine", engine, option, "")
    if engine == "embedded" and option in ("--checkpoint", "--savepoint-dir"):
        assert (result.exit_code, "works only on the Spark engine" in result.stderr) == (2, True)
        return
    kind = "checkpoint" if option == "--checkpoint" else "savepoint"
    assert (result.exit_code, result.stderr) == (1, f"{kind} '': {EMPTY}\n")


@pytest.mark.parametrize(
    "arguments",
    [
        ("savepoint", "", "savepoints/new"),
        ("savepoint", "state", ""),
        ("savepoint", "--verify", ""),
        ("rescale", "", "--partitions", "2"),
        ("rescale", "state", "--partitions", "2", "--savepoint", ""),
        ("convert", "", "--to", "log"),
        ("state", "keys", ""),
        ("console", ""),
        ("rehearse", "", "cli_totals.py"),
        ("describe", "cli_totals.py", "--checkpoint", ""),
    ],
)
def test_commands_refuse_empty_paths(arguments: tuple[str, ...]) -> None:
    result = amadou(*arguments)
    assert (result.exit_code, result.stderr.partition(": ")[2]) == (1, f"{EMPTY}\n")


def test_a_replay_refuses_an_empty_path() -> None:
    with pytest.raises(CheckpointError, match="the path is empty"):
        replay(load_job("cli_totals.py"), [], checkpoint="")


def test_describe_says_that_it_reads_local_checkpoints_only() -> None:
    result = amadou("describe", "cli_totals.py", "--checkpoint", "s3a://b/x")
    assert (result.exit_code, result.stderr) == (
        1,
        "checkpoint s3a://b/x: amadou describe reads local checkpoints only: run amadou console s3a://b/x, which "
        "starts Spark\n",
    )


@pytest.mark.parametrize(
    ("trigger", "example"),
    [("5", "5 seconds"), ("30s", "30 seconds"), ("soon", "5 seconds"), ("seconds", "5 seconds"), ("", "5 seconds")],
)
def test_a_trigger_without_a_time_and_a_unit_is_a_usage_error(trigger: str, example: str) -> None:
    result = amadou("run", "cli_totals.py", "--trigger", trigger)
    shown_error = " ".join(result.stderr.replace("│", " ").split())
    assert result.exit_code == 2
    assert f'the trigger must be an interval with a unit, such as "{example}", or "available-now"' in shown_error
    with pytest.raises(ValueError, match=f'such as "{example}"'):
        run(load_job("cli_totals.py"), trigger=trigger)


@pytest.mark.parametrize("every", ["5", "soon", "5 seconds or so", "0 seconds", ""])
def test_an_interval_of_savepoints_without_a_time_and_a_unit_is_a_usage_error(every: str) -> None:
    result = amadou("run", "cli_totals.py", "--checkpoint", "state", "--savepoint-every", every)
    shown_error = " ".join(result.stderr.replace("│", " ").split())
    assert result.exit_code == 2
    assert f'an interval is a number with a unit, such as "90 seconds" or "1 hour", not {every!r}' in shown_error
    with pytest.raises(ValueError, match="an interval is a number with a unit"):
        run(load_job("cli_totals.py"), checkpoint="state", savepoint_every=every)


@pytest.mark.parametrize("trigger", [None, "available-now", "0 seconds", "1 hour", "1 minute 30 seconds", "5 SECONDS"])
def test_intervals_of_spark_are_valid_triggers(trigger: str | None) -> None:
    assert trigger_problem(trigger) is None


def test_once_and_trigger_exclude_each_other() -> None:
    result = amadou("run", "cli_totals.py", "--once", "--trigger", "5 seconds")
    assert result.exit_code == 2
    assert "--once and --trigger are mutually exclusive: use only one of them" in result.stderr


def test_flush_with_input_without_an_end_is_refused_before_spark_starts(tmp_path: Path) -> None:
    result = amadou("run", "cli_totals.py", "-p", f"VIEWS={tmp_path}", "--flush")
    assert (result.exit_code, isinstance(result.exception, SystemExit)) == (1, True)
    assert "--flush) needs a run that ends: use trigger=" in result.stderr


def test_errors_of_run_are_messages_without_a_traceback() -> None:
    for arguments, message in (
        (("none.py",), "cannot load none.py: none.py does not exist"),
        (("cli_totals.py", "-p", "VIEW=1"), "the job 'totals' has no parameter VIEW (its parameters: VIEWS)"),
        (("cli_totals.py", "-p", "VIEWS=none.jsonl"), "LinesSource('none.jsonl'): there is no file or directory"),
    ):
        result = amadou("run", *arguments, "--engine", "embedded")
        assert result.exit_code == 1
        assert result.stderr.startswith(message)
        assert "Traceback" not in result.stderr


def test_a_failing_callback_shows_the_users_traceback_first(tmp_path: Path, program: Path) -> None:
    views(tmp_path / "views.jsonl", 1, "many")
    result = amadou("run", "cli_totals.py", "--engine", "embedded")
    assert result.exit_code == 1
    lines = result.stderr.splitlines()
    assert lines[0] == "Traceback (most recent call last):"
    assert lines[1].startswith(f'  File "{program}"')
    assert "amadou_runtime" not in result.stderr
    assert "Totals.on_event failed: TypeError" in result.stderr
    assert "  key       'a'" in lines


def test_too_many_dead_letters_end_a_run_with_the_most_frequent_failures(tmp_path: Path, program: Path) -> None:
    views(tmp_path / "views.jsonl", 1, "two", None)
    options = 'on_error="dead_letter", max_dead_letters=1, sinks={"dead_letters": JsonLinesSink("dead_letters"), '
    program.write_text(VIEWS.replace("sinks={", options))
    result = amadou("run", "cli_totals.py", "--engine", "embedded")
    assert result.exit_code == 1
    assert "dead letters: 2, more than max_dead_letters=1" in result.stderr
    assert "2 × on_event: TypeError: unsupported operand" in result.stderr
    assert list(tmp_path.glob("dead_letters/*.jsonl")) == list(tmp_path.glob("out/*.jsonl")) == []


def test_a_job_that_is_run_as_a_program_shows_the_users_traceback_first(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    views(tmp_path / "views.jsonl", "many")
    job = load_job("cli_totals.py")
    with pytest.raises(SystemExit) as ended:
        main(job, ["--engine", "embedded"])
    assert ended.value.code == 1
    assert capsys.readouterr().err.startswith("Traceback (most recent call last):\n")


def test_a_job_that_is_run_as_a_program_has_the_options_of_run_without_the_target(
    capsys: pytest.CaptureFixture[str],
) -> None:
    job = load_job("cli_totals.py")
    main(job, ["-p", "VIEWS=views.jsonl", "--engine", "embedded"])
    assert outputs() == [{"a": 1}, {"a": 3}]
    main(job, ["--help"])
    shown = capsys.readouterr().out
    assert "Run the job totals until its input ends" in shown
    assert "TARGET" not in shown
    for option in ("--param", "--checkpoint", "--engine", "--once", "--trigger", "--master", "--conf"):
        assert option in shown


def test_a_job_file_can_be_run_as_a_program(program: Path) -> None:
    ran = subprocess.run([sys.executable, program, "--engine", "embedded"], capture_output=True, text=True, check=False)
    assert (ran.returncode, ran.stdout) == (0, "")
    assert ran.stderr.startswith("totals: 2 events")
    assert outputs() == [{"a": 1}, {"a": 3}]


def test_warnings_of_a_run_have_no_characters_that_a_terminal_obeys(program: Path) -> None:
    with program.open("a") as file:
        file.write("import logging\nlogging.getLogger('amadou').warning('no\\x1b[2J \\u202e\\nend')\n")
    command = [Path(sys.executable).with_name("amadou"), "run", program, "--engine", "embedded"]
    ran = subprocess.run(command, capture_output=True, text=True, check=True)
    assert ran.stderr.startswith("no\N{REPLACEMENT CHARACTER}[2J \N{REPLACEMENT CHARACTER}\nend\ntotals: 2 events")


def test_describe_shows_handler_ports_sources_and_parameters() -> None:
    result = amadou("describe", "cli_totals.py", "-p", "VIEWS=views.jsonl")
    assert result.exit_code == 0
    for text in (
        "totals",
        "cli_totals.Totals",
        "Totals by channel.",
        "dict[str, int]",
        "LinesSource('views.jsonl')",
        "'views.jsonl' (-p)",
    ):
        assert text in result.stdout
    assert amadou("describe", "none.py").exit_code == 1


def test_describe_needs_neither_pyspark_nor_java(program: Path) -> None:
    script = (
        "import sys; sys.modules['pyspark'] = None\n"
        "from amadou_runtime.command.cli import app\n"
        f"app(['describe', {str(program)!r}])"
    )
    ran = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False, env={"PATH": ""})
    assert (ran.returncode, ran.stderr) == (0, "")
    assert "cli_totals.Totals" in ran.stdout


def test_importing_the_runtime_does_not_import_libraries_of_the_command() -> None:
    script = (
        "import amadou_runtime, amadou_runtime.command.main, sys; print(sorted({'typer', 'rich'} & set(sys.modules)))"
    )
    ran = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert ran.stdout == "[]\n"


def test_version_prints_the_version() -> None:
    assert amadou("--version").stdout == f"amadou {version('amadou')}\n"


def test_help_shows_the_commands_with_examples() -> None:
    for arguments, texts in (
        (("--help",), ("describe", "run", "amadou run views.py --once")),
        (
            ("run", "--help"),
            ("TARGET", "--checkpoint", 'amadou run views.py -p VIEWS=in/ --checkpoint state/ --trigger "5'),
        ),
        (("describe", "--help"), ("TARGET", "amadou describe views.py:job -p VIEWS=in/")),
    ):
        result = amadou(*arguments)
        assert result.exit_code == 0
        for text in texts:
            assert text in result.stdout
