"""Imports that the directories of the runtime may have from each other and from other packages."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import amadou_runtime

ROOT = Path(amadou_runtime.__file__ or "").parent
DIRECTORIES = {
    "core": set(),
    "plugins": {"core", "typer"},
    "savepoint": {"core"},
    "embedded": {"core", "plugins", "savepoint"},
    "spark": {"core", "plugins", "savepoint", "pyspark"},
    "_run": {"core", "plugins", "savepoint", "embedded", "spark"},
    "command": {"core", "plugins", "savepoint", "embedded", "spark", "_run", "amadou_plugins", "typer", "rich"},
    "project_template": {"amadou_plugins", "amadou_runtime"},
    "testing": {"core", "plugins", "savepoint", "embedded", "spark", "command", "amadou_runtime"},
    "__init__": {"core", "embedded", "spark", "_run", "command", "testing"},
}
"""Allowed imports of each directory: other directories, the package as a whole, and packages in `GUARDED`."""
GUARDED = {"amadou_plugins", "amadou_runtime", "pyspark", "typer", "rich"}
EXCEPTIONS = {
    ("core/ports.py", "amadou_runtime.plugins.hooks"),  # ports name codecs and sinks that plugins have
    ("command/commands.py", "amadou_runtime.testing.reproduce"),  # `amadou reproduce` writes tests
    ("command/reproduce_key.py", "amadou_runtime.testing.reproduce"),
    ("_run.py", "amadou_runtime.testing.reproduce"),  # plugins get the tests of dead letters
    ("command/rehearse_command.py", "amadou_runtime.testing.rehearsal"),  # `amadou rehearse` runs them
}


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
        for file, module in imported - EXCEPTIONS
        if (target := target_of(module)) != directory
        if target is not None and target not in DIRECTORIES[directory]
    } == set()
    assert {each for each in EXCEPTIONS if each[0].startswith(f"{directory}/")} <= imported


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
