"""Turns dead letters into tests that fail with the same errors."""

import os
import re
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import Any

import attrs

from amadou import Job, Key, KeyedEvent
from amadou.components import Component
from amadou.engine import LATE_EVENTS, redacted, type_reference, unpack
from amadou.errors import AmadouError, LoadError
from amadou.event_time import END_OF_TIME, MICROSECOND, from_micros, to_micros
from amadou.plugins import DeadLetterReport
from amadou.text import error_type
from amadou_runtime.core.feeding import fed_value, replayed_record
from amadou_runtime.formats.documents import UNREADABLE
from amadou_runtime.formats.failure import shown_state
from amadou_runtime.jobs.load_job import load_job
from amadou_runtime.jobs.stages import stage_named
from amadou_runtime.runs.dead_letter_files import Letter, stage_of
from amadou_runtime.runs.source_code import SourceCode, comments, identifier
from amadou_runtime.savepoint.block import Block

_BEGIN = ["# -*- coding: utf-8 -*-", ""]
"""The first two lines of a file. In these lines, Python and editors look for an encoding, which must not be one that
text from data names: in some encodings, a comment or a literal can become code.
"""
_FRAME = re.compile(r'File "(.+)", line (\d+)')


@attrs.frozen
class Case:
    """A group of dead letters of the same kind, for which one test is generated.

    :param letter: the first dead letter of the kind
    :param alike: number of dead letters of the kind
    """

    letter: Letter
    alike: int = 1


@contextmanager
def readable(where: str, problem: str) -> Iterator[None]:
    """Raise a `LoadError` in place of the errors of data that has another form.

    :param where: what the error is about
    """
    try:
        yield
    except LoadError:
        raise
    except UNREADABLE as error:
        raise LoadError(where, f"{problem} ({type(error).__name__}: {error})") from error


def cases_of(letters: Iterable[Letter]) -> list[Case]:
    """Group dead letters by kind: errors of the same type, raised by the same line in the same callback of one
    handler of a job or stage.
    """
    found: dict[tuple[str, ...], Case] = {}
    for letter in letters:
        fields = letter.fields
        frames = _FRAME.findall(fields["traceback"])
        what = (error_type(fields["error"]), *frames[-1]) if frames else (fields["error"],)
        kind = (fields["job"], fields["handler"], fields["callback"], *what)
        known = found.get(kind)
        found[kind] = Case(letter) if known is None else attrs.evolve(known, alike=known.alike + 1)
    return list(found.values())


def load_named(target: str | None, fields: Mapping[str, Any]) -> None:
    """Load the job that wrote a dead letter. Call this function before you unpack the dead letter, which can contain
    objects of the job's classes.

    :param target: the job's target for `amadou run`; by default, the job is looked up in the module of its handler
    :param fields: the fields of the dead letter
    :raises LoadError: the job cannot be loaded, or is not the one that wrote the dead letter
    """
    stage_of(fields, load_job(target or find_job(fields)))


def find_job(fields: Mapping[str, Any]) -> str:
    """Return the `amadou run` target of the job that wrote a dead letter. The job is looked up in its handler's module.

    :param fields: the fields of the dead letter
    :raises LoadError: the module cannot be imported, or does not contain the job
    """
    module, job = fields["handler"].partition(":")[0], fields["job"]
    advice = "use --job FILE:name"
    if module == "__main__":
        raise LoadError(job, f"the job ran as __main__, so the dead letter does not name the job's file: {advice}")
    place = f"{module}.py" if Path(f"{module}.py").is_file() else module
    try:
        load_job(place)
    except LoadError:
        if module not in sys.modules:
            raise
    variables = [(name, value) for name, value in vars(sys.modules[module]).items() if isinstance(value, Job)]
    names = [name for name, value in variables if stage_named(value, job) is not None]
    if not names:
        raise LoadError(place, f"the module does not contain the job {job!r}: {advice}")
    return f"{place}:{names[0]}"


