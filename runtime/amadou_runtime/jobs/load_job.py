"""Loads the job that is passed to a command."""

import importlib
import importlib.util
import os
import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

import attrs

from amadou import AmadouError, Job
from amadou.errors import LoadError

_loaded_files: set[str] = set()


@attrs.frozen
class TargetParts:
    """The parts of a target.

    :param file: the job's file; `None` if the target names a module
    :param module: name of the module, or of the module that the file is imported as
    :param name: the job's name in the module
    """

    file: Path | None
    module: str
    name: str


def load_job(target: str) -> Job:
    """Import a module and return its job.

    A file is imported as a module named after the file's stem, with the file's directory first on `sys.path`. Except
    for `__name__`, the file is loaded like a script. For `MODULE:name`, the working directory is first on `sys.path`.

    :param target: `FILE:name` or `MODULE:name`; the default name is `job`
    :raises LoadError: `target` is invalid; the file, module or job does not exist; or the import failed
    """
    parts = parts_of(target)
    place, name = str(parts.file or parts.module), parts.name
    module = _module(target, parts.module) if parts.file is None else _file(target, parts.file)
    found = getattr(module, name, None)
    if isinstance(found, Job):
        return found
    jobs = [name for name, value in vars(module).items() if isinstance(value, Job)]
    why = f"{place} has no {name!r}" if found is None else f"{name!r} in {place} is {_shown(found)}, not a Job"
    if jobs:
        raise LoadError(target, f"{why}: use {' or '.join(f'{place}:{job}' for job in jobs)}")
    raise LoadError(target, f"{why} (no Job found): write {name} = Job(…) at the module's top level")


def parts_of(target: str) -> TargetParts:
    """Return the parts of a target.

    :param target: `FILE:name` or `MODULE:name`; the default name is `job`
    :raises LoadError: `target` is invalid
    """
    place, name = _parted(target)
    is_file = place.endswith(".py") or os.sep in place or os.path.isfile(place)
    return TargetParts(Path(place), Path(place).stem, name) if is_file else TargetParts(None, place, name)


def _parted(target: str) -> tuple[str, str]:
    place, colon, name = target.rpartition(":")
    if not colon or os.sep in name:  # no name; the colon, if any, is part of a path
        return target, "job"
    if not place or not name.isidentifier():
        raise LoadError(target, "name the job as FILE:name or MODULE:name, such as views.py:job")
    return place, name


def _file(target: str, path: Path) -> ModuleType:
    if not path.is_file():
        what = "is a directory, not a file" if path.is_dir() else "does not exist"
        raise LoadError(target, f"{path} {what} (looked in {Path.cwd()}): correct the path")
    path = path.resolve()
    name = path.stem
    if "." in name:
        raise LoadError(target, f"the file {path.name} cannot be imported, since its name has an extra dot: rename it")
    known = sys.modules.get(name)
    if known is not None:
        origin = getattr(known, "__file__", None)
        if origin is not None and Path(origin).resolve() == path:
            return known
        if name not in _loaded_files:
            raise LoadError(target, f"the module name {name!r} is used by {origin or 'Python'}: rename the file")
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise LoadError(target, f"{path} is not a Python file: its name must end in .py")
    module = importlib.util.module_from_spec(spec)
    _put_first(str(path.parent))
    sys.modules[name] = module
    _loaded_files.add(name)
    try:
        with _import_errors(target):
            spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    return module


def _module(target: str, name: str) -> ModuleType:
    _put_first(os.getcwd())
    with _import_errors(target, name):
        return importlib.import_module(name)


def _put_first(directory: str) -> None:
    if sys.path[:1] != [directory]:
        sys.path.insert(0, directory)


@contextmanager
def _import_errors(target: str, name: str = "") -> Iterator[None]:
    """Convert an error from importing a user's module into a `LoadError`."""
    try:
        yield
    except (AmadouError, KeyboardInterrupt):
        raise
    except SystemExit as error:
        raise LoadError(
            target, "importing the module exited the program: put main(job) under if __name__ == '__main__':"
        ) from error
    except BaseException as error:
        if isinstance(error, ModuleNotFoundError) and f"{name}.".startswith(f"{error.name}."):
            hint = f"did you mean {name}.py?" if os.path.exists(f"{name}.py") else "install it, or correct the name"
            raise LoadError(
                target, f"the module {error.name!r} is neither in this directory nor installed: {hint}"
            ) from None
        if isinstance(error, ImportError) and "attempted relative import" in str(error) and not name:
            raise LoadError(target, _of_package(target)) from None
        shown = traceback.TracebackException.from_exception(error)
        shown.stack[:] = [frame for frame in shown.stack if not _is_ours(frame.filename)]
        why = f"importing the module failed: {type(error).__name__}: {error}"
        raise LoadError(target, why, "".join(shown.format())) from error


def _of_package(target: str) -> str:
    """Return an error message, with advice, for a file that uses relative imports."""
    place, job = _parted(target)
    path = Path(place).resolve()
    root = path.parent.parent
    while (root / "__init__.py").exists():
        root = root.parent
    module = ".".join(path.relative_to(root).with_suffix("").parts)
    named = module if job == "job" else f"{module}:{job}"
    where = "" if root == Path.cwd() else f", from the directory {root}"
    return f"the file uses relative imports: load it as the module {named}{where}"


def _is_ours(filename: str) -> bool:
    return filename in (__file__, importlib.__file__) or filename.startswith("<frozen importlib")


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 80 else f"a {type(value).__name__}"
