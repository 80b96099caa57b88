"""The exports of the three packages, the imports that they may use, and the cost of importing them."""

import ast
import subprocess
import sys
from functools import cache
from pathlib import Path
from types import ModuleType

import pytest
from attrs import field, frozen

import amadou
import amadou.components
import amadou.data_source
import amadou.datatypes
import amadou.dependencies
import amadou.engine
import amadou.errors
import amadou.event_time
import amadou.fields
import amadou.hookspecs
import amadou.paths
import amadou.plugins
import amadou.remote_files
import amadou.spark_versions
import amadou.text
import amadou_plugins
import amadou_runtime


@frozen
class Names:
    """What the files of a package import, define and use.

    :param imports: the imports, also lazy ones: file, module and, for `from` imports, the names
    :param private: the private attributes and functions that the package defines
    :param reached: the attributes with private names: file, line and name
    """

    imports: list[tuple[str, str, list[str]]] = field(factory=list)
    private: set[str] = field(factory=set)
    reached: list[tuple[str, int, str]] = field(factory=list)


ROOTS = {package.__name__: Path(package.__file__ or "").parent for package in (amadou, amadou_runtime, amadou_plugins)}
PUBLIC = {
    amadou.__name__: {*amadou.__all__},
    "amadou.components": {*amadou.components.__all__},
    "amadou.plugins": {*amadou.plugins.__all__},
    "amadou.data_source": {*amadou.data_source.__all__},
    "amadou.paths": {*amadou.paths.__all__},
    "amadou.remote_files": {*amadou.remote_files.__all__},
    "amadou.spark_versions": {*amadou.spark_versions.__all__},
    "amadou.dependencies": {*amadou.dependencies.__all__},
    **{
        module.__name__: {name for name in vars(module) if not name.startswith("_")}
        for module in (amadou.datatypes, amadou.errors, amadou.event_time, amadou.fields, amadou.text)
    },
}
"""The public modules of the SDK and the names that others may import from them."""


def test_amadou_exports_these_names() -> None:
    assert amadou.__all__ == [
        "AmadouError",
        "DeadLetter",
        "DependencyChange",
        "DependsOn",
        "Filtered",
        "FromPort",
        "Handler",
        "Job",
        "Key",
        "KeyedEvent",
        "LateEvent",
        "ListSpec",
        "ListState",
        "Lookup",
        "MapSpec",
        "MapState",
        "MemorySink",
        "MemorySource",
        "Param",
        "ReferenceChange",
        "ReferenceSpec",
        "Secret",
        "SinkSpec",
        "Stage",
        "Subject",
        "Timer",
        "ValueSpec",
        "ValueState",
        "errors",
        "from_millis",
        "truncate",
    ]


@pytest.mark.parametrize(
    ("name", "module"), [("Component", amadou.components), ("Sink", amadou.plugins), ("to_micros", amadou.event_time)]
)
def test_a_name_that_has_moved_is_still_found_with_a_warning(name: str, module: ModuleType) -> None:
    with pytest.warns(DeprecationWarning, match=rf"amadou.{name} has moved: use {module.__name__}.{name}") as warned:
        assert getattr(amadou, name) is getattr(module, name)
    assert [warning.filename for warning in warned] == [__file__]


def test_an_unknown_name_is_not_found() -> None:
    with pytest.raises(AttributeError, match="module 'amadou' has no attribute 'Kafka'"):
        amadou.Kafka  # noqa: B018


@pytest.mark.parametrize(
    "package",
    [
        amadou,
        amadou.components,
        amadou.plugins,
        amadou.data_source,
        amadou.paths,
        amadou.remote_files,
        amadou.spark_versions,
        amadou.dependencies,
        amadou_runtime,
        amadou_plugins,
    ],
)
def test_exported_names_exist(package: object) -> None:
    names = getattr(package, "__all__", [])
    assert names == sorted(names)
    assert [name for name in names if not hasattr(package, name)] == []


def test_the_sdk_imports_neither_pyspark_nor_the_other_roots() -> None:
    """Three modules for connectors on Spark may import pyspark; no other module of the SDK imports them."""
    forbidden = {"pyspark", "amadou_runtime", "amadou_plugins"}
    imports = names_of("amadou").imports
    assert {(path, top(module)) for path, module, _ in imports if top(module) in forbidden} == {
        ("data_source.py", "pyspark"),
        ("remote_files.py", "pyspark"),
        ("spark_versions.py", "pyspark"),
    }
    assert [path for path, module, _ in imports if module in ("amadou.data_source", "amadou.remote_files")] == []


def test_plugins_import_only_public_names_of_the_sdk() -> None:
    wrong = []
    for path, module, names in names_of("amadou_plugins").imports:
        if top(module) == "amadou_runtime":
            wrong.append((path, module))
        elif top(module) == "amadou":
            if module not in PUBLIC:
                wrong.append((path, module))
            wrong += [(path, f"{module}.{name}") for name in names if name not in PUBLIC.get(module, ())]
    assert wrong == []


def test_the_runtime_imports_only_public_modules_and_amadou_engine_from_the_sdk() -> None:
    offered = {**PUBLIC, "amadou.engine": {*amadou.engine.__all__}, "amadou.hookspecs": {*vars(amadou.hookspecs)}}
    wrong = [
        (path, module, name)
        for path, module, names in names_of("amadou_runtime").imports
        if top(module) == "amadou"
        for name in names
        if name not in offered.get(module, ()) and f"{module}.{name}" not in offered
    ]
    assert wrong == []


@pytest.mark.parametrize("package", ["amadou_runtime", "amadou_plugins"])
def test_private_names_of_the_sdk_are_not_used_elsewhere(package: str) -> None:
    private = names_of("amadou").private - names_of(package).private
    assert [used for used in names_of(package).reached if used[2] in private] == []


@pytest.mark.parametrize("package", ROOTS)
def test_importing_a_package_does_not_import_large_libraries(package: str) -> None:
    script = f"import sys, {package}; print(sorted({{'pyspark', 'pandas', 'pyarrow', 'cattrs'}} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


@cache
def names_of(package: str) -> Names:
    names, root = Names(), ROOTS[package]
    for path in sorted(root.rglob("*.py")):
        file = str(path.relative_to(root))
        for node in ast.walk(ast.parse(path.read_text())):
            match node:
                case ast.Import():
                    names.imports.extend((file, alias.name, []) for alias in node.names)
                case ast.ImportFrom(module=str(module), level=0):
                    names.imports.append((file, module, [alias.name for alias in node.names]))
                case ast.FunctionDef(name=name) | ast.ClassDef(name=name) if is_private(name):
                    names.private.add(name)
                case ast.Name(id=name, ctx=ast.Store()) if is_private(name):
                    names.private.add(name)
                case ast.Attribute(attr=name) if is_private(name):
                    names.reached.append((file, node.lineno, name))
                    if isinstance(node.ctx, ast.Store):
                        names.private.add(name)
    return names


def is_private(name: str) -> bool:
    return name.startswith("_") and not name.startswith("__")


def top(module: str) -> str:
    return module.partition(".")[0]
