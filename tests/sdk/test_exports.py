"""The exports of the three packages, the imports that they may use, and the cost of importing them."""

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import amadou
import amadou.data_source
import amadou.dependencies
import amadou.engine
import amadou.errors
import amadou.event_time
import amadou.fields
import amadou.hookspecs
import amadou.paths
import amadou.remote_files
import amadou.spark_versions
import amadou.text
import amadou_plugins
import amadou_runtime

ROOTS = {package.__name__: Path(package.__file__ or "").parent for package in (amadou, amadou_runtime, amadou_plugins)}
PUBLIC = {
    amadou.__name__: {*amadou.__all__},
    "amadou.data_source": {*amadou.data_source.__all__},
    "amadou.paths": {*amadou.paths.__all__},
    "amadou.remote_files": {*amadou.remote_files.__all__},
    "amadou.spark_versions": {*amadou.spark_versions.__all__},
    "amadou.dependencies": {*amadou.dependencies.__all__},
    **{
        module.__name__: {name for name in vars(module) if not name.startswith("_")}
        for module in (amadou.errors, amadou.event_time, amadou.fields, amadou.text)
    },
}
"""The public modules of the SDK and the names that others may import from them."""


def test_amadou_exports_these_names() -> None:
    assert amadou.__all__ == [
        "AmadouError",
        "BatchReport",
        "BufferingWriter",
        "Codec",
        "Component",
        "ComponentCallbacks",
        "ComponentState",
        "Counts",
        "DeadLetter",
        "DeadLetterReport",
        "DependencyChange",
        "DependsOn",
        "EventColumns",
        "FailedBatch",
        "Filtered",
        "FromPort",
        "Handler",
        "Invoke",
        "Job",
        "Key",
        "KeyGroupState",
        "KeyedEvent",
        "LateEvent",
        "LateEventReport",
        "ListSpec",
        "ListState",
        "Lookup",
        "MapSpec",
        "MapState",
        "MemorySink",
        "MemorySource",
        "Metric",
        "Param",
        "PartitionOffset",
        "PartitionReport",
        "ReferenceChange",
        "ReferenceSpec",
        "Run",
        "RunControl",
        "RunSummary",
        "Secret",
        "Sink",
        "SinkBatch",
        "SinkSpec",
        "SinkWriter",
        "Source",
        "Stage",
        "StateReader",
        "Subject",
        "TableSource",
        "Timer",
        "ValueSpec",
        "ValueState",
        "VectorizedHandler",
        "check_ran",
        "codec_for",
        "copied",
        "copied_if_possible",
        "errors",
        "from_micros",
        "from_millis",
        "hookimpl",
        "hookspec",
        "in_key_order",
        "to_micros",
        "to_millis",
        "truncate",
    ]


@pytest.mark.parametrize(
    "package",
    [
        amadou,
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
    imports = list(imports_of("amadou"))
    assert {(path, top(module)) for path, module, _ in imports if top(module) in forbidden} == {
        ("data_source.py", "pyspark"),
        ("remote_files.py", "pyspark"),
        ("spark_versions.py", "pyspark"),
    }
    assert [path for path, module, _ in imports if module in ("amadou.data_source", "amadou.remote_files")] == []


def test_plugins_import_only_public_names_of_the_sdk() -> None:
    wrong = []
    for path, module, names in imports_of("amadou_plugins"):
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
        for path, module, names in imports_of("amadou_runtime")
        if top(module) == "amadou"
        for name in names
        if name not in offered.get(module, ()) and f"{module}.{name}" not in offered
    ]
    assert wrong == []


@pytest.mark.parametrize("package", ["amadou_runtime", "amadou_plugins"])
def test_private_names_of_the_sdk_are_not_used_elsewhere(package: str) -> None:
    private, own = private_names("amadou"), private_names(package)
    reached = [
        f"{path.name}:{node.lineno} {node.attr}"
        for path in sorted(ROOTS[package].rglob("*.py"))
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Attribute) and node.attr in private - own
    ]
    assert reached == []


def private_names(package: str) -> set[str]:
    """Return the private attributes and functions that a package defines."""
    names: set[str] = set()
    for path in ROOTS[package].rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            match node:
                case ast.FunctionDef() | ast.ClassDef():
                    names.add(node.name)
                case ast.Attribute(ctx=ast.Store()):
                    names.add(node.attr)
                case ast.Name(ctx=ast.Store()):
                    names.add(node.id)
    return {name for name in names if name.startswith("_") and not name.startswith("__")}


@pytest.mark.parametrize("package", ROOTS)
def test_importing_a_package_does_not_import_large_libraries(package: str) -> None:
    script = f"import sys, {package}; print(sorted({{'pyspark', 'pandas', 'pyarrow', 'cattrs'}} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def imports_of(package: str) -> Iterator[tuple[str, str, list[str]]]:
    """Yield the imports of a package's files, also lazy ones: file, module and, for `from` imports, the names."""
    root = ROOTS[package]
    for path in sorted(root.rglob("*.py")):
        file = str(path.relative_to(root))
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Import):
                for alias in node.names:
                    yield file, alias.name, []
            elif isinstance(node, ast.ImportFrom) and node.module is not None and node.level == 0:
                yield file, node.module, [alias.name for alias in node.names]


def top(module: str) -> str:
    return module.partition(".")[0]
