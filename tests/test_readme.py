"""The README shows the code of the example, and this code runs."""

import re
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text()
EXAMPLE = ROOT / "examples" / "tumbling_window"
BLOCK = re.compile(r"(?:^<!-- python\n(?P<hidden>.*?)^-->\n)?^```python\n(?P<shown>.*?)^```$", re.MULTILINE | re.DOTALL)
BLOCKS = [block.groupdict("") for block in BLOCK.finditer(README)]
"""Blocks of code, each with its hidden imports."""
HANDLER, TEST, JOB = (block["shown"] for block in BLOCKS)


def test_the_handler_and_the_job_in_the_readme_are_those_of_the_example() -> None:
    assert HANDLER.startswith("class ViewsPerMinute(Handler):")
    assert JOB.startswith("job = Job(")
    for block in (HANDLER, JOB):
        assert f"\n\n{block}\n" in (EXAMPLE / "views.py").read_text()


def test_the_unit_test_in_the_readme_is_that_of_the_example_and_passes() -> None:
    assert TEST.startswith("def test_")
    assert TEST in (EXAMPLE / "test_views.py").read_text()

    names: dict[str, Any] = {}
    exec(compile(BLOCKS[1]["hidden"] + TEST, "README.md", "exec"), names)
    (test,) = (value for name, value in names.items() if name.startswith("test_"))
    test()


def test_the_readme_begins_with_the_handler_its_test_and_two_commands() -> None:
    first = README[: README.index("\n## ")]
    seen = re.sub(r"^<!--.*?^-->\n", "", first, flags=re.MULTILINE | re.DOTALL)

    assert HANDLER in seen
    assert TEST in seen
    assert re.findall(r"^    (scripts/\w+)", seen, re.MULTILINE) == ["scripts/demo", "scripts/test"]
    assert len(seen.splitlines()) < 50


def test_the_readme_has_at_most_120_lines() -> None:
    assert len(README.splitlines()) <= 120


def test_the_readme_links_to_each_page_of_the_docs() -> None:
    links = set(re.findall(r"\]\((docs/[^)#]+)", README))
    assert {f"docs/{page.name}" for page in (ROOT / "docs").glob("*.md")} - links == set()


@pytest.mark.parametrize("page", [*ROOT.glob("[A-Z]*.md"), *ROOT.glob("docs/**/*.md")], ids=lambda page: page.name)
def test_links_commands_and_files_on_a_page_exist(page: Path) -> None:
    text = page.read_text()
    links = re.findall(r"\]\((?!https?:)([^)#]+)", text)
    commands = re.findall(r"(?:^    |`)(scripts/\w+)", text, re.MULTILINE)
    files = re.findall(r"\bexamples/[\w./]*\w", text)

    missing = [link for link in links if not (page.parent / link).exists()]
    missing += [name for name in commands + files if not (ROOT / name).exists()]
    assert missing == []
