"""How a job travels to the workers."""

import gc
import sys
import uuid
from collections.abc import Iterator, Mapping
from contextlib import suppress
from enum import Enum
from typing import Any

import attrs

from amadou import Job
from amadou.engine import know_types, resolved_annotations, type_reference
from amadou.errors import RunError
from amadou.fields import has_fields
from amadou_runtime.core.failure import cannot_travel, user_traceback
from amadou_runtime.core.keying import KeyedSource, Keying, key_event_of
from amadou_runtime.core.operator import Operator
from amadou_runtime.core.ports import named_codecs
from amadou_runtime.core.vectorized import handler_for
from amadou_runtime.spark import modules as shipping


class Worker:
    """A job in a worker: opened once, kept while the worker lives. Holds no state of subjects."""

    def __init__(self, job: Job, run: str, groups: int) -> None:
        self.job = job
        self.operator = self.operator_of(job, run)
        self.keying = {name: self.keying_of(job, name, groups) for name in job.sources}
        self._open = False

    def operator_of(self, job: Job, run: str) -> Operator:
        """Return the operator; test runs have their own."""
        return Operator(job, run=run)

    def keying_of(self, job: Job, source: str, groups: int) -> Keying:
        """Return the keying of a source; test runs have their own."""
        return Keying(job, source, key_event_of(job, source), groups)

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
    :param modules: the source of modules that are not installed
    :param first: those that workers import before they load the job
    :param run: names the run: each begins with the handler anew, in workers that Spark re-uses
    :param groups: how many key groups there are
    :param ranges: and how many ranges of them
    :param worker: the class of workers
    """

    pickled: bytes = attrs.field(repr=False)
    modules: dict[str, shipping.ModuleSource] = attrs.field(repr=False)
    first: frozenset[str]
    run: str
    groups: int
    ranges: int
    worker: type[Worker]

    def load(self) -> Worker:
        """The job in this worker. Loaded once: handlers, codecs and connections are costly."""
        worker = _workers.get(self.run)
        if worker is None:
            _workers.clear()
            worker = _workers[self.run] = self.worker(self._job(), self.run, self.groups)
            _rest_collector()
        return worker

    def _job(self) -> Job:
        shipping.take(self.modules)
        know_types({})
        try:
            job, types = shipping.loads(self.pickled, self.first)
        except Exception as error:
            raise RunError(
                f"the job cannot be loaded in a worker: {type(error).__name__}: {error}. Workers import the modules of "
                "a job anew: open files and connections in the handler's open(), not where a module is imported\n"
                f"{user_traceback(error)}"
            ) from error
        know_types(types)
        return job  # type: ignore[no-any-return]

    def dumps(self, value: Any) -> bytes:
        """A value, pickled as workers load it that have the job."""
        return shipping.dumps(value, self.modules)[0]


_workers: dict[str, Worker] = {}


def _rest_collector() -> None:
    """Keep Python from looking for garbage among the many objects of a batch, which all go when it ends. Cycles that
    callbacks leave are collected a hundred times less often.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(200_000, 50, 1000)


def payload_for(job: Job, *, groups: int, ranges: int, worker: type[Worker] = Worker) -> Payload:
    """The job, ready to travel.

    Modules that are not installed, such as the job file and what lies beside it, travel with the job; installed ones
    are imported by the workers.

    :raises JobError: something of it cannot be pickled
    """
    from pyspark import cloudpickle

    keyed = {name: KeyedSource(source) for name, source in job.sources.items()}
    light = attrs.evolve(job, handler=handler_for(job), sources=keyed, plugins=[named_codecs(job)])
    modules = shipping.sources()
    for module in shipping.travelling():  # for what Spark itself pickles: a source of the user's, say
        cloudpickle.register_pickle_by_value(module)
    try:
        pickled, first = shipping.dumps((light, _carried_types(modules)), modules)
    except Exception as error:
        raise cannot_travel(job, error) from error
    return Payload(pickled, modules, first, uuid.uuid4().hex, groups, ranges, worker)


def _carried_types(modules: Mapping[str, Any]) -> dict[str, type]:
    """The classes of values that travel by value, by the name that packed values have for them.

    :param modules: those whose source travels
    """
    names = shipping.without_source(modules)
    types = {type_reference(found): found for name in names for found in _data_types(sys.modules[name], name)}
    for type_ in types.values():  # workers have no module in which names of a `__main__` could be looked up
        with suppress(NameError):
            hints = resolved_annotations(type_)
            type_.__annotations__ = {name: hints[name] for name in vars(type_).get("__annotations__", ())}
    return types


def _data_types(holder: Any, module: str, within: str = "") -> Iterator[type]:
    """The classes of values in a module, those inside other classes among them."""
    for name, found in list(vars(holder).items()):
        if isinstance(found, type) and (found.__module__, found.__qualname__) == (module, f"{within}{name}"):
            if _is_data(found):
                yield found
            yield from _data_types(found, module, f"{within}{name}.")


def _is_data(type_: type) -> bool:
    return has_fields(type_) or issubclass(type_, Enum)
