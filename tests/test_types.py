"""Type checkers accept the examples, the code on each page and valid user code, and refuse invalid user code.

Each block of Python on a page becomes a file with the same line numbers. Code that a block needs, but readers do not,
precedes the block in a comment ``<!-- python … -->``. If a block or such a comment begins with a comment such as
``# my_company/sinks.py``, then it becomes this file, and other blocks can import it.
"""

import json
import os
import re
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import attrs
import pytest
import tomllib

ROOT = Path(__file__).parents[1]
TYPES = ROOT / "tests" / "types"
PAGES = [ROOT / "README.md", *sorted(ROOT.glob("docs/*.md")), *sorted(ROOT.glob("examples/*/README.md"))]
CODE = re.compile(r"^<!-- python\n(?P<hidden>.*?)^-->$|^```python\n(?P<shown>.*?)^```$", re.MULTILINE | re.DOTALL)
FILE = re.compile(r"# ([\w/]+\.py)\n")
UNFENCED = re.compile(r"^    (?:(?:async )?def |class |from [\w.]+ import |import |@|\w+ = )", re.MULTILINE)


@attrs.frozen
class Problem:
    file: Path
    line: int
    text: str


def files_of(name: str, page: str) -> Iterator[tuple[str, str]]:
    """Yield the path and the text of each file with code of a page."""
    before = ""
    for block in CODE.finditer(page):
        kind = block.lastgroup or ""
        line = page.count("\n", 0, block.start(kind))
        code = before + "\n" * (line - before.count("\n")) + block[kind]
        path = FILE.match(block[kind])
        before = code if kind == "hidden" and path is None else ""
        if path is not None:
            yield path[1], code
        elif kind == "shown":
            yield f"{name}_{line}.py", code


@pytest.fixture(scope="session")
def code(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the code of all pages."""
    folder = tmp_path_factory.mktemp("code")
    for page in PAGES:
        name = re.sub(r"\W", "_", page.relative_to(ROOT).with_suffix("").as_posix())
        for path, text in files_of(name, page.read_text()):
            (folder / path).parent.mkdir(parents=True, exist_ok=True)
            (folder / path).write_text(text)
    return folder


def mypy(code: Path) -> Iterator[Problem]:
    command = [sys.executable, "-m", "mypy", "--output", "json", "examples", str(TYPES), str(code)]
    environment = {**os.environ, "MYPYPATH": str(code)}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode in (0, 1), done.stdout + done.stderr
    for message in map(json.loads, done.stdout.splitlines()):
        if message["severity"] == "error":
            yield Problem(ROOT / message["file"], message["line"], message["message"])


def pyright(code: Path) -> Iterator[Problem]:
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["basedpyright"]
    settings["include"] = [os.path.relpath(path, code.parent) for path in (ROOT / "examples", TYPES, code)]
    settings["extraPaths"] = [str(code), *(str(ROOT / path) for path in settings["extraPaths"])]
    config = code.parent / "pyright.json"
    config.write_text(json.dumps(settings))
    command = [sys.executable, "-m", "basedpyright", "--outputjson", "--pythonpath", sys.executable, "-p", str(config)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode in (0, 1), done.stdout + done.stderr
    for message in json.loads(done.stdout)["generalDiagnostics"]:
        yield Problem(Path(message["file"]), message["range"]["start"]["line"] + 1, message["message"])


@pytest.fixture(scope="session", params=[mypy, pyright], ids=lambda checker: checker.__name__)
def problems(request: pytest.FixtureRequest, code: Path) -> list[Problem]:
    """The problems that a type checker finds in all of this code."""
    return list(request.param(code))


def test_type_checkers_accept_examples_code_on_pages_and_valid_user_code(problems: list[Problem]) -> None:
    assert [problem for problem in problems if problem.file != TYPES / "refused.py"] == []


def test_type_checkers_refuse_invalid_user_code_with_the_reason(problems: list[Problem]) -> None:
    lines = (TYPES / "refused.py").read_text().splitlines()
    comments = ((number, re.search(r"  # refused: (.+)$", line)) for number, line in enumerate(lines, 1))
    expected = {number: match[1] for number, match in comments if match is not None}
    messages: dict[int, str] = defaultdict(str)
    for problem in problems:
        if problem.file == TYPES / "refused.py":
            messages[problem.line] += problem.text + "\n"

    assert messages.keys() == expected.keys()
    assert {number: messages[number] for number, text in expected.items() if text not in messages[number]} == {}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_all_python_on_pages_is_in_blocks_that_are_checked(page: Path) -> None:
    text = page.read_text()

    assert UNFENCED.findall(re.sub(r"^```.*?^```$", "", text, flags=re.MULTILINE | re.DOTALL)) == []
    assert len(list(files_of("", text))) >= text.count("```python")


def test_the_file_of_a_block_has_the_lines_of_the_page_and_the_hidden_code() -> None:
    page = "# Page\n\n<!-- python\nimport os\n-->\n```python\nos.sep\n```\n\n```python\n# a/b.py\nb = 1\n```\n"

    assert list(files_of("page", page)) == [
        ("page_6.py", "\n\n\nimport os\n\n\nos.sep\n"),
        ("a/b.py", "\n\n\n\n\n\n\n\n\n\n# a/b.py\nb = 1\n"),
    ]
