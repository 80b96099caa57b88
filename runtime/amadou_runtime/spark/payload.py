"""Sends a job to the workers."""

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
    """A job in a worker: opened once, kept while the worker lives. Does not hold state of subjects."""

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
        """Return the worker, after calling the handler's `open` once."""
        if not self._open:
            self.operator.open()
            self._open = True
        return self


@attrs.frozen
class Payload:
    """A job in pickled form.

    :param pickled: the job, and the classes that its workers cannot import
    :param modules: source of the modules that are not installed
    :param first: modules that workers import before they load the job
    :param run: id of the run: each run begins with a new handler, in workers that Spark re-uses
    :param groups: number of key groups
    :param ranges: number of key ranges
    :param worker: class of the workers
    """

    pickled: bytes = attrs.field(repr=False)
    modules: dict[str, shipping.ModuleSource] = attrs.field(repr=False)
    first: frozenset[str]
    run: str
    groups: int
    ranges: int
    worker: type[Worker]

    def load(self) -> Worker:
        """Return the job in this worker. It is loaded once: handlers, codecs and connections are costly."""
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
        """Pickle a value for workers that have the job."""
        return shipping.dumps(value, self.modules)[0]


_workers: dict[str, Worker] = {}


def _rest_collector() -> None:
    """Keep Python from looking for garbage among the many objects of a batch, which are all freed when it ends. Cycles
    that callbacks leave are collected a hundred times less often.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(200_000, 50, 1000)


def payload_for(job: Job, *, groups: int, ranges: int, worker: type[Worker] = Worker) -> Payload:
    """Return the job as workers receive it.

    Modules that are not installed, such as the job file and modules beside it, are sent with the job. Workers import
    installed modules themselves.

    :raises JobError: a part of the job cannot be pickled
    """
    from pyspark import cloudpickle

    keyed = {name: KeyedSource(source) for name, source in job.sources.items()}
    light = attrs.evolve(job, handler=handler_for(job), sources=keyed, plugins=[named_codecs(job)])
    modules = shipping.sources()
    for module in shipping.travelling():  # for objects that Spark itself pickles, such as a user's source
        cloudpickle.register_pickle_by_value(module)
    try:
        pickled, first = shipping.dumps((light, _carried_types(modules)), modules)
    except Exception as error:
        raise cannot_travel(job, error) from error
    return Payload(pickled, modules, first, uuid.uuid4().hex, groups, ranges, worker)


def _carried_types(modules: Mapping[str, Any]) -> dict[str, type]:
    """Return the classes of values that are sent by value, by the name that packed values use for them.

    :param modules: modules whose source is sent
    """
    names = shipping.without_source(modules)
    types = {type_reference(found): found for name in names for found in _data_types(sys.modules[name], name)}
    for type_ in types.values():  # workers have no module to look up the names of a `__main__` in
        with suppress(NameError):
            hints = resolved_annotations(type_)
            type_.__annotations__ = {name: hints[name] for name in vars(type_).get("__annotations__", ())}
    return types


def _data_types(holder: Any, module: str, within: str = "") -> Iterator[type]:
    """Return the classes of values in a module, including nested classes."""
    for name, found in list(vars(holder).items()):
        if isinstance(found, type) and (found.__module__, found.__qualname__) == (module, f"{within}{name}"):
            if _is_data(found):
                yield found
            yield from _data_types(found, module, f"{within}{name}.")


def _is_data(type_: type) -> bool:
    return has_fields(type_) or issubclass(type_, Enum)
