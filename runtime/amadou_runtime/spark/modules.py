"""Sends modules to the workers. Modules that are not installed are sent as source code, and the workers import these
modules under the same names. In a worker, the job, records and stored state therefore refer to the same classes.

If a module has no source code, as in a notebook, or runs as `__main__`, its classes and functions are sent by value.
"""

import importlib
import io
import pickle
import sys
import sysconfig
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import _lru_cache_wrapper, cached_property, lru_cache  # the type of cached functions has no public name
from importlib.abc import ExecutionLoader, MetaPathFinder
from importlib.machinery import SOURCE_SUFFIXES, ModuleSpec, PathFinder
from importlib.util import decode_source, spec_from_loader
from itertools import accumulate
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any, TypeVar

import attrs

_OURS = ("amadou", "amadou_runtime", "amadou_plugins", "pyspark")
_INSTALLED = tuple({sysconfig.get_path("stdlib"), sysconfig.get_path("platstdlib")})


@attrs.frozen
class ModuleSource:
    """A module in the form that is sent to workers.

    :param file: path of the module's file on the driver
    :param packed: compressed source code; `None` for a namespace package
    :param is_package: `True` if the module is a package
    """

    file: str
    packed: bytes | None = attrs.field(repr=False)
    is_package: bool


def travelling() -> Iterator[ModuleType]:
    """Return the loaded modules that are neither installed nor part of amadou."""
    return (module for module in list(sys.modules.values()) if _travels(module))


def sources() -> dict[str, ModuleSource]:
    """Return the modules to send and their namespace packages, by name. Modules without source code are left out."""
    found: dict[str, ModuleSource] = {}
    for module in travelling():
        source = _source(module)
        if source is None:
            continue
        found[module.__name__] = ModuleSource(
            module.__file__ or "", zlib.compress(source.encode()), hasattr(module, "__path__")
        )
        parent = module.__name__.rpartition(".")[0]
        while parent and getattr(sys.modules.get(parent), "__file__", None) is None:
            found[parent] = ModuleSource("", None, True)
            parent = parent.rpartition(".")[0]
    return found


def without_source(modules: Mapping[str, ModuleSource]) -> set[str]:
    """Return the names of the modules that workers cannot import. Their classes and functions are sent by value."""
    return {"__main__", *(module.__name__ for module in travelling())} - modules.keys()


def dumps(value: Any, modules: Mapping[str, ModuleSource]) -> tuple[bytes, frozenset[str]]:
    """Pickle a value for workers that have received `modules`. Return the bytes and the modules to import first."""
    from pyspark import cloudpickle

    first: set[str] = set()
    by_value = without_source(modules)
    base: Any = cloudpickle.Pickler

    class Pickler(base):  # type: ignore[misc]
        def reducer_override(self, value: Any) -> Any:
            if isinstance(value, ModuleType) and value.__name__ in modules:
                return importlib.import_module, (value.__name__,)
            if isinstance(value, type | FunctionType | TypeVar) and value.__module__ in modules:
                if _is_there(value):
                    return _qualname(value)
                first.add(value.__module__)  # names in annotations are looked up in this module
            if isinstance(value, _lru_cache_wrapper) and (value.__module__ in by_value or not _is_there(value)):
                return _cached, (value.__wrapped__, value.cache_parameters())
            if type(value) is cached_property:  # contains a lock in Python 3.11
                return _property, (value.func, value.attrname)
            reduced = super().reducer_override(value)
            if isinstance(value, type) and isinstance(reduced, tuple) and len(reduced) > 2:
                reduced[2][0]["__qualname__"] = value.__qualname__  # otherwise lost when sent by value
            return reduced

    into = io.BytesIO()
    Pickler(into).dump(value)
    return into.getvalue(), frozenset(first)


def loads(pickled: bytes, first: Iterable[str] = ()) -> Any:
    """Unpickle a value that `dumps` pickled, in a worker that has received the modules."""
    for name in first:
        importlib.import_module(name)
    return pickle.loads(pickled)


def take(modules: Mapping[str, ModuleSource]) -> None:
    """Make this worker import modules from the source code that was sent. Discard the versions from earlier runs."""
    former = [finder for finder in sys.meta_path if isinstance(finder, _Importer)]
    for finder in former:
        sys.meta_path.remove(finder)
    brought = {name for each in (modules, *(finder.modules for finder in former)) for name in _with_source(each)}
    for name in list(sys.modules):
        if any(part in brought for part in accumulate(name.split("."), "{}.{}".format)):
            del sys.modules[name]
    sys.meta_path.insert(0, _Importer(modules))


class _Importer(ExecutionLoader, MetaPathFinder):
    """Finds and loads modules from the source code that was sent with a job."""

    def __init__(self, modules: Mapping[str, ModuleSource]) -> None:
        self.modules = modules

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        found = self.modules.get(fullname)
        if found is None:
            return None
        if found.packed is not None:
            return spec_from_loader(fullname, self)
        there = PathFinder.find_spec(fullname, path)
        if there is not None:
            return there
        empty = ModuleSpec(fullname, None, is_package=True)
        empty.submodule_search_locations = []
        return empty

    def get_source(self, fullname: str) -> str:
        packed = self.modules[fullname].packed
        assert packed is not None
        return zlib.decompress(packed).decode()

    def get_filename(self, fullname: str) -> str:
        return self.modules[fullname].file

    def is_package(self, fullname: str) -> bool:
        return self.modules[fullname].is_package


def _travels(module: ModuleType) -> bool:
    file = getattr(module, "__file__", None)
    name = getattr(module, "__name__", "__main__")
    if not file or name == "__main__" or sys.modules.get(name) is not module:
        return False
    if name.partition(".")[0] in _OURS:
        return False
    return not file.startswith(_INSTALLED) and "site-packages" not in file and "dist-packages" not in file


def _source(module: ModuleType) -> str | None:
    file = Path(module.__file__ or "")
    try:
        if file.suffix in SOURCE_SUFFIXES and file.is_file():
            return decode_source(file.read_bytes())
        source: str | None = module.__loader__.get_source(module.__name__)  # type: ignore[union-attr]
        return source
    except (AttributeError, ImportError, OSError, SyntaxError, UnicodeError):  # the file was deleted or is not Python
        return None


def _with_source(modules: Mapping[str, ModuleSource]) -> Iterator[str]:
    return (name for name, module in modules.items() if module.packed is not None)


def _qualname(value: Any) -> str:
    return str(getattr(value, "__qualname__", value.__name__))


def _is_there(value: Any) -> bool:
    """Return `True` if a class or function can be looked up in its module by its name."""
    found: Any = sys.modules.get(value.__module__)
    for name in _qualname(value).split("."):
        found = getattr(found, name, None)
    return found is value


def _cached(function: Any, parameters: dict[str, Any]) -> Any:
    return lru_cache(**parameters)(function)


def _property(function: Any, name: str | None) -> Any:
    made = cached_property(function)
    made.attrname = name  # unpickling a class does not call __set_name__
    return made
