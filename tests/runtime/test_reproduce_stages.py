"""`amadou reproduce` writes tests for the dead letters of a job with several stages."""

import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import attrs
import pytest
from tests import top_pages
from tests.top_pages import view

from amadou.plugins import BatchReport, DeadLetterReport, hookimpl
from amadou_runtime import run
from amadou_runtime._run import reproduced
from amadou_runtime.jobs.load_job import load_job

VIEWS = [
    view("/a", 1),
    b"nonsense",
    view("/b", -5),
    view("/bad", 2),
    view("/late", 70),
    view("/a", 400),
    view("/odd", 395),
]
JOB = """

from amadou import FromPort
from amadou_plugins.connectors import JsonLinesSink, LinesSource

dead_letters = JsonLinesSink("dead_letters")
job = top_pages(LinesSource("views.txt"), JsonLinesSink("top"), dead_letters=dead_letters, on_error="dead_letter")
"""


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with the job, the files of its run, and the tests for its dead letters. Tests get a copy."""
    place = tmp_path_factory.mktemp("pages")
    source = Path(top_pages.__file__).read_text()
    (place / "pages_job.py").write_text(source + JOB)
    (place / "views.txt").write_bytes(b"\n".join(VIEWS) + b"\n")
    ran = command("run", "pages_job.py", "--engine", "embedded", "--flush", cwd=place)
    assert "dead letters: 5" in ran.stderr, ran.stderr
    made = command("reproduce", "dead_letters", "--output", "test_pages.py", cwd=place)
    assert made.stdout.startswith("test_pages.py: 5 tests"), made.stderr
    return place


@pytest.fixture
def dead_letters(place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The directory with the dead letters of both stages, next to the job `pages_job.py`."""
    shutil.copytree(place, tmp_path, ignore=shutil.ignore_patterns("__pycache__"), dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    yield tmp_path / "dead_letters"
    sys.modules.pop("pages_job", None)


def command(*arguments: str, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    run = [str(Path(sys.executable).with_name("amadou")), *arguments]
    return subprocess.run(run, capture_output=True, text=True, timeout=60, check=False, cwd=cwd)


def outcome_of(file: str) -> str:
    run = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", file]
    return subprocess.run(run, capture_output=True, text=True, timeout=60, check=False).stdout


@pytest.mark.usefixtures("dead_letters")
def test_reproduce_writes_tests_for_the_dead_letters_of_each_stage() -> None:
    text = Path("test_pages.py").read_text()
    value = "PageSum(page='/bad', minute=datetime(2025, 1, 1, tzinfo=timezone.utc), views=1)"
    for part in (
        "run.add_record(b'nonsense', source='clicks', stage='views')",
        f"run.add_record({value}, source='sums', stage='top', "
        "timestamp=datetime(2025, 1, 1, 0, 1, tzinfo=timezone.utc))",
        "run.set_state('best', '00:06', "
        "PageSum(page='/a', minute=datetime(2025, 1, 1, 0, 6, tzinfo=timezone.utc), views=1), stage='top')",
        "run.set_timer('00:01', datetime(2025, 1, 1, 0, 3, tzinfo=timezone.utc), stage='top')",
    ):
        assert part in text, text
    shown = re.sub(r"\n +# .+", "", outcome_of("test_pages.py"))  # without the comments of the tests
    assert "5 failed" in shown, shown
    odd = "LookupError: the page /odd is odd, watermark 2025-01-01 00:06:40+00:00"
    for error in ("JSONDecodeError", "ValueError: below zero", "ValueError: the page /bad", odd, "KeyError: '/late'"):
        assert error in shown, shown


@pytest.mark.usefixtures("dead_letters")
def test_reproduced_tests_of_stages_pass_after_the_handlers_are_fixed() -> None:
    job = Path("pages_job.py")
    fixed = re.sub(r"        if .+:\n            raise .+\n", "", job.read_text())
    job.write_text(fixed.replace("(record)\n", "(record if record.startswith(b'[') else b'[0, 0]')\n"))
    assert "5 passed" in outcome_of("test_pages.py")


def test_reproduce_refuses_dead_letters_of_a_stage_that_the_job_does_not_have(dead_letters: Path) -> None:
    other = Path("other_job.py")
    other.write_text(Path("pages_job.py").read_text().replace('"top": Stage', '"best": Stage'))
    refused = command("reproduce", str(dead_letters), "--job", str(other))
    assert refused.returncode == 1
    assert "the dead letters are from the job 'top-pages.top': use that job" in refused.stderr


class Reports:
    """Collects dead letters from the reports of batches."""

    def __init__(self) -> None:
        self.dead_letters: list[DeadLetterReport] = []

    @hookimpl
    def amadou_batch_completed(self, batch: BatchReport) -> None:
        self.dead_letters += batch.dead_letters


def test_reproduced_returns_the_test_for_a_dead_letter_of_a_stage(dead_letters: Path) -> None:
    job, reports = load_job("pages_job.py"), Reports()
    run(attrs.evolve(job, plugins=[reports]), engine="embedded", flush=True)
    assert [letter.stage for letter in reports.dead_letters] == ["views", "views", "top", "top", "top"]
    tests = [reproduced(job, {}, letter) for letter in reports.dead_letters]
    assert "run.add_record(b'nonsense', source='clicks', stage='views')" in tests[0]
    Path("test_all.py").write_text(tests[2])
    assert "ValueError: the page /bad is bad" in outcome_of("test_all.py")
