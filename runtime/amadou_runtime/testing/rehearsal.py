"""Tries new code on the state in a savepoint, before it is deployed: `amadou rehearse`."""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, NamedTuple

import attrs

from amadou import Job, Key, ValueSpec
from amadou.engine import Envelope, StateTable, clock_time, unpack, unpack_all
from amadou.errors import AmadouError, LoadError, SavepointError, StateDecodeError
from amadou.text import qualified
from amadou_runtime.core.keying import Keying, key_event_of
from amadou_runtime.jobs.load_job import load_job
from amadou_runtime.jobs.state_schema import described, misfits, shown_structure
from amadou_runtime.savepoint.block import Block, by_subject
from amadou_runtime.savepoint.fitting import check_fits, check_stages
from amadou_runtime.savepoint.job_savepoint import JobSavepoint
from amadou_runtime.savepoint.readable import StateFormat
from amadou_runtime.savepoint.savepoint import TEST_RUN, Savepoint, components_of
from amadou_runtime.testing.test_run import TestRun

_FAILURES: Final = 5
"""Number of failures that are kept for each spec."""


class Failure(NamedTuple):
    """An entry that the new code cannot read.

    :param key: the key
    :param stored: the stored state, as Python would show it
    :param error: the reason
    """

    key: Key
    stored: str
    error: str


@attrs.define
class SpecResult:
    """What the new code makes of the state under a name.

    :param type: the spec in the new code; empty if the new code does not declare it
    :param entries: number of entries
    :param migrated: number of entries that a migration has converted
    :param failed: number of entries that cannot be read
    :param failures: the first of them
    :param note: what happens to state that the new code does not declare
    """

    type: str
    entries: int = 0
    migrated: int = 0
    failed: int = 0
    failures: list[Failure] = attrs.field(factory=list)
    note: str = ""

    def fail(self, failure: Failure) -> None:
        """Count a failure."""
        self.failed += 1
        if len(self.failures) < _FAILURES:
            self.failures.append(failure)


@attrs.define
class Rehearsal:
    """The result of reading a savepoint with new code.

    :param problems: reasons why the job could not start at all, or not continue
    :param specs: results by name
    :param timers: number of pending timers of the handler and its components
    :param of_handler: number of pending timers of the handler
    :param held: number of held events by source
    """

    problems: list[str] = attrs.field(factory=list)
    specs: dict[str, SpecResult] = attrs.field(factory=dict)
    timers: int = 0
    of_handler: int = 0
    held: dict[str, int] = attrs.field(factory=dict)

    @property
    def has_failed(self) -> bool:
        """`True` if the new code cannot continue from the savepoint."""
        return bool(self.problems) or any(result.failed for result in self.specs.values())


def rehearse_stages(
    savepoint: JobSavepoint, job: Job, on_keys: Callable[[int], None] = lambda _: None
) -> dict[str, Rehearsal]:
    """Read all state in a savepoint with a job. Return the results by stage. Problems of the job as a whole are those
    of a stage with an empty name.

    :param on_keys: called with the number of keys read since the last call
    :raises SavepointError: the savepoint is damaged
    """
    stages = job.by_stage
    results = {name: rehearse(of, stages[name], on_keys) for name, of in savepoint.stages.items() if name in stages}
    if "" not in results:
        try:
            check_stages(job, savepoint, job.retired)
        except SavepointError as error:
            results[""] = Rehearsal([error.message])
    return results


def rehearse(savepoint: Savepoint, job: Job, on_keys: Callable[[int], None] = lambda _: None) -> Rehearsal:
    """Read all state in a savepoint of a job with one handler, or of a stage; see `rehearse_stages`."""
    result = Rehearsal()
    try:
        check_fits(job, savepoint, needs_positions=savepoint.manifest.engine != TEST_RUN)
    except AmadouError as error:
        result.problems.append(getattr(error, "message", str(error)))
    reading = _Reading(savepoint, job, result)
    for block in savepoint.blocks():
        reading.read(block)
        on_keys(block.keys)
    reading.read_references()
    for misfit in misfits(savepoint.structures, described(job)):
        found = result.specs[misfit.name]
        if found.entries and not found.failed:
            found.note = "cannot be read: see below"
    if result.of_handler and not job.has_timers:
        problem = f"{result.of_handler:,} timers are pending, but {type(job.handler).__name__} has no on_timer_expired"
        result.problems.append(problem)
    for source, number in result.held.items():
        if source not in job.sources:
            what = f"{number:,} events from the source {source!r} are held"
            result.problems.append(f"{what}, but the job has no such source")
    return result