def tests_of(cases: list[Case], target: str, params: Mapping[str, str], output: Path, origin: str) -> str:
    """Return the text of a pytest file with a test for each case.

    :param target: `amadou run` target of the job
    :param params: values of the job's parameters; the text does not contain the secret ones
    :param output: path of the file to write
    :param origin: paths of the dead-letter files, for the heading of the pytest file
    :raises LoadError: the job cannot be loaded, or is not the one that wrote the dead letters
    """
    job = load_job(target)
    shown = without_secrets(params, job)
    source = SourceCode()
    names: set[str] = set()
    tests = []
    for case in cases:
        name = base = _name(case.letter)
        while name in names:
            name = f"{base}_{len(names) + 1}"
        names.add(name)
        with readable(target, f"a dead letter of {case.letter.fields['callback']} cannot be read"):
            tests.append(_test(name, case, job, shown, source))
    origin = f"Tests from dead letters, generated by `amadou reproduce {origin}`."
    return _file(origin, tests, target, output, source)


def test_of_report(report: DeadLetterReport, job: Job, params: Mapping[str, str]) -> str:
    """Return the text of a pytest file with a test for a dead letter. The file belongs beside the job's file.

    :param job: the job that wrote the dead letter; its parameters need not have values
    :param params: values of the job's parameters. The text contains no secrets
    :raises LoadError: the job is not in a module, or the data of the dead letter is not available
    """
    if report.packed is None:
        raise LoadError(job.name, "the data of the dead letter is too large to be kept: use amadou reproduce")
    stage = job.by_stage[report.stage]
    fields = attrs.asdict(report, recurse=False) | {
        "job": stage.name,
        "handler": type_reference(type(stage.handler)),
        "timestamp": None if report.timestamp is None else report.timestamp.isoformat(),
        "watermark": None if report.watermark is None else report.watermark.isoformat(),
    }
    with readable(job.name, "the data of the dead letter cannot be read"):
        letter = Letter(b"", fields, unpack(report.packed))
    source = SourceCode(redacted)
    shown = {name: redacted(value) for name, value in without_secrets(params, job).items()}
    target, directory = _target_of(job)
    test = _test(_name(letter), Case(letter), job, shown, source)
    heading = f"Test from a dead letter of the job {job.name}."
    return _file(heading, [test], target, directory / "test.py", source)


def without_secrets(params: Mapping[str, str], job: Job) -> dict[str, str]:
    """Return the values of parameters that may be written into a file. Test runs read the others from the environment.

    :param job: the job whose parameters have no values yet
    """
    secret = {param.name for param in job.params if param.secret}
    return {name: value for name, value in params.items() if name not in secret}


def _target_of(job: Job) -> tuple[str, Path]:
    """Return the `amadou run` target of a job that has been loaded, and the directory of its file.

    :raises LoadError: no module that has a file contains the job
    """
    own = [sys.modules[type(stage.handler).__module__] for stage in job.by_stage.values()]
    for module in [*own, *list(sys.modules.values())]:
        file = getattr(module, "__file__", None)
        for name, value in list(vars(module).items()):
            if file is not None and type(value) is Job and (value.name, _handlers(value)) == (job.name, _handlers(job)):
                is_file = module.__spec__ is None or "." not in module.__spec__.name
                place = str(file) if is_file else module.__name__
                return f"{place}:{name}", Path(file).parent
    raise LoadError(job.name, "the job is not a variable of a module: use amadou reproduce with --job")


def _handlers(job: Job) -> list[int]:
    """Return the identities of a job's handlers."""
    return [id(stage.handler) for stage in job.by_stage.values()]


def test_of_key(
    key: Key,
    blocks: Iterable[Block],
    job: Job,
    stage: str,
    target: str,
    params: Mapping[str, str],
    output: Path,
    origin: str,
    watermark: int | None,
) -> str:
    """Return the text of a pytest file with a test that begins with a key's state and timers.

    :param blocks: the key's state; see `Savepoint.find`
    :param job: the job
    :param stage: the name of the stage with the state; empty for a job with one handler
    :param target: `amadou run` target of the job
    :param params: values of the job's parameters, without secrets
    :param output: path of the file to write
    :param origin: arguments of the command, for the heading of the pytest file
    :param watermark: the job's watermark in microseconds; `None` before the first watermark
    """
    source = SourceCode()
    lines = [f"run = TestRun(job{f', params={dict(params)!r}' if params else ''})"]
    for block in blocks:
        lines += _lines_of_block(key, block, job.by_stage[stage], stage, source)
    if watermark is not None:
        lines.append(f"run.add_watermark({source.of(from_micros(watermark))})")
    lines += ["# Add the records to process: run.add_record(…)", "result = run.run()"]
    lines.append("assert not result.dead_letters, result.dead_letters[0].traceback")
    test = "\n".join([f"def {name_for_key(str(key))}():", *(f"    {line}" for line in lines)])
    heading = f"Test with the state of a key, generated by `amadou reproduce {origin}`."
    return _file(heading, [test], target, output, source)


