"""Imports that the directories of the runtime may have from each other and from other packages."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import amadou_runtime

ROOT = Path(amadou_runtime.__file__ or "").parent
DIRECTORIES = {
    "formats": set(),
    "plugins": {"formats", "typer"},
    "jobs": {"formats", "plugins"},
    "core": {"formats", "jobs"},
    "store": {"formats", "core"},
    "savepoint": {"formats", "jobs", "core", "store"},
    "runs": {"formats", "jobs", "core", "savepoint"},
    "embedded": {"formats", "plugins", "jobs", "core", "store", "savepoint", "runs"},
    "spark": {"formats", "plugins", "jobs", "core", "store", "savepoint", "runs", "pyspark"},
    "_run": {"plugins", "jobs", "savepoint", "runs", "embedded", "spark"},
    "project_template": {"amadou_plugins", "amadou_runtime"},
    "testing": {"formats", "jobs", "core", "store", "savepoint", "embedded", "spark", "amadou_runtime"},
    "command": {
        *("formats", "plugins", "jobs", "core", "savepoint", "runs", "embedded", "spark", "_run", "testing"),
        *("amadou_plugins", "typer", "rich"),
    },
    "__init__": {"runs", "embedded", "spark", "_run", "command", "testing"},
}
"""Allowed imports of each directory: other directories, the package as a whole, and packages in `GUARDED`."""
GUARDED = {"amadou_plugins", "amadou_runtime", "pyspark", "typer", "rich"}


def test_each_directory_of_the_runtime_has_a_list_of_allowed_imports() -> None:
    directories = {path.stem if path.is_file() else path.name for path in ROOT.iterdir() if path.suffix in ("", ".py")}
    assert directories - {"__pycache__"} == DIRECTORIES.keys()


@pytest.mark.parametrize("directory", DIRECTORIES)
def test_a_directory_of_the_runtime_has_only_allowed_imports(directory: str) -> None:
    files = (
        [ROOT / f"{directory}.py"] if (ROOT / f"{directory}.py").exists() else sorted((ROOT / directory).rglob("*.py"))
    )
    imported = {(str(file.relative_to(ROOT)), module) for file in files for module in imports_of(file)}
    assert {
        (file, module)
        for file, module in imported
        if (target := target_of(module)) != directory
        if target is not None and target not in DIRECTORIES[directory]
    } == set()


def imports_of(file: Path) -> Iterator[str]:
    """Yield the modules that a file imports, also those imported lazily or for types."""
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0
            assert node.module is not None
            yield node.module
            if node.module == "amadou_runtime":
                yield from (f"amadou_runtime.{alias.name}" for alias in node.names)


def target_of(module: str) -> str | None:
    """Return the directory or package of an import; `None` if all directories may import it."""
    package, _, rest = module.partition(".")
    directory = rest.partition(".")[0]
    if package == "amadou_runtime" and directory in DIRECTORIES:
        return directory
    return package if package in GUARDED else None
