"""`amadou reproduce` writes tests that fail with the errors of dead letters, and pass once the handler is fixed."""

import base64
import json
import os
import re
import shutil
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.commands import amadou

pytest_plugins = ["pytester"]

JOB = '''
import enum
from datetime import datetime, timedelta, timezone

from attrs import frozen

from amadou import Handler, Job, KeyedEvent, ListSpec, MapSpec, MemorySource, SinkSpec, ValueSpec
from amadou_plugins.connectors import JsonLinesSink, LinesSource

NOON = datetime(2025, 1, 1, 12, tzinfo=timezone.utc)


class Color(enum.Enum):
    RED = "red"


@frozen
class Paint:
    color: Color
    since: datetime


class Fence(Handler):
    """Boards are painted, until one breaks."""

    paint = ValueSpec(Paint)
    boards = MapSpec(int, str)
    times = ListSpec(datetime, ttl=timedelta(hours=1))
    painted = SinkSpec(str)

    def key_event(self, record):
        key, second, board = record.decode().split(",")
        return KeyedEvent((key, 1), NOON + timedelta(seconds=int(second)), int(board))

    def on_event(self, subject, event):
        boards = self.boards.state_for(subject)
        if event.value == 9 and len(boards) == 2:
            raise ValueError(f"the board {event.value} is broken")
        boards[event.value] = "painted"
        self.paint.state_for(subject).value = Paint(Color.RED, event.timestamp)
        self.times.state_for(subject).append(event.timestamp)
        subject.set_timer(event.timestamp + timedelta(seconds=5), "dry")

    def on_timer_expired(self, subject, timestamp):
        if self.paint.state_for(subject).value.since == NOON + timedelta(seconds=2):
            raise KeyError(subject.timer_tag)


job = Job(
    "the fence",
    Fence(),
    {"boards": LinesSource("boards.txt")},
    {"painted": JsonLinesSink("out"), "dead_letters": JsonLinesSink("dead_letters")},
    on_error="dead_letter",
)
'''
RECORDS = ["a,1,1", "a,2,2", "nonsense", "a,3,9", "b,60,1", "more nonsense"]


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with the job and the files of its run. Tests get a copy."""
    place = tmp_path_factory.mktemp("fence")
    (place / "fence_job.py").write_text(JOB)
    (place / "boards.txt").write_text("\n".join(RECORDS) + "\n")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(place)
        result = amadou("run", "fence_job.py", "--engine", "embedded")
    assert result.exit_code == 0, result.stderr
    assert "dead letters: 5" in result.stderr
    every = "".join(path.read_text() for path in sorted((place / "dead_letters").iterdir()))
    (place / "all.jsonl").write_text(every)
    return place


@pytest.fixture
def dead_letters(place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The file with the dead letters of a run in a new directory, which is the working directory."""
    shutil.copytree(place, tmp_path, ignore=shutil.ignore_patterns("__pycache__"), dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)
    return tmp_path / "all.jsonl"


