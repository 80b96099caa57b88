"""Reading dead letters from files."""

import base64
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import attrs
import orjson

from amadou.engine import DEAD_LETTERS, unpack
from amadou.errors import AmadouError, LoadError


@attrs.frozen
class Letter:
    """A dead letter.

    :param line: the line that it was read from
    :param fields: the JSON object of the line
    :param packed: the letter's packed part: `key`, `record`, `state`, `timers`, `next_timers`, and `call` for a
        component's call
    """

    line: bytes
    fields: Mapping[str, Any]
    packed: Mapping[str, Any]


def read_letters(
    paths: Iterable[Path], line: int | None = None, prepare: Callable[[Mapping[str, Any]], None] | None = None
) -> list[Letter]:
    """Return the letters of files of JSON lines, in their order.

    :param paths: files, and directories, in which the files that a sink for dead letters writes are read
    :param line: the only line to read, of the only file, counted from one
    :param prepare: the function to call with the JSON of the first letter before any is unpacked, so that it can import
        the classes of the letters' values
    :raises LoadError: a file cannot be read, or holds anything but letters; or there are no letters
    """
    files = [file for path in paths for file in _files(path)]
    shown = ", ".join(map(str, files))
    if line is not None and len(files) != 1:
        raise LoadError(shown, "a line is of one file: name that file alone")
    found = []
    for file in files:
        for letter in _letters(file, line, prepare):
            found.append(letter)
            prepare = None
    if not found:
        raise LoadError(shown, f"the file{'s hold' if len(files) > 1 else ' holds'} no dead letters")
    jobs = sorted({letter.fields["job"] for letter in found})
    if len(jobs) > 1:
        raise LoadError(shown, f"the letters are of several jobs ({', '.join(jobs)}): name the files of one of them")
    return found


def _files(path: Path) -> list[Path]:
    """Return the files of a path, in the order of their batches."""
    if not path.is_dir():
        return [path]
    found = sorted(path.glob(f"{DEAD_LETTERS}-*.jsonl"))
    if not found:
        raise LoadError(str(path), f"the directory holds no files {DEAD_LETTERS}-….jsonl")
    return found


def _letters(file: Path, line: int | None, prepare: Callable[[Mapping[str, Any]], None] | None) -> Iterator[Letter]:
    try:
        lines = file.read_bytes().splitlines()
    except OSError as error:
        raise LoadError(str(file), f"the file cannot be read: {error.strerror}") from error
    if line is not None:
        if not 1 <= line <= len(lines):
            raise LoadError(str(file), f"the file has {len(lines)} lines, and no line {line}")
        lines = [lines[line - 1]]
    for number, text in enumerate(lines, start=line or 1):
        try:
            fields = orjson.loads(text)
            for field in ("job", "handler", "callback", "error", "traceback", "source", "timestamp", "tag"):
                fields[field]
        except (ValueError, KeyError, TypeError) as error:
            raise LoadError(str(file), f"line {number} is no dead letter ({type(error).__name__}: {error})") from error
        if prepare is not None:
            prepare(fields)
            prepare = None
        try:
            letter = Letter(text, fields, unpack(base64.b64decode(fields["packed"])))
        except (ValueError, KeyError, TypeError, AmadouError) as error:
            raise LoadError(str(file), f"line {number} is no dead letter ({type(error).__name__}: {error})") from error
        yield letter
