"""Turns dead letters into tests that fail with the same errors."""

import os
import re
import sys
from collections.abc import Iterable, Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

import attrs

from amadou import Component, Job
from amadou.engine import LATE_EVENTS, unpack
from amadou.errors import LoadError
from amadou.event_time import from_micros
from amadou.text import error_type
from amadou_runtime.command.load_job import load_job
from amadou_runtime.core.dead_letter_files import Letter
from amadou_runtime.core.failure import shown_state
from amadou_runtime.testing.source_code import SourceCode

_FRAME = re.compile(r'File "(.+)", line (\d+)')


@attrs.frozen
class Case:
    """Letters of one kind, which become one test.

    :param letter: the first letter of the kind
    :param alike: number of letters of the kind
    """

    letter: Letter
    alike: int = 1


def cases_of(letters: Iterable[Letter]) -> list[Case]:
    """Group letters by kind: the same error, raised by the same line in the same callback."""
    found: dict[tuple[str, ...], Case] = {}
    for letter in letters:
        fields = letter.fields
        frames = _FRAME.findall(fields["traceback"])
        what = (error_type(fields["error"]), *frames[-1]) if frames else (fields["error"],)
        kind = (fields["handler"], fields["callback"], *what)
        known = found.get(kind)
        found[kind] = Case(letter) if known is None else attrs.evolve(known, alike=known.alike + 1)
    return list(found.values())


def load_named(target: str | None, fields: Mapping[str, Any]) -> None:
    """Load a letter's job before the letter is unpacked, since the letter may hold objects of the job's classes.

    :param target: target of `amadou run` for the job; without it the job is looked for in its handler's module
    :param fields: the letter as JSON
    :raises LoadError: the job cannot be loaded
    """
    load_job(target or find_job(fields))


def find_job(fields: Mapping[str, Any]) -> str:
    """Return the target of `amadou run` for a letter's job, which is looked for in its handler's module.

    :param fields: the letter as JSON
    :raises LoadError: the module does not have the job
    """
    module, job = fields["handler"].partition(":")[0], fields["job"]
    advice = "say where it is with --job FILE:name"
    if module == "__main__":
        raise LoadError(job, f"the job was run as a program; {advice}")
    place = f"{module}.py" if Path(f"{module}.py").is_file() else module
    try:
        load_job(place)
    except LoadError:
        if module not in sys.modules:
            raise
    names = [name for name, value in vars(sys.modules[module]).items() if isinstance(value, Job) and value.name == job]
    if not names:
        raise LoadError(place, f"it has no job named {job!r}; {advice}")
    return f"{place}:{names[0]}"


def tests_of(cases: list[Case], target: str, params: Mapping[str, str], output: Path, origin: str) -> str:
    """Return the text of a pytest file with a test for each case.

    :param target: target of `amadou run` for the job
    :param params: values of the job's parameters
    :param output: path of the file to write
    :param origin: the files of the letters
    :raises LoadError: the job cannot be found
    """
    job = load_job(target)
    source = SourceCode()
    source.need("amadou_runtime", "TestRun")
    names: set[str] = set()
    tests = []
    for case in cases:
        name = base = _name(case.letter)
        while name in names:
            name = f"{base}_{len(names) + 1}"
        names.add(name)
        tests.append("\n".join([f"def {name}():", *(f"    {line}" for line in _lines(case, job, params, source))]))
    place, colon, name = target.rpartition(":")
    if not colon:
        place, name = target, "job"
    module, path = place, []
    if place.endswith(".py"):
        module = Path(place).stem
        directory = os.path.relpath(Path(place).resolve().parent, output.resolve().parent)
        path = ["import sys", "from pathlib import Path", ""]
        path += [f"sys.path.insert(0, str(Path(__file__).resolve().parent / {directory!r}))", ""]
    source.need(module, name if name == "job" else f"{name} as job")
    heading = [f'"""From dead letters, by `amadou reproduce {origin}`."""', ""]
    return "\n".join([*heading, *path, *source.imports(), "", "", "\n\n\n".join([*source.helpers(), *tests]), ""])


def _stored_value(spec: Any, key: Any, part: bytes) -> Any:
    """Return the value for `TestRun.set_state`."""
    if isinstance(spec, Component):
        return spec.opened(key, unpack(part), None).value
    return shown_state(spec, key, part)


def _name(letter: Letter) -> str:
    error = error_type(letter.fields["error"]).rpartition(".")[2]
    words = re.sub(r"(?<=[a-z])(?=[A-Z])", "_", error).lower()
    return f"test_{letter.fields['callback']}_without_{re.sub('[^a-z0-9_]+', '_', words)}"


def _lines(case: Case, job: Job, params: Mapping[str, str], source: SourceCode) -> list[str]:
    fields, packed = case.letter.fields, case.letter.packed
    key = source.of(packed["key"])
    comment = [f"# {line}" for line in fields["error"].splitlines()]
    if case.alike > 1:
        comment.append(f"# the first of {case.alike} letters with this error from this line")
    lines = [*comment, f"run = TestRun(job{f', params={dict(params)!r}' if params else ''})"]
    at = f", source={fields['source']!r}" if fields["source"] is not None and len(job.sources) > 1 else ""
    if fields["callback"] == "key_event":
        lines.append(f"run.add_record({source.of(packed['record'])}{at})")
    else:
        timestamp = datetime.fromisoformat(fields["timestamp"])
        for name, part in packed["state"].items():
            spec = job.specs.get(name)
            value = source.of(_stored_value(spec, packed["key"], part))
            written = f", written={source.of(timestamp)}" if spec is not None and spec.ttl is not None else ""
            timer = packed["next_timers"].get(name)
            at = "" if timer is None else f", next_timer={source.of(from_micros(timer))}"
            lines.append(f"run.set_state({name!r}, {key}, {value}{written}{at})")
        timers = [(from_micros(micros), tag) for micros, tag in packed["timers"]]
        if fields["callback"] == "on_timer_expired":
            timers.append((timestamp, fields["tag"]))
        lines += [f"run.set_timer({key}, {source.of(time)}{f', {tag!r}' if tag else ''})" for time, tag in timers]
        if fields["watermark"] is not None:
            lines.append(f"run.add_watermark({source.of(datetime.fromisoformat(fields['watermark']))})")
        if fields["callback"] in ("on_event", LATE_EVENTS):
            lines.append(f"run.add_event({source.of(packed['record'])}{at})")
    return [*lines, "letters = run.run().dead_letters", "assert not letters, letters[0].traceback"]