def name_for_key(text: str) -> str:
    """Return the name of the test with the state of a key, and of its file."""
    return f"test_{identifier(text) or 'key'}"


def _lines_of_block(key: Key, block: Block, job: Job, stage: str, source: SourceCode) -> list[str]:
    """Return the lines that set the state, the timers and the held events of a key.

    :param job: the stage as a job
    """
    shown, of_stage = source.of(key), f", stage={stage!r}" if stage else ""
    lines: list[str] = []
    for name, table in block.tables.items():
        spec, packed = job.specs.get(name), table.packed[key]
        if spec is None:
            lines += comments(f"{name!r} is not declared by the job: {shown_state(None, key, packed)!r}")
            continue
        expires = table.expires.get(key)
        written = from_micros(0) if expires is None or spec.ttl is None else from_micros(expires) - spec.ttl
        times = _times(spec, written, table.next_timers.get(key), source)
        lines += _state_lines(spec, name, key, packed, f"{times}{of_stage}", source)
    for _, micros, tag in zip(*block.timers, strict=True):
        tagged = f", {source.of(tag)}" if tag else ""
        lines.append(f"run.set_timer({shown}, {source.of(from_micros(micros))}{tagged}{of_stage})")
    for origin, held in block.held.items():
        for micros, value in zip(held.times, held.values, strict=True):
            event = source.of(KeyedEvent(key, from_micros(micros), unpack(value)))
            lines.append(f"run.add_event({event}, {origin!r}{of_stage})  # held")
    return lines


def _file(heading: str, tests: list[str], target: str, output: Path, source: SourceCode) -> str:
    """Return the text of a pytest file."""
    place, colon, name = target.rpartition(":")
    if not colon:
        place, name = target, "job"
    module, path = place, []
    if place.endswith(".py"):
        module = Path(place).stem
        directory = os.path.relpath(Path(place).resolve().parent, output.resolve().parent)
        path = ["import sys", "from pathlib import Path", ""]
        path += [f"sys.path.insert(0, str(Path(__file__).resolve().parent / {directory!r}))", ""]
    source.need("amadou_runtime", "TestRun")
    source.need(module, name, "job")
    lines = [*_BEGIN, *comments(" ".join(heading.splitlines())), "", *path, *source.imports(), "", ""]
    text = "\n".join([*lines, "\n\n\n".join([*source.helpers(), *tests]), ""])
    try:
        compile(text.encode(), str(output), "exec")
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise LoadError(
            target, f"a value or class has no form as Python code ({error}): write the test by hand"
        ) from None
    return text


def _times(spec: Any, written: datetime, next_timer: int | None, source: SourceCode) -> str:
    """Return the arguments of `TestRun.set_state` with times, as source code.

    :param written: the time at which state with a ttl was written
    """
    shown = f", written={source.of(written)}" if spec is not None and spec.ttl is not None else ""
    return shown if next_timer is None else f"{shown}, next_timer={source.of(from_micros(next_timer))}"


def _state_lines(spec: Any, name: str, key: Any, part: bytes, more: str, source: SourceCode) -> list[str]:
    """Return the lines that set a part of a key's state. State that cannot be read is a comment.

    :param more: the other arguments of `TestRun.set_state`, as source code
    """
    try:
        unpack(part)
    except AmadouError as error:
        return comments(f"the state of {name!r} cannot be read, so this test begins without it: {error}")
    return [f"run.set_state({name!r}, {source.of(key)}, {source.of(_stored_value(spec, key, part))}{more})"]