class _Reading:
    def __init__(self, savepoint: Savepoint, job: Job, result: Rehearsal) -> None:
        self._savepoint = savepoint
        self._job = job
        self._result = result
        self._components = components_of(job)
        for name, spec in {**job.specs, **job.references}.items():
            result.specs[name] = SpecResult(shown_structure(spec.structure()))

    def read(self, block: Block) -> None:
        """Read the entries of a block."""
        self._result.timers += block.pending
        self._result.of_handler += len(block.timers[0])
        if block.group_states:
            missing = [name for name in block.group_states if name not in self._components]
            if missing:
                result = self._of(missing[0])
                result.entries += block.keys
                result.note = "stored for whole key groups: keep declaring it, or keep key_groups"
                return
            block = by_subject(block, self._components, str(self._savepoint.directory))
        for name, table in block.tables.items():
            self._read_table(name, table)
        for source, held in block.held.items():
            self._result.held[source] = self._result.held.get(source, 0) + len(held.keys)

    def read_references(self) -> None:
        """Read the entries of references."""
        for name, table in self._savepoint.references():
            result, spec = self._of(name), self._job.references.get(name)
            for key, packed in table.items():
                result.entries += 1
                if spec is None:
                    continue
                try:
                    result.migrated += spec.is_older(unpack(packed))
                    spec.shown({key: packed})
                except Exception as error:
                    result.fail(self._failure(name, key, packed, error))

    def _of(self, name: str) -> SpecResult:
        known = self._result.specs
        if name not in known:
            known[name] = SpecResult("")
            fate = self._job.retired.get(name)
            known[name].note = {
                "drop": "retired: will be dropped",
                "keep": "retired: will be kept, but not read",
                None: "not declared: stays stored; if it is a window created at run time, it is read when it is due",
            }[fate]
        return known[name]

    def _read_table(self, name: str, table: StateTable) -> None:
        result, spec = self._of(name), self._job.specs.get(name)
        result.entries += len(table.packed)
        if spec is None:
            return
        try:
            stored = unpack_all(b"".join(table.packed.values()))
        except Exception:  # the entries are read one by one, to find the one that fails
            stored = [None] * len(table.packed)
        if len(stored) != len(table.packed) or None in stored:
            stored = [_unpacked(packed) for packed in table.packed.values()]
        if isinstance(spec, ValueSpec) and spec.is_plain and Envelope not in set(map(type, stored)):
            with suppress(Exception):  # the entries are read one by one, to find those that fail
                for each in stored:
                    spec.decode(each)
                return
        for (key, packed), each in zip(table.packed.items(), stored, strict=True):
            try:
                if isinstance(each, Exception):
                    raise each
                result.migrated += spec.is_older(each)
                spec.shown_stored(key, each)
            except Exception as error:
                result.fail(self._failure(name, key, packed, error))

    def _failure(self, name: str, key: Key, packed: bytes, error: Exception) -> Failure:
        stored = StateFormat(self._savepoint.structures.get(name, ())).shown(packed)
        why = f"{type(error).__name__}: {error}"
        if isinstance(error, StateDecodeError):
            expected = getattr(error.type, "__qualname__", repr(error.type))
            why = error.why or f"expected {expected}"
        return Failure(key, stored, why)


def _unpacked(packed: bytes) -> Any:
    try:
        return unpack(packed)
    except Exception as error:
        return error


class Output(NamedTuple):
    """An output of a job.

    :param port: the port
    :param text: the value, as Python shows it
    """

    port: str
    text: str


class Difference(NamedTuple):
    """Outputs of the old and the new code that belong together; empty if only one of them has the output."""

    old: list[Output]
    new: list[Output]

    @property
    def is_same(self) -> bool:
        """`True` if the outputs are equal."""
        return self.old == self.new


def outputs_of(
    target: str,
    savepoint: Path,
    records: Path,
    source: str | None,
    stage: str | None,
    params: Mapping[str, str],
    directory: Path | None,
) -> list[Output]:
    """Process records with a job, from the state in a savepoint, in a process of its own: old and new code can have
    modules with the same names.

    :param target: the job's target for `amadou run`
    :param records: a file with a record in each line
    :param source: the source of the records; can be omitted if there is only one
    :param stage: the stage of the source; can be omitted if only one has it
    :param directory: the working directory of the process
    :raises LoadError: the job cannot be loaded, or its callbacks fail
    """
    given = json.dumps([target, str(savepoint.absolute()), str(records.absolute()), source, stage, dict(params)])
    command = [sys.executable, "-c", "from amadou_runtime.testing.rehearsal import main; main()", given]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    done = subprocess.run(
        command, capture_output=True, encoding="utf-8", errors="replace", check=False, cwd=directory, env=environment
    )
    if done.returncode:
        raise LoadError(target, f"processing {records} failed:\n{done.stderr.strip()}")
    return [Output(*json.loads(line)) for line in done.stdout.splitlines()]


def main() -> None:
    """Print the outputs of a job as JSON lines; the process that `outputs_of` starts."""
    target, savepoint, records, source, stage, params = json.loads(sys.argv[1])
    with os.fdopen(os.dup(1), "w", encoding="utf-8") as out:
        os.dup2(2, 1)  # the job's modules may print, and so may libraries in C
        sys.stdout = sys.stderr
        try:
            for output in _processed(load_job(target), Path(savepoint), Path(records), source, stage, params):
                print(json.dumps(list(output)), file=out)
        except AmadouError as error:
            print(error, file=sys.stderr)
            sys.exit(1)


def _processed(
    job: Job, savepoint: Path, records: Path, source: str | None, stage: str | None, params: Mapping[str, str]
) -> Iterator[Output]:
    lines = records.read_bytes().splitlines()
    with TestRun(job, params=params, savepoint=savepoint, keys=_keys_of(job, lines, source, params)) as run:
        run.add_records(lines, source, stage=stage).add_watermark()
        result = run.run()
        for name, of in job.by_stage.items():
            for port in of.ports:
                for value in result.stage(name).records(port):
                    yield Output(qualified(name, port), repr(value))


def _keys_of(job: Job, lines: list[bytes], source: str | None, params: Mapping[str, str]) -> list[Key] | None:
    """Return the keys of records. Only their state is needed. Return `None` for a job with stages, whose later stages
    have other keys.
    """
    if job.stages:
        return None
    job = job.with_params(params, connectors=False)
    name = source or next(iter(job.sources))
    packed = Keying(job, name, key_event_of(job, name), 1).pack(lines, clock_time()).events
    return [key for events in packed.values() for key in unpack(unpack(events)[0])]


def compared(old: list[Output], new: list[Output]) -> list[Difference]:
    """Return the outputs of the old and the new code, put together where they are equal."""
    from difflib import SequenceMatcher

    found = []
    for _, *(a, b, c, d) in SequenceMatcher(None, old, new, autojunk=False).get_opcodes():
        found.append(Difference(old[a:b], new[c:d]))
    return found
