"""The rules for the handler of a job."""

import inspect
import sys
from collections import Counter
from collections.abc import Iterator, Mapping
from types import CodeType, FunctionType
from typing import TYPE_CHECKING, Any, Final

from amadou._components.component import ComponentCallbacks
from amadou._handler.handler import Handler
from amadou._handler.lookup import Lookup
from amadou._handler.port import SinkSpec, declared_specs
from amadou._handler.reference import ON_CHANGE
from amadou._handler.vectorized import VectorizedHandler
from amadou._jobs.checks.connectors import OWN_SINKS
from amadou.dependencies import DependencyCallbacks
from amadou.errors import AmadouError

if TYPE_CHECKING:
    from amadou._jobs.job import Job


def is_handler(job: "Job") -> Iterator[str]:
    handler = job.handler
    if handler is None:
        yield "the job has no handler: pass handler=, or stages= for several handlers"
    elif isinstance(handler, type) and issubclass(handler, Handler):
        yield f"the handler is the class {handler.__name__}: pass an instance, {handler.__name__}()"
    elif not isinstance(handler, Handler):
        yield f"the handler must be an instance of a subclass of amadou.Handler, not {handler!r}"


def on_event(job: "Job") -> Iterator[str]:
    if type(job.handler).on_event is Handler.on_event:
        yield f"{_named(job)} has no on_event(self, subject, event): define it"


def are_not_async(job: "Job") -> Iterator[str]:
    for callback, function in _callbacks(job).items():
        if inspect.iscoroutinefunction(function) or inspect.isasyncgenfunction(function):
            yield (
                f"{_named(job)}.{callback} is async: make it a plain function (a callback that waits would block all "
                "keys)"
            )


def do_not_yield(job: "Job") -> Iterator[str]:
    for callback, function in _callbacks(job).items():
        if callback != "key_event" and inspect.isgeneratorfunction(function):
            advice = _in_place_of_yield(callback)
            yield f"{_named(job)}.{callback} has a yield, so calling it does nothing: {advice}"


def take_a_change(job: "Job") -> Iterator[str]:
    for callback in _defined_by(DependencyCallbacks):
        function = getattr(job.handler, callback, None)
        if callable(function) and len(inspect.signature(function).parameters) != 1:
            yield f"{_named(job)}.{callback} must take one argument, the change: define {callback}(self, change)"


def specs(job: "Job") -> Iterator[str]:
    for attribute, spec in declared_specs(job.handler).items():
        of = f"{_named(job)}.{attribute}"
        try:
            spec.check()
        except AmadouError as error:
            yield f"{of}: {error}"
        if spec._name is None:
            yield f"{of} has no name: pass name= to a spec that is created at run time"
        elif isinstance(spec, SinkSpec) and spec._name in OWN_SINKS:
            yield f"{of}: the port name {spec._name!r} is reserved: use a different name"


def names_of_specs(job: "Job") -> Iterator[str]:
    declared = declared_specs(job.handler)
    counts = Counter(spec._name for spec in declared.values() if spec._name is not None)
    for name, count in counts.items():
        if count > 1:
            attributes = ", ".join(attribute for attribute, spec in declared.items() if spec._name == name)
            yield (
                f"the name {name!r} is used by {count} specs of {_named(job)} ({attributes}): use a different name for "
                "each spec"
            )


def dead_letters_of_lookups(job: "Job") -> Iterator[str]:
    for attribute, spec in declared_specs(job.handler).items():
        if isinstance(spec, Lookup) and spec.on_failure == "dead_letter" and job.on_error != "dead_letter":
            yield f'{_named(job)}.{attribute} has on_failure="dead_letter": set on_error="dead_letter" on the job'


def retired_specs(job: "Job") -> Iterator[str]:
    for spec in declared_specs(job.handler).values():
        if isinstance(job.retired, Mapping) and spec._name in job.retired:
            yield (
                f"retired contains {spec._name!r}, but {_named(job)} declares it: remove the name from retired, or "
                "rename the spec"
            )


def timers_have_a_callback(job: "Job") -> Iterator[str]:
    if not job.has_timers:
        for method in _timer_setters(type(job.handler)):
            yield (
                f"{_named(job)}.{method} sets a timer without a callback: define on_timer_expired(self, subject, "
                "timestamp)"
            )


def workers_can_import_it(job: "Job") -> Iterator[str]:
    module, name = sys.modules.get(type(job.handler).__module__), _named(job)
    if module is not None and module.__name__ != "__main__" and getattr(module, "__file__", None) is None:
        yield f"workers cannot import {name}, because the module {module.__name__} has no file: move {name} to a file"


RULES: Final = (
    *(on_event, are_not_async, do_not_yield, take_a_change, specs, names_of_specs),
    *(dead_letters_of_lookups, retired_specs, timers_have_a_callback, workers_can_import_it),
)
"""The rules for a handler that `is_handler` accepts."""


def _named(job: "Job") -> str:
    return type(job.handler).__name__


def _callbacks(job: "Job") -> dict[str, Any]:
    """Return what the handler has under the names of callbacks."""
    bases = (DependencyCallbacks, Handler, VectorizedHandler, ComponentCallbacks)
    names = [ON_CHANGE, *(name for base in bases for name in _defined_by(base))]
    return {name: getattr(job.handler, name, None) for name in names}


def _defined_by(base: type) -> list[str]:
    return [name for name, value in vars(base).items() if inspect.isfunction(value) and not name.startswith("_")]


def _in_place_of_yield(callback: str) -> str:
    """Return the advice for a callback that contains a yield."""
    if callback in ("open", "close"):
        return "remove the yield, prepare in open(), and clean up in close()"
    if callback in ("for_job", "key_batch", "on_recover_window"):
        return "return the value"
    return "collect values with self.<port>.collect(subject, value)"


def _timer_setters(handler: type) -> list[str]:
    """Return the names of a handler's methods whose code mentions `set_timer`. Methods of base classes are included,
    except those of `Handler`.
    """
    found: dict[str, Any] = {}
    for owner in reversed(handler.__mro__):
        if owner not in (Handler, object):
            found.update(vars(owner))
    return [
        name
        for name, value in found.items()
        if isinstance(value, FunctionType) and any("set_timer" in code.co_names for code in _codes(value.__code__))
    ]


def _codes(code: CodeType) -> Iterator[CodeType]:
    """Yield the code objects of a function and of its nested functions."""
    yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _codes(constant)
