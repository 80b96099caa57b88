"""The pages on connectors of one's own: their files, tests and commands run as those of a third party."""

import json
import os
import re
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest
from tests.test_types import files_of

DOCS = Path(__file__).parents[1] / "docs"
PAGES = ("source", "sink")


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the files of both pages, and a database for their commands."""
    folder = tmp_path_factory.mktemp("project")
    for page in PAGES:
        for path, text in files_of("block", page_text(page)):
            assert not path.startswith("block_"), "a block that is not a file is run by nothing"
            assert not (folder / path).exists(), f"both pages have a file {path}"
            (folder / path).parent.mkdir(exist_ok=True)
            (folder / path).write_text(text)
    with sqlite3.connect(folder / "shops.db") as database:
        database.execute("CREATE TABLE outbox (shop TEXT, number INTEGER, body TEXT, PRIMARY KEY (shop, number))")
        sale = json.dumps({"shop": "north", "at": "2025-01-01T12:00:00Z", "cents": 1})
        database.execute("INSERT INTO outbox VALUES ('north', 1, ?)", (sale,))
    return folder


def page_text(page: str) -> str:
    return (DOCS / f"your-own-{page}.md").read_text()


def run(folder: Path, command: str) -> str:
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(
        command, shell=True, cwd=folder, env={**os.environ, "PATH": path}, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
    return done.stdout + done.stderr


def run_command(project: Path, page: str, *, on_spark: bool) -> str:
    """Run the command of a page for an engine, and return its output."""
    commands = re.findall(r"^    (amadou .+)\n", page_text(page), re.MULTILINE)
    (command,) = (each for each in commands if ("--engine embedded" in each) != on_spark)
    return run(project, command)


def test_the_tests_of_the_pages_pass_on_the_embedded_engine(project: Path) -> None:
    assert re.search(r"\b6 passed, 4 deselected", run(project, f"{sys.executable} -m pytest -k 'not spark'"))


@pytest.mark.spark
@pytest.mark.needs_spark(4)
@pytest.mark.qualify
def test_the_tests_of_the_pages_pass_on_spark(project: Path) -> None:
    assert re.search(r"\b4 passed", run(project, f"{sys.executable} -m pytest -k spark"))


@pytest.mark.parametrize(("page", "events"), [("source", 1), ("sink", 5)])
def test_the_command_of_a_page_runs_on_the_embedded_engine(project: Path, page: str, events: int) -> None:
    assert f": {events} events in" in run_command(project, page, on_spark=False)


@pytest.mark.spark
@pytest.mark.needs_spark(4)
@pytest.mark.qualify
@pytest.mark.parametrize(("page", "events"), [("source", 1), ("sink", 5)])
def test_the_command_of_a_page_runs_on_spark(project: Path, page: str, events: int) -> None:
    assert f": {events} events in" in run_command(project, page, on_spark=True)
