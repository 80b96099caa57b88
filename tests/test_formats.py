"""docs/formats.md has each versioned format of stored data, with the version that the code writes."""

import re
from importlib import import_module
from pathlib import Path

import amadou_runtime

ROOT = Path(__file__).parents[1]
RUNTIME = Path(amadou_runtime.__file__ or "").parent
ROW = re.compile(r"\| (?P<what>[^|]+) \| `?(?P<version>\w+)`? \| `(?P<constant>\w+)` in `(?P<file>[\w/]+\.py)` \|")
CONSTANT = re.compile(r"^(_VERSION|_FORMAT\w*|_SNAPSHOT|_MAGIC)(?:: Final)? = ", re.MULTILINE)
OF_SPARK = "spark/savepoints/state_files.py"


def stated() -> dict[tuple[str, str], str]:
    """Return the versions on the page by file and constant."""
    rows = ROW.finditer((ROOT / "docs" / "formats.md").read_text())
    return {(row["file"], row["constant"]): row["version"] for row in rows}


def test_the_page_has_the_versions_that_the_code_writes() -> None:
    assert len(stated()) > 8
    for (file, constant), version in stated().items():
        module = import_module(f"amadou_runtime.{file.removesuffix('.py').replace('/', '.')}")
        value = getattr(module, constant)
        assert version == (value.decode().strip() if isinstance(value, bytes) else str(value)), (file, constant)


def test_each_version_in_the_code_is_on_the_page() -> None:
    files = {str(path.relative_to(RUNTIME)): path for path in RUNTIME.rglob("*.py")}
    found = {(name, each) for name, path in files.items() for each in CONSTANT.findall(path.read_text())}
    assert {pair for pair in found if pair[0] != OF_SPARK} == stated().keys()