def _stored_value(spec: Any, key: Any, part: bytes) -> Any:
    """Return the value to pass to `TestRun.set_state`."""
    if isinstance(spec, Component):
        return spec.opened(key, unpack(part), None).value
    return shown_state(spec, key, part)


def _name(letter: Letter) -> str:
    error = error_type(letter.fields["error"]).rpartition(".")[2]
    words = re.sub(r"(?<=[a-z])(?=[A-Z])", "_", error).lower()
    return f"test_{identifier(letter.fields['callback'])}_without_{identifier(words)}"


def _test(name: str, case: Case, job: Job, params: Mapping[str, str], source: SourceCode) -> str:
    return "\n".join([f"def {name}():", *(f"    {line}" for line in _lines(case, job, params, source))])


def _lines(case: Case, job: Job, params: Mapping[str, str], source: SourceCode) -> list[str]:
    fields, packed = case.letter.fields, case.letter.packed
    stage = stage_of(fields, job)
    of, within = job.by_stage[stage], f", stage={stage!r}" if stage else ""
    lines = comments(fields["error"])
    if case.alike > 1:
        lines.append(f"# first of {case.alike} dead letters with this type of error, raised by the same line")
    lines.append(f"run = TestRun(job{f', params={dict(params)!r}' if params else ''})")
    has_others = len(of.sources) > 1 or stage
    at = f", source={fields['source']!r}{within}" if fields["source"] is not None and has_others else ""
    if fields["callback"] == "key_event":
        fed, time = of.fed_sources.get(fields["source"]), fields["timestamp"]
        record = packed["record"] if fed is None else fed_value(fed, replayed_record(None, packed["record"]))
        collected = "" if fed is None or time is None else f", timestamp={source.of(datetime.fromisoformat(time))}"
        lines.append(f"run.add_record({source.of(record)}{at}{collected})")
    else:
        lines += _lines_of_key(case.letter, of, within, source)
        if fields["watermark"] is not None:
            lines += _watermark(datetime.fromisoformat(fields["watermark"]), job, stage, source)
        if fields["callback"] in ("on_event", LATE_EVENTS):
            lines.append(f"run.add_event({source.of(packed['record'])}{at})")
    return [*lines, "letters = run.run().dead_letters", "assert not letters, letters[0].traceback"]


def _lines_of_key(letter: Letter, job: Job, within: str, source: SourceCode) -> list[str]:
    """Return the lines that set the state and the timers of a key as the callback found them."""
    fields, packed = letter.fields, letter.packed
    key, timestamp = packed["key"], datetime.fromisoformat(fields["timestamp"])
    lines = []
    for name, part in packed["state"].items():
        spec = job.specs.get(name)
        times = _times(spec, timestamp, packed["next_timers"].get(name), source)
        lines += _state_lines(spec, name, key, part, f"{times}{within}", source)
    timers = [(from_micros(micros), tag) for micros, tag in packed["timers"]]
    if fields["callback"] == "on_timer_expired":
        timers.append((timestamp, fields["tag"]))
    for time, tag in timers:
        tagged = f", {source.of(tag)}" if tag else ""
        lines.append(f"run.set_timer({source.of(key)}, {source.of(time)}{tagged}{within})")
    return lines


def _watermark(watermark: datetime, job: Job, stage: str, source: SourceCode) -> list[str]:
    """Return the lines that advance the watermark of a stage to a time."""
    batches, micros = _behind(job, stage)
    reached = from_micros(min(to_micros(watermark) + micros, END_OF_TIME))
    return [f"run.add_watermark({source.of(reached)})", *["run.end_batch()"] * batches]


def _behind(job: Job, stage: str) -> tuple[int, int]:
    """Return the number of batches, and the microseconds, by which the watermark of a stage follows those of the stages
    that no other stage feeds.
    """
    of = job.by_stage[stage]
    behind = [(*_behind(job, each.stage), of.delays[name] // MICROSECOND) for name, each in of.fed_sources.items()]
    batches = max((1 + batches for batches, _, _ in behind), default=0)
    return batches, max((micros + delay for _, micros, delay in behind), default=0)
