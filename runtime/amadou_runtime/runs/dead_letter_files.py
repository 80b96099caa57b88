"""Reads dead letters from files."""

import base64
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import datetime
from pathlib import Path
from typing import Any, Final

import attrs
import orjson

from amadou import Job
from amadou.engine import DEAD_LETTERS, unpack
from amadou.errors import LoadError
from amadou.event_time import from_micros, to_micros
from amadou_runtime.formats.documents import UNREADABLE, structured
from amadou_runtime.formats.inflating import check_uncompressed
from amadou_runtime.jobs.stages import stage_named


def _check_packed(_: Any, __: Any, packed: Any) -> None:
    """Check the form of a dead letter's state and timers.

    :raises Exception: they have another form
    """
    for name in ("key", "record", "state", "timers", "next_timers"):
        packed[name]
    for micros, tag in packed["timers"]:
        if type(micros) is not int or type(tag) is not str:
            raise TypeError("its timers have another form")
        from_micros(micros)
    for of, type_ in ((packed["state"], bytes), (packed["next_timers"], int)):
        if not all(type(name) is str and type(part) is type_ for name, part in of.items()):
            raise TypeError("its state has another form")
    if packed.get("call") is not None:
        name, arguments, micros = packed["call"][:3]
        if type(name) is not str or type(arguments) is not list or type(micros) not in (int, type(None)):
            raise TypeError("its call has another form")


@attrs.frozen
class Letter:
    """A dead letter.

    :param line: the line of JSON that the dead letter was read from
    :param fields: the JSON object in that line
    :param packed: the unpacked value of the field `packed`: a dict with `key`, `record`, `state`, `timers`,
        `next_timers`, and `call` if a component's call failed
    :raises Exception: its state or timers have another form
    """

    line: bytes
    fields: Mapping[str, Any]
    packed: Mapping[str, Any] = attrs.field(validator=_check_packed)


_HANDLER: Final = re.compile(r"[\w.]{1,500}:[\w.<>]{1,500}")


@attrs.frozen
class _Fields:
    """The fields that every dead letter has."""

    job: str
    handler: str
    callback: str
    error: str
    traceback: str
    source: str | None
    timestamp: str | None
    tag: str | None
    watermark: str | None
    packed: str


def read_letters(
    paths: Iterable[Path], line: int | None = None, prepare: Callable[[Mapping[str, Any]], None] | None = None
) -> list[Letter]:
    """Return the dead letters in files of JSON lines, in the order of the files and lines.

    :param paths: dead-letter files, or directories that contain them
    :param line: number of the line to read, starting at 1. Requires a single file. By default, all lines are read
    :param prepare: function that is called with the JSON object of the first dead letter, before any dead letter is
        unpacked; the function can import the classes of the packed values
    :raises LoadError: a file cannot be read or contains anything other than dead letters; `line` does not exist, or is
        set for multiple files; the dead letters are from multiple jobs; or there are no dead letters
    """
    files = [file for path in paths for file in _files(path)]
    shown = ", ".join(map(str, files))
    if line is not None and len(files) != 1:
        raise LoadError(shown, "a line number requires a single file: pass only one file")
    found = []
    for file in files:
        for letter in _letters(file, line, prepare):
            found.append(letter)
            prepare = None
    if not found:
        raise LoadError(shown, "no dead letters were found: check the path")
    jobs = sorted({letter.fields["job"] for letter in found})
    if len({job.rpartition(".")[0] or job for job in jobs}) > 1:  # otherwise they may be the stages of one job
        raise LoadError(shown, f"the dead letters are from multiple jobs ({', '.join(jobs)}): pass one job's files")
    return found


def stage_of(fields: Mapping[str, Any], job: Job) -> str:
    """Return the name of the stage that wrote a dead letter; empty in a job with one handler.

    :param fields: the fields of the dead letter
    :raises LoadError: another job wrote the dead letter
    """
    written_by = fields["job"]
    stage = stage_named(job, written_by)
    if stage is None:
        raise LoadError(job.name, f"the dead letters are from the job {written_by!r}: use that job")
    return stage


def _files(path: Path) -> list[Path]:
    """Return the dead-letter files in a directory, in the order of their batches. For a file, return only this file."""
    if not path.is_dir():
        return [path]
    names = re.compile(rf"(.+\.)?{DEAD_LETTERS}-.*\.jsonl")  # a stage's files begin with its name
    found = sorted(file for file in path.iterdir() if names.fullmatch(file.name))
    if not found:
        raise LoadError(str(path), f"the directory contains no {DEAD_LETTERS}-….jsonl files: correct the path")
    return found


def _letters(file: Path, line: int | None, prepare: Callable[[Mapping[str, Any]], None] | None) -> Iterator[Letter]:
    try:
        lines = file.read_bytes().splitlines()
    except OSError as error:
        raise LoadError(str(file), f"the file cannot be read: {error.strerror}") from error
    if line is not None:
        if not 1 <= line <= len(lines):
            raise LoadError(str(file), f"line {line} does not exist: the file ends at line {len(lines)}")
        lines = [lines[line - 1]]
    for number, text in enumerate(lines, start=line or 1):
        try:
            fields = orjson.loads(text)
            structured(_Fields, {name: fields[name] for name in attrs.fields_dict(_Fields)})
            if not _HANDLER.fullmatch(fields["handler"]):
                raise ValueError("its handler is not the name of a class")
            for name in ("timestamp", "watermark"):
                if fields.get(name) is not None:
                    to_micros(datetime.fromisoformat(fields[name]))
        except UNREADABLE as error:
            raise LoadError(str(file), f"line {number} is not a dead letter ({error!r})") from error
        if prepare is not None:
            prepare(fields)
            prepare = None
        try:
            packed = base64.b64decode(fields["packed"])
            check_uncompressed(packed)
            letter = Letter(text, fields, unpack(packed))
        except UNREADABLE as error:
            raise LoadError(str(file), f"the data in line {number} cannot be unpacked ({error!r})") from error
        yield letter
