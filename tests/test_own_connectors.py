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


@pytest.fixture(params=["source", "sink"])
def project(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """A folder with the files of a page, its commands in `commands`, and a database for them."""
    page = (DOCS / f"your-own-{request.param}.md").read_text()
    for path, text in files_of("block", page):
        (tmp_path / path).parent.mkdir(exist_ok=True)
        (tmp_path / path).write_text(text)
    assert list(tmp_path.glob("block_*.py")) == [], "a block that is not a file is run by nothing"
    (tmp_path / "commands").write_text("".join(re.findall(r"^    (amadou .+\n)", page, re.MULTILINE)))
    with sqlite3.connect(tmp_path / "shops.db") as database:
        database.execute("CREATE TABLE outbox (shop TEXT, number INTEGER, body TEXT, PRIMARY KEY (shop, number))")
        sale = json.dumps({"shop": "north", "at": "2025-01-01T12:00:00Z", "cents": 1})
        database.execute("INSERT INTO outbox VALUES ('north', 1, ?)", (sale,))
    return tmp_path


def run(project: Path, command: str) -> str:
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(
        command, shell=True, cwd=project, env={**os.environ, "PATH": path}, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
    return done.stdout + done.stderr


def commands(project: Path, *, on_spark: bool) -> list[str]:
    lines = (project / "commands").read_text().splitlines()
    return [line for line in lines if ("--engine embedded" in line) != on_spark]


def test_the_page_holds_on_the_embedded_engine(project: Path) -> None:
    assert re.search(r"\b[2-9] passed", run(project, f"{sys.executable} -m pytest -k 'not spark'"))
    (command,) = commands(project, on_spark=False)
    assert re.search(r": [15] events in", run(project, command))


@pytest.mark.spark
def test_the_page_holds_on_spark(project: Path) -> None:
    assert re.search(r"\b2 passed", run(project, f"{sys.executable} -m pytest -k spark"))
    (command,) = commands(project, on_spark=True)
    assert re.search(r": [15] events in", run(project, command))
