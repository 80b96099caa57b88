"""From dead letters to tests that fail with the same errors."""

import base64
import os
import re
import sys
from collections.abc import Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

import attrs
import orjson

from amadou import Component, Job
from amadou._letters import LATE_EVENTS
from amadou._time import from_micros
from amadou._wire import unpack
from amadou.errors import AmadouError, LoadError
from amadou_runtime._failure import shown_state
from amadou_runtime._load import load_job
from amadou_runtime._source_code import SourceCode


@attrs.frozen
class Letter:
    """What a test needs of a dead letter.

    :param told: the letter as JSON
    :param packed: what the letter keeps packed: `key`, `record`, `state` and `timers`
    :param alike: how many letters of the file have the same callback, error and traceback
    """

    told: Mapping[str, Any]
    packed: Mapping[str, Any]
    alike: int = 1


def read_letters(path: Path, line: int | None) -> list[Letter]:
    """The letters of a file of JSON lines, but one alone of those that tell the same.

    :param line: take the one of this line alone, counted from one
    :raises LoadError: the file cannot be read, or does not hold dead letters
    """
    try:
        lines = path.read_bytes().splitlines()
    except OSError as error:
        raise LoadError(str(path), f"the file cannot be read: {error.strerror}") from error
    if line is not None:
        if not 1 <= line <= len(lines):
            raise LoadError(str(path), f"the file has {len(lines)} lines, and no line {line}")
        lines = [lines[line - 1]]
    found: dict[tuple[str, ...], Letter] = {}
    for number, text in enumerate(lines, start=line or 1):
        try:
            told = orjson.loads(text)
            letter = Letter(told, unpack(base64.b64decode(told["packed"])))
            same = tuple(told[name] for name in ("handler", "callback", "error", "traceback"))
        except (ValueError, KeyError, TypeError, AmadouError) as error:
            raise LoadError(str(path), f"line {number} is no dead letter ({type(error).__name__}: {error})") from error
        known = found.get(same)
        found[same] = letter if known is None else attrs.evolve(known, alike=known.alike + 1)
    if not found:
        raise LoadError(str(path), "the file holds no dead letters")
    return list(found.values())


def find_job(letter: Letter) -> str:
    """Where the job of a letter is, as `amadou run` takes it: in the module of its handler.

    :raises LoadError: it is not there
    """
    module, job = letter.told["handler"].partition(":")[0], letter.told["job"]
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


def tests_of(letters: list[Letter], target: str, params: Mapping[str, str], output: Path, origin: Path) -> str:
    """The text of a pytest file with a test for each letter.

    :param target: where the job is, as `amadou run` takes it
    :param params: values of the job's parameters
    :param output: where the file will be
    :param origin: the file of the letters
    :raises LoadError: the job cannot be found
    """
    job = load_job(target)
    source = SourceCode()
    source.need("amadou_runtime", "TestRun")
    names: set[str] = set()
    tests = []
    for letter in letters:
        name = base = _name(letter)
        while name in names:
            name = f"{base}_{len(names) + 1}"
        names.add(name)
        tests.append("\n".join([f"def {name}():", *(f"    {line}" for line in _lines(letter, job, params, source))]))
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
    return "\n".join([*heading, *path, *source.imports(), "", "", "\n\n\n".join(tests), ""])


def _stored_value(spec: Any, key: Any, part: bytes) -> Any:
    """What `TestRun.set_state` takes."""
    if isinstance(spec, Component):
        return spec.opened(key, unpack(part), None).value
    return shown_state(spec, key, part)


def _name(letter: Letter) -> str:
    error = letter.told["error"].partition(":")[0].rpartition(".")[2]
    words = re.sub(r"(?<=[a-z])(?=[A-Z])", "_", error).lower()
    return f"test_{letter.told['callback']}_without_{re.sub('[^a-z0-9_]+', '_', words)}"


def _lines(letter: Letter, job: Job, params: Mapping[str, str], source: SourceCode) -> list[str]:
    told, packed, key = letter.told, letter.packed, source.of(letter.packed["key"])
    comment = [f"# {line}" for line in told["error"].splitlines()]
    if letter.alike > 1:
        comment.append(f"# {letter.alike} letters alike, of which this is the first")
    lines = [*comment, f"run = TestRun(job{f', params={dict(params)!r}' if params else ''})"]
    at = f", source={told['source']!r}" if told["source"] is not None and len(job.sources) > 1 else ""
    if told["callback"] == "key_event":
        lines.append(f"run.add_record({source.of(packed['record'])}{at})")
    else:
        timestamp = datetime.fromisoformat(told["timestamp"])
        for name, part in packed["state"].items():
            spec = job.specs.get(name)
            value = source.of(_stored_value(spec, packed["key"], part))
            written = f", written={source.of(timestamp)}" if spec is not None and spec.ttl is not None else ""
            wake = packed["wakes"].get(name)
            woken = "" if wake is None else f", wake_at={source.of(from_micros(wake))}"
            lines.append(f"run.set_state({name!r}, {key}, {value}{written}{woken})")
        timers = [(from_micros(micros), tag) for micros, tag in packed["timers"]]
        if told["callback"] == "on_timer_expired":
            timers.append((timestamp, told["tag"]))
        lines += [f"run.set_timer({key}, {source.of(time)}{f', {tag!r}' if tag else ''})" for time, tag in timers]
        if told["watermark"] is not None:
            lines.append(f"run.add_watermark({source.of(datetime.fromisoformat(told['watermark']))})")
        if told["callback"] in ("on_event", LATE_EVENTS):
            lines.append(f"run.add_event({source.of(packed['record'])}{at})")
    return [*lines, "letters = run.run().dead_letters", "assert not letters, letters[0].traceback"]
