"""The README shows the example as it is, and what it shows runs."""

import re
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text()
EXAMPLE = ROOT / "examples" / "tumbling_window"
HANDLER, TEST = re.findall(r"^```python\n(.*?)^```$", README, re.MULTILINE | re.DOTALL)


def test_the_handler_is_the_examples() -> None:
    assert HANDLER.startswith("@frozen")
    assert HANDLER in (EXAMPLE / "views.py").read_text()


def test_the_unit_test_is_the_examples_and_passes() -> None:
    function = TEST[TEST.index("def test_") :]
    assert function in (EXAMPLE / "test_views.py").read_text()

    names: dict[str, Any] = {}
    exec(compile(TEST, "README.md", "exec"), names)
    (test,) = (value for name, value in names.items() if name.startswith("test_"))
    test()


def test_the_first_screen_has_the_handler_its_test_and_the_two_commands() -> None:
    first = README[: README.index("\n## ")]

    assert HANDLER in first
    assert TEST in first
    assert re.findall(r"^    (scripts/\w+)", first, re.MULTILINE) == ["scripts/demo", "scripts/test"]


@pytest.mark.parametrize("page", [*ROOT.glob("[A-Z]*.md"), *ROOT.glob("docs/*.md")], ids=lambda page: page.name)
def test_what_a_page_points_to_is_there(page: Path) -> None:
    text = page.read_text()
    links = re.findall(r"\]\((?!https?:)([^)#]+)", text)
    commands = re.findall(r"(?:^    |`)(scripts/\w+)", text, re.MULTILINE)
    files = re.findall(r"\bexamples/[\w./]*\w", text)

    missing = [link for link in links if not (page.parent / link).exists()]
    missing += [name for name in commands + files if not (ROOT / name).exists()]
    assert missing == []
