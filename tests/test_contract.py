"""Each rule that is cited exists in `docs/semantics.md`, and each rule there has a conformance test."""

import ast
import re
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
CONTRACT = ROOT / "docs" / "semantics.md"
HEADINGS = re.findall(r"^##+ (.+)$", CONTRACT.read_text(), re.MULTILINE)
RULES = [int(number) for number in re.findall(r"^### (\d+)\. \w", CONTRACT.read_text(), re.MULTILINE)]
FOLDERS = ("sdk", "runtime", "plugins", "tests", "docs", "examples", "benchmarks")
FILES = [path for folder in FOLDERS for path in (ROOT / folder).rglob("*") if path.suffix in (".py", ".md")]
CITING = [ROOT / "README.md", *FILES]
ENGINES = {"test_run", "engine"}
"""The fixtures that run a conformance test on each engine."""
SPARK_ALONE = {32}  # a replay continues from a checkpoint, which the embedded engine does not have

NUMBERS = r"(\d+(?:(?:, | and | to |–|-)\d+)*)"
BY_PAGE = re.compile(rf"semantics\.md`?[\s#]+{NUMBERS}")
BY_MARKER = re.compile(r"mark\.rule\(([\d,\s]+)\)")
BY_WORD = re.compile(rf"\brules? {NUMBERS}", re.IGNORECASE)
BY_BOTH = re.compile(rf"{BY_WORD.pattern} of [`/\w]*semantics\.md", re.IGNORECASE)


def numbers_of(citation: str) -> Iterator[int]:
    """Yield the numbers of a citation such as "2, 5–7"."""
    for first, last in re.findall(r"(\d+)(?:(?: to |–|-)(\d+))?", citation):
        yield from range(int(first), int(last or first) + 1)


def cited_in(path: Path) -> set[int]:
    """Return the numbers of the rules that a file cites."""
    text = path.read_text()
    citations = [citation for pattern in (BY_PAGE, BY_MARKER, BY_BOTH) for citation in pattern.findall(text)]
    if path == CONTRACT or path.parent.name == "conformance":  # other pages have rules of their own
        citations += BY_WORD.findall(text)
    return {number for citation in citations for number in numbers_of(citation)}


def rules_of(marks: Iterable[ast.expr]) -> set[int]:
    """Return the rules in the marks of decorators or of a module."""
    calls = [node for mark in marks for node in ast.walk(mark) if isinstance(node, ast.Call)]
    markers = [call for call in calls if ast.unparse(call.func) == "pytest.mark.rule"]
    return {ast.literal_eval(number) for marker in markers for number in marker.args}


def rules_with_a_test_in(path: Path) -> set[int]:
    """Return the rules for which a file has a test that runs on each engine."""
    body = ast.parse(path.read_text()).body
    tests = [node for node in body if isinstance(node, ast.FunctionDef) and node.name.startswith("test_")]
    on_each = [test for test in tests if ENGINES & {argument.arg for argument in test.args.args}]
    of_file = rules_of(node.value for node in body if ast.unparse(node).startswith("pytestmark ="))
    of_tests = rules_of(mark for test in on_each for mark in test.decorator_list)
    return of_tests | (of_file if on_each else of_file & SPARK_ALONE)


def test_rules_are_numbered_without_gaps() -> None:
    assert sorted(RULES) == list(range(1, len(RULES) + 1))
    assert len(RULES) == len(re.findall(r"^### ", CONTRACT.read_text(), re.MULTILINE))


@pytest.mark.parametrize(
    ("text", "numbers"),
    [
        ("(`semantics.md` 5–7)", [5, 6, 7]),
        ("see semantics.md 9, 16", [9, 16]),
        ("(`semantics.md`\n    # 12)", [12]),
        ("docs/semantics.md#16-time-to-live", [16]),
        ("`semantics.md` 2 and 8 to 11", [2, 8, 9, 10, 11]),
        ("Rules 8, 18 and 20 of `semantics.md`: what survives", [8, 18, 20]),
    ],
)
def test_citations_of_rules_in_each_form_are_recognized(text: str, numbers: list[int]) -> None:
    citations = BY_PAGE.findall(text) + BY_BOTH.findall(text)
    assert [number for citation in citations for number in numbers_of(citation)] == numbers


def test_each_rule_that_is_cited_exists() -> None:
    unknown = {str(path.relative_to(ROOT)): cited_in(path) - {*RULES} for path in CITING}
    assert {path: numbers for path, numbers in unknown.items() if numbers} == {}
    assert sum(bool(cited_in(path)) for path in CITING) > 40


def test_each_rule_has_a_conformance_test_on_each_engine() -> None:
    files = (ROOT / "tests" / "conformance").glob("test_*.py")
    tested = {rule for path in files for rule in rules_with_a_test_in(path)}
    assert {*RULES} - tested == set()


def test_links_to_rules_point_to_existing_headings() -> None:
    anchors = {re.sub(r"[^\w -]", "", heading).lower().replace(" ", "-") for heading in HEADINGS}
    links = {link for path in CITING for link in re.findall(r"semantics\.md#([\w-]+)\)", path.read_text())}
    assert (links | set(re.findall(r"\]\(#([\w-]+)\)", CONTRACT.read_text()))) - anchors == set()