@pytest.fixture(autouse=True)
def jobs_forgotten(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Lets each test import its own files of jobs."""
    monkeypatch.setattr(sys, "path", [*sys.path])
    yield
    for name in ("fence_job", "minutes_job", "views_job"):
        sys.modules.pop(name, None)


@pytest.fixture
def run_tests(pytester: pytest.Pytester, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[], str]:
    """A function that runs the tests that were written, and returns the output. The working directory is that of the
    test.
    """
    monkeypatch.chdir(tmp_path)

    def run() -> str:
        sys.modules.pop("fence_job", None)
        return str(pytester.runpytest_inprocess("-q", "test_the_fence_dead_letters.py").stdout)

    return run


def test_reproduce_writes_a_test_that_fails_with_the_same_error_for_each_kind_of_dead_letter(
    dead_letters: Path, tmp_path: Path, run_tests: Callable[[], str]
) -> None:
    ran = amadou("reproduce", str(dead_letters))
    assert ran.exit_code == 0, ran.stderr
    assert ran.stdout.startswith("test_the_fence_dead_letters.py: ")
    text = (tmp_path / "test_the_fence_dead_letters.py").read_text()
    for part in (
        "run.set_state('boards', ('a', 1), {1: 'painted', 2: 'painted'})",
        "run.set_state('paint', ('a', 1), Paint(color=Color.RED, "
        "since=datetime(2025, 1, 1, 12, 0, 2, tzinfo=timezone.utc)))",
        "run.set_timer(('a', 1), datetime(2025, 1, 1, 12, 0, 6, tzinfo=timezone.utc), 'dry')",
        "run.add_event(KeyedEvent(key=('a', 1), "
        "timestamp=datetime(2025, 1, 1, 12, 0, 3, tzinfo=timezone.utc), value=9))",
        "run.add_record(b'nonsense')",
    ):
        assert part in text
    shown = run_tests()
    assert "3 failed" in shown, shown
    for error in ("ValueError: the board 9 is broken", "KeyError: 'dry'", "ValueError: not enough values to unpack"):
        assert error in shown


def test_reproduce_writes_one_test_for_errors_of_one_type_from_one_line(dead_letters: Path, tmp_path: Path) -> None:
    lines = dead_letters.read_text().splitlines()
    (broken,) = [json.loads(line) for line in lines if "is broken" in json.loads(line)["error"]]
    others = [json.dumps(broken | {"error": f"ValueError: the board {board} is broken"}) for board in (7, 8)]
    elsewhere = json.dumps(broken | {"traceback": broken["traceback"].replace(", line ", ", line 1")})
    dead_letters.write_text("\n".join([*lines, *others, elsewhere]) + "\n")
    assert amadou("reproduce", str(dead_letters)).stdout.startswith("test_the_fence_dead_letters.py: 4 tests")
    text = (tmp_path / "test_the_fence_dead_letters.py").read_text()
    assert "# first of 3 dead letters with this type of error, raised by the same line" in text


def test_reproduce_reads_all_dead_letters_of_a_directory(
    dead_letters: Path, tmp_path: Path, run_tests: Callable[[], str]
) -> None:
    (tmp_path / "dead_letters" / "painted-other-000000001-00000.jsonl").write_text("{}\n")
    ran = amadou("reproduce", "dead_letters")
    assert ran.stdout.startswith("test_the_fence_dead_letters.py: 3 tests"), ran.stderr
    assert "3 failed" in run_tests()


def test_reproduce_refuses_dead_letters_of_several_jobs(dead_letters: Path, tmp_path: Path) -> None:
    letter = json.loads(dead_letters.read_text().splitlines()[0])
    (tmp_path / "other.jsonl").write_text(json.dumps(letter | {"job": "the shed"}) + "\n")
    ran = amadou("reproduce", "all.jsonl", "other.jsonl")
    assert ran.exit_code == 1
    assert "the dead letters are from multiple jobs (the fence, the shed): pass one job's files" in ran.stderr


def test_reproduced_tests_pass_after_the_handler_is_fixed(
    dead_letters: Path, tmp_path: Path, run_tests: Callable[[], str]
) -> None:
    amadou("reproduce", str(dead_letters))
    fixed = JOB.replace("len(boards) == 2", "False").replace("seconds=2)", "seconds=1000)")
    fixed = fixed.replace(
        "        key, second", "        if b',' not in record:\n            return None\n        key, second"
    )
    (tmp_path / "fence_job.py").write_text(fixed)
    assert "3 passed" in run_tests()


def test_reproduced_tests_add_an_event_to_its_source(dead_letters: Path, tmp_path: Path) -> None:
    boards = '"boards": LinesSource("boards.txt")'
    (tmp_path / "fence_job.py").write_text(JOB.replace(boards, f'{boards}, "more": LinesSource("boards.txt")'))
    assert amadou("reproduce", str(dead_letters)).exit_code == 0

    made = (tmp_path / "test_the_fence_dead_letters.py").read_text()
    assert re.search(r"run\.add_event\(KeyedEvent\(.+, value=9\), source='boards'\)", made)
    assert "run.add_record(b'nonsense', source='boards')" in made


def test_reproduce_writes_a_test_for_a_single_line_of_a_file(dead_letters: Path, run_tests: Callable[[], str]) -> None:
    number = next(
        n for n, line in enumerate(dead_letters.read_text().splitlines(), 1) if json.loads(line)["tag"] == "dry"
    )
    assert amadou("reproduce", str(dead_letters), "--line", str(number), "--job", "fence_job.py").exit_code == 0
    assert "1 failed" in run_tests()


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["nowhere.jsonl"], "cannot be read"),
        (["fence_job.py"], "line 1 is not a dead letter"),
        (["empty.jsonl"], "no dead letters were found: check the path"),
        (["all.jsonl", "--line", "99"], "line 99 does not exist: the file ends at line "),
        (["all.jsonl", "empty.jsonl", "--line", "1"], "a line number requires a single file: pass only one file"),
        (["out"], "the directory contains no dead_letters-"),
        (["all.jsonl", "--job", "other.py"], "does not exist"),
    ],
)
def test_the_error_of_reproduce_states_the_reason(
    dead_letters: Path, tmp_path: Path, arguments: list[str], reason: str
) -> None:
    (tmp_path / "empty.jsonl").write_text("")
    result = amadou("reproduce", *arguments)
    assert result.exit_code == 1
    assert reason in result.output
    assert not os.path.exists("test_the_fence_dead_letters.py")


def test_a_dead_letter_that_becomes_many_objects_is_refused(dead_letters: Path) -> None:
    fields = json.loads(dead_letters.read_bytes().splitlines()[0])
    packed = b"\x81\xa3key\xdd\x00\x0c\x00\x00" + b"\xd4\x02\x90" * (12 << 16)  # sets, of 216 bytes each
    dead_letters.write_text(json.dumps(fields | {"packed": base64.b64encode(packed).decode()}))
    result = amadou("reproduce", str(dead_letters))
    assert result.exit_code == 1
    assert "its objects would take more than 94,372,240 bytes of memory" in " ".join(result.output.split())


@pytest.mark.parametrize("name", ["my-fence.py", "my fence.py", "class.py"])
def test_a_job_file_can_have_any_name(dead_letters: Path, run_tests: Callable[[], str], name: str) -> None:
    (dead_letters.parent / "fence_job.py").rename(dead_letters.parent / name)
    lines = dead_letters.read_text().replace("fence_job:", f"{Path(name).stem.translate({32: '_', 45: '_'})}:")
    dead_letters.write_text(lines)
    assert amadou("reproduce", str(dead_letters), "--line", "1", "--job", name).exit_code == 0
    assert "1 failed" in run_tests()


def test_reproduced_tests_contain_no_secret_parameters_and_read_them_from_the_environment(
    dead_letters: Path, run_tests: Callable[[], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    job = JOB.replace("import Handler,", "import Handler, Param,").replace(
        "    painted =", '    token = Param("TOKEN", secret=True)\n    size = Param("SIZE", type=int)\n    painted ='
    )
    Path("fence_job.py").write_text(job)
    done = amadou("reproduce", "all.jsonl", "--line", "1", "-p", "TOKEN=opensesame", "-p", "SIZE=2")
    assert done.exit_code == 0, done.output
    text = Path("test_the_fence_dead_letters.py").read_text()
    assert "params={'SIZE': '2'}" in text
    assert "opensesame" not in text
    assert "use -p TOKEN=VALUE or environment variable TOKEN" in run_tests()
    monkeypatch.setenv("TOKEN", "opensesame")
    assert "ValueError" in run_tests()


def test_reproduce_does_not_replace_a_file(dead_letters: Path) -> None:
    result = amadou("reproduce", "all.jsonl", "--output", "boards.txt")
    assert result.exit_code == 2
    assert "boards.txt exists: use --force" in " ".join(result.output.replace("│", "").split())
    assert Path("boards.txt").read_text().splitlines() == RECORDS


def test_a_replay_of_a_missing_file_is_refused_before_spark_starts(dead_letters: Path) -> None:
    sink = ("--sink", "painted=lines:elsewhere/")
    result = amadou("replay", "fence_job.py", "nowhere.jsonl", "--checkpoint", "state", *sink)
    assert result.exit_code == 1
    assert "cannot load nowhere.jsonl: the file cannot be read" in result.output


WINDOWS = """
from datetime import datetime, timedelta

from amadou import Handler, Job, KeyedEvent, SinkSpec
from amadou_plugins.aggregates import Mean
from amadou_plugins.connectors import JsonLinesSink, LinesSource
from amadou_plugins.windows import TumblingWindow


class Minutes(Handler):
    inverses = SinkSpec(float)
    minute = TumblingWindow(timedelta(minutes=1), Mean())

    def key_event(self, record):
        key, time, number = record.decode().split(",")
        return KeyedEvent(key, datetime.fromisoformat(time), float(number))

    def on_event(self, subject, event):
        self.minute.add(subject, event)

    @minute.on_close
    def closed(self, subject, window, mean):
        self.inverses.collect(subject, 1 / mean)


job = Job(
    "minutes",
    Minutes(),
    {"numbers": LinesSource("numbers.txt")},
    {"inverses": JsonLinesSink("out"), "dead_letters": JsonLinesSink("dead_letters")},
    on_error="dead_letter",
)
"""


def test_reproduce_writes_a_test_for_a_window_that_failed_to_close(
    tmp_path: Path, run_tests: Callable[[], str]
) -> None:
    (tmp_path / "minutes_job.py").write_text(WINDOWS)
    times = [f"2025-01-01T00:0{minute}:00Z" for minute in (0, 1, 1)]
    numbers = "\n".join(f"a,{time},{number}" for time, number in zip(times, (2, 1, -1), strict=True))
    (tmp_path / "numbers.txt").write_text(f"{numbers}\n")
    result = amadou("run", "minutes_job.py", "--engine", "embedded", "--flush")
    assert result.exit_code == 0, result.stderr
    (dead_letters,) = (tmp_path / "dead_letters").iterdir()
    ran = amadou("reproduce", str(dead_letters), "--output", "test_the_fence_dead_letters.py")
    assert ran.exit_code == 0, ran.stderr
    shown = run_tests()
    assert "1 failed" in shown
    assert "ZeroDivisionError" in shown
    assert "def test_closed_without_zero_division_error" in shown


VIEWS = """
from datetime import datetime, timezone

from attrs import frozen

from amadou import Handler, Job, KeyedEvent
from amadou_plugins.connectors import JsonLinesSink, LinesSource


@frozen
class View:
    channel: str


class Views(Handler):
    def key_event(self, record):
        return KeyedEvent("k", datetime(2025, 1, 1, tzinfo=timezone.utc), View(record.decode()))

    def on_event(self, subject, event):
        raise ValueError(event.value.channel)


job = Job(
    "views",
    Views(),
    {"in": LinesSource("in.txt")},
    {"dead_letters": JsonLinesSink("dead_letters")},
    on_error="dead_letter",
)
"""


def test_reproduce_reads_dead_letters_with_objects_of_the_jobs_classes(run_tests: Callable[[], str]) -> None:
    Path("views_job.py").write_text(VIEWS)
    Path("in.txt").write_text("news\n")
    assert amadou("run", "views_job.py", "--engine", "embedded").exit_code == 0
    done = amadou("reproduce", "dead_letters", "--output", "test_the_fence_dead_letters.py")
    assert (done.exit_code, done.stderr) == (0, "")
    assert "ValueError: news" in run_tests()
