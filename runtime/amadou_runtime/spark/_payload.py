"""How a job travels to the workers."""

import dataclasses
import gc
import sys
import sysconfig
import uuid
from collections.abc import Callable, Iterable
from enum import Enum
from types import ModuleType
from typing import Any

import attrs

from amadou import Job
from amadou._wire import know_types, type_reference
from amadou_runtime._embedded import key_event_of
from amadou_runtime._failure import cannot_travel
from amadou_runtime._keying import KeyedSource, Keying
from amadou_runtime._operator import Operator
from amadou_runtime._players import scripted
from amadou_runtime._ports import named_codecs
from amadou_runtime._trace import Trace


class Worker:
    """A job in a worker: opened once, kept while the worker lives. Holds no state of subjects."""

    def __init__(self, job: Job, groups: int, traced: bool) -> None:
        self.job = job
        self.trace = Trace() if traced else None
        self.operator = Operator(job, self.trace)
        wrap: Callable[[Any], Any] = scripted if traced else lambda key_event: key_event
        self.keying = {name: Keying(job, name, wrap(key_event_of(job, name)), groups) for name in job.sources}
        self._open = False

    def opened(self) -> "Worker":
        """The worker, after the handler's `open`."""
        if not self._open:
            self.operator.open()
            self._open = True
        return self


@attrs.frozen
class Payload:
    """A job in pickled form.

    :param pickled: the job, and the classes that its workers could not import
    :param run: names the run: each begins with the handler anew, in workers that Spark re-uses
    :param groups: how many key groups there are
    :param ranges: and how many ranges of them
    :param traced: whether callbacks are watched, for test runs
    """

    pickled: bytes = attrs.field(repr=False)
    run: str
    groups: int
    ranges: int
    traced: bool

    def load(self) -> Worker:
        """The job in this worker. Loaded once: handlers, codecs and connections are costly."""
        worker = _workers.get(self.run)
        if worker is None:
            from pyspark import cloudpickle

            job, types = cloudpickle.loads(self.pickled)
            know_types(types)
            _workers.clear()
            worker = _workers[self.run] = Worker(job, self.groups, self.traced)
            _rest_collector()
        return worker


_workers: dict[str, Worker] = {}


def _rest_collector() -> None:
    """Keep Python from looking for garbage among the many objects of a batch, which all go when it ends. Cycles that
    callbacks leave are collected a hundred times less often.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(200_000, 50, 1000)


def payload_for(job: Job, *, groups: int, ranges: int, traced: bool = False) -> Payload:
    """The job, ready to travel.

    Classes and functions of modules that are not installed, such as the job file and what lies beside it, travel with
    the job; installed ones are imported by the workers.

    :raises JobError: something of it cannot be pickled
    """
    from pyspark import cloudpickle

    keyed = {name: KeyedSource(source) for name, source in job.sources.items()}
    light = attrs.evolve(job, handler=job.handler.for_job(job), sources=keyed, plugins=[named_codecs(job)])
    for module in list(sys.modules.values()):
        if _travels(module):
            cloudpickle.register_pickle_by_value(module)
    holders = (job.handler, *job.sources.values(), *(sink for _, sink in job.all_sinks))
    modules = {module for holder in holders for module in (cls.__module__ for cls in type(holder).__mro__)}
    try:
        pickled = cloudpickle.dumps((light, _carried_types(modules)))
    except Exception as error:
        raise cannot_travel(job, error) from error
    return Payload(pickled, uuid.uuid4().hex, groups, ranges, traced)


def _travels(module: ModuleType) -> bool:
    file = getattr(module, "__file__", None)
    name = getattr(module, "__name__", "__main__")
    if not file or name == "__main__" or sys.modules.get(name) is not module:
        return False
    if name.partition(".")[0] in ("amadou", "amadou_runtime", "amadou_plugins", "pyspark"):
        return False
    return not file.startswith(_INSTALLED) and "site-packages" not in file and "dist-packages" not in file


_INSTALLED = tuple({sysconfig.get_path("stdlib"), sysconfig.get_path("platstdlib")})


def _carried_types(modules: Iterable[str]) -> dict[str, type]:
    """The classes of values in modules that travel, by the name that packed values have for them."""
    return {
        type_reference(found): found
        for name in modules
        if name == "__main__" or _travels(sys.modules[name])
        for found in vars(sys.modules[name]).values()
        if isinstance(found, type) and found.__module__ == name and _is_data(found)
    }


def _is_data(type_: type) -> bool:
    return (
        attrs.has(type_)
        or dataclasses.is_dataclass(type_)
        or issubclass(type_, Enum)
        or (issubclass(type_, tuple) and hasattr(type_, "_fields"))
    )
