"""What the rooms of the runtime may import of each other and of other packages."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import amadou_runtime

ROOT = Path(amadou_runtime.__file__ or "").parent
ROOMS = {
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
"""What each room may import besides itself: other rooms, the package as a whole, and packages of `GUARDED`."""
GUARDED = {"amadou_plugins", "amadou_runtime", "pyspark", "typer", "rich"}
EXCEPTIONS = {
    ("core/ports.py", "amadou_runtime.plugins.hooks"),  # ports name codecs and sinks that plugins have
    ("command/commands.py", "amadou_runtime.testing.reproduce"),  # `amadou reproduce` writes tests
    ("command/reproduce_key.py", "amadou_runtime.testing.reproduce"),
    ("_run.py", "amadou_runtime.testing.reproduce"),  # plugins get the tests of dead letters
    ("command/rehearse_command.py", "amadou_runtime.testing.rehearsal"),  # `amadou rehearse` runs them
}


def test_each_room_has_its_borders() -> None:
    found = {path.stem if path.is_file() else path.name for path in ROOT.iterdir() if path.suffix in ("", ".py")}
    assert found - {"__pycache__"} == ROOMS.keys()


@pytest.mark.parametrize("room", ROOMS)
def test_a_room_imports_only_what_it_may(room: str) -> None:
    files = [ROOT / f"{room}.py"] if (ROOT / f"{room}.py").exists() else sorted((ROOT / room).rglob("*.py"))
    imported = {(str(file.relative_to(ROOT)), module) for file in files for module in imports_of(file)}
    assert {
        (file, module)
        for file, module in imported - EXCEPTIONS
        if (target := target_of(module)) != room
        if target is not None and target not in ROOMS[room]
    } == set()
    assert {each for each in EXCEPTIONS if each[0].startswith(f"{room}/")} <= imported


def imports_of(file: Path) -> Iterator[str]:
    """The modules that a file imports, lazily or for types, too."""
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
    """The room or package that an import is of; `None` where it may come from everywhere."""
    package, _, rest = module.partition(".")
    room = rest.partition(".")[0]
    if package == "amadou_runtime" and room in ROOMS:
        return room
    return package if package in GUARDED else None
