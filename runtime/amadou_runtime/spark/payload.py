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
from amadou_runtime.core.keying import Keying, key_event_of, keyed_sources
from amadou_runtime.core.operator import Operator
from amadou_runtime.core.vectorized import handler_for
from amadou_runtime.formats.failure import cannot_travel, user_traceback
from amadou_runtime.formats.json_logs import log_worker
from amadou_runtime.formats.release import amadou_version
from amadou_runtime.jobs.ports import named_codecs
from amadou_runtime.jobs.stages import errors_of_stage
from amadou_runtime.spark import modules as shipping
from amadou_runtime.spark.reference_files import WorkerReferences
from amadou_runtime.spark.worker_setup import check_amadou_version
from amadou_runtime.spark.zip_imports import keep_zip_directories


class Worker:
    """A stage of a job in a worker process. A worker is opened once and reused for all batches of a run. A worker does
    not contain subjects' state.

    :param job: the stage as a job
    """

    is_of_test_run = False

    def __init__(self, job: Job, run: str, groups: int) -> None:
        self.job = job
        self.operator = self.operator_of(job, run)
        updating = job.reference_sources
        self.keying = {name: self.keying_of(job, name, 1 if name in updating else groups) for name in job.sources}
        self.references = WorkerReferences(job)
        self._open = False

    def operator_of(self, job: Job, run: str) -> Operator:
        """Return the operator; overridden for test runs."""
        return Operator(job, run=run)

    def keying_of(self, job: Job, source: str, groups: int) -> Keying:
        """Return the keying of a source; overridden for test runs."""
        return Keying(job, source, key_event_of(job, source), groups)

    def opened(self) -> "Worker":
        """Return the worker; the first call also calls the handler's `open`."""
        if not self._open:
            self.operator.open()
            self._open = True
        return self


@attrs.frozen
class Payload:
    """A stage of a job in pickled form.

    :param pickled: all stages of the job by name, and the classes that workers cannot import
    :param modules: source code of the modules that are not installed
    :param first: modules that workers import before they load the job
    :param run: id of the run; each run starts with a new handler, even in workers that Spark reuses
    :param groups: number of key groups
    :param ranges: number of key ranges
    :param worker: class of the workers
    :param job: the job's name
    :param version: the driver's version of amadou
    :param stage: the stage's name; empty for a job with one handler
    """

    pickled: bytes = attrs.field(repr=False)
    modules: dict[str, shipping.ModuleSource] = attrs.field(repr=False)
    first: frozenset[str]
    run: str
    groups: int
    ranges: int
    worker: type[Worker]
    job: str
    version: str | None
    stage: str = ""

    def of_stage(self, stage: str) -> "Payload":
        """Return another stage of the same job."""
        return attrs.evolve(self, stage=stage)

    def load(self) -> Worker:
        """Load the stage in this worker process, once per run: handlers, codecs and connections are costly to create.
        All stages of the job are loaded together.

        :raises RunError: the worker has a different version of amadou, or cannot load the job
        """
        workers = _workers.get(self.run)
        if workers is None:
            _workers.clear()
            log_worker(self.job)
            check_amadou_version(self.version)
            workers = {name: self.worker(job, self.run, self.groups) for name, job in self._stages().items()}
            _workers[self.run] = workers
            _rest_collector()
            keep_zip_directories()
        return workers[self.stage]

    def opened(self) -> Worker:
        """Load the stage, and return the opened worker.

        :raises CallbackError: the handler's `open` failed
        """
        worker = self.load()
        with errors_of_stage(self.stage):
            return worker.opened()

    def _stages(self) -> dict[str, Job]:
        shipping.take(self.modules)
        know_types({})
        try:
            stages, types = shipping.loads(self.pickled, self.first)
        except Exception as error:
            raise RunError(
                "the job cannot be loaded in a worker. Workers import a job's modules again: install what they import, "
                f"and open files and connections in the handler's open() ({type(error).__name__}: {error})\n"
                f"{user_traceback(error)}"
            ) from error
        know_types(types)
        return stages  # type: ignore[no-any-return]

    def dumps(self, value: Any) -> bytes:
        """Pickle a value for workers that have loaded the job."""
        return shipping.dumps(value, self.modules)[0]


_workers: dict[str, dict[str, Worker]] = {}
"""The stages that this process has loaded, by run and stage."""


def _rest_collector() -> None:
    """Make Python's garbage collector run far less often. The objects of a batch are freed without the collector
    when the batch ends. Only reference cycles that callbacks leave behind are freed later than by default.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(200_000, 50, 1000)


def payload_for(job: Job, *, groups: int, ranges: int, worker: type[Worker] = Worker) -> Payload:
    """Return the job in the form that is sent to workers. The payload is that of the first stage; see `of_stage`.

    Modules that are not installed, such as the job file and modules beside it, are sent with the job. Workers import
    installed modules themselves.

    :raises JobError: a part of the job cannot be pickled
    """
    from pyspark import cloudpickle

    light = {name: _light(stage) for name, stage in job.by_stage.items()}
    modules = shipping.sources()
    for module in shipping.travelling():  # for objects that Spark itself pickles, such as a user's source
        cloudpickle.register_pickle_by_value(module)
    try:
        pickled, first = shipping.dumps((light, _carried_types(modules)), modules)
    except Exception as error:
        raise cannot_travel(job, error) from error
    run, version = uuid.uuid4().hex, amadou_version()
    return Payload(pickled, modules, first, run, groups, ranges, worker, job.name, version, next(iter(light)))


def _light(stage: Job) -> Job:
    return attrs.evolve(stage, handler=handler_for(stage), sources=keyed_sources(stage), plugins=[named_codecs(stage)])


def _carried_types(modules: Mapping[str, Any]) -> dict[str, type]:
    """Return the enums and the classes with fields that are sent by value, by the names that packed values use.

    :param modules: modules whose source code is sent
    """
    names = shipping.without_source(modules)
    types = {type_reference(found): found for name in names for found in _data_types(sys.modules[name], name)}
    for type_ in types.values():  # workers do not have the `__main__` module in which names are looked up
        with suppress(NameError):
            hints = resolved_annotations(type_)
            type_.__annotations__ = {name: hints[name] for name in vars(type_).get("__annotations__", ())}
    return types


def _data_types(holder: Any, module: str, within: str = "") -> Iterator[type]:
    """Yield a module's enums, and its classes that have fields, including nested classes."""
    for name, found in list(vars(holder).items()):
        if isinstance(found, type) and (found.__module__, found.__qualname__) == (module, f"{within}{name}"):
            if _is_data(found):
                yield found
            yield from _data_types(found, module, f"{within}{name}.")


def _is_data(type_: type) -> bool:
    return has_fields(type_) or issubclass(type_, Enum)
