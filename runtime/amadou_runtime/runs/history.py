"""What a checkpoint records about its last batches, so that people can see what a job did before it was restarted or
stopped. No run depends on these files: they can be missing or incomplete.

The directory has a file with the job's description, files with the reports of a hundred batches each, and files with
the newest dead letters and late events. A thread writes the files, at most once a second. If the process is killed,
what was not written is missing.
"""

import logging
import threading
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from functools import cache
from typing import Any, Final

import attrs
import orjson

from amadou.plugins import BatchReport, DeadLetterReport, FailedBatch, LateEventReport
from amadou_runtime.formats.documents import UNREADABLE, exact, structured
from amadou_runtime.jobs.job_document import read_job_document
from amadou_runtime.jobs.trigger import trigger_problem
from amadou_runtime.runs.files import Files

_DIRECTORY: Final = "history"
_JOB: Final = f"{_DIRECTORY}/job"
_LETTERS: Final[Mapping[str, type]] = {"dead_letters": DeadLetterReport, "late_events": LateEventReport}
"""The fields of batch reports that have a file of their own."""
_IN_FILE: Final = 100
"""Number of batches in a file."""
_MOST_FILES: Final = 50
_MOST_LETTERS: Final = 100
_MOST: Final = 2**50
"""Maximum number in a report: the sum of those of all batches fits into 64 bits."""
_PAUSE: Final = 1.0
_logger = logging.getLogger("amadou")


class HistoryWriter:
    """Writes the history of a run to its checkpoint.

    :param files: the checkpoint's files
    :param description: see `Run.description`
    :param trigger: see `Run.trigger`
    """

    def __init__(self, files: Files, description: Mapping[str, Any], trigger: str | None) -> None:
        self._files = files
        self._job = orjson.dumps(attrs.asdict(LastRun(trigger, description))).decode()
        self._lock = threading.Lock()
        self._added: list[BatchReport | FailedBatch] = []
        self._wake, self._ended = threading.Event(), threading.Event()
        self._thread: threading.Thread | None = None

    def add(self, batch: BatchReport | FailedBatch) -> None:
        """Write a batch soon."""
        if self._thread is None:
            thread = threading.Thread(target=self._write, name="amadou-history", daemon=True)
            thread.start()
            self._thread = thread  # only now: `end` can be called at any time, and joins it
        if self._thread.is_alive():
            with self._lock:
                self._added.append(batch)
            self._wake.set()

    def end(self) -> None:
        """Write what has not been written, and end. Can be called more than once."""
        self._ended.set()
        self._wake.set()
        if self._thread is not None:
            self._thread.join()

    def _write(self) -> None:
        try:
            self._files.write(_JOB, self._job)
            written = _Written(self._files)
            while not self._ended.is_set():
                self._wake.wait()
                self._wake.clear()
                written.add(self._take())
                self._ended.wait(_PAUSE)
            written.add(self._take())
        except Exception as error:  # no run depends on its history
            _logger.warning("the history of the run is not written: %s", error)

    def _take(self) -> list[BatchReport | FailedBatch]:
        with self._lock:
            taken, self._added = self._added, []
        return taken


class _Written:
    """The files of a history, with what their newest ones contain.

    :param files: the checkpoint's files
    """

    def __init__(self, files: Files) -> None:
        self._files = files
        self._numbers = sorted(_numbers(files))
        self._current = -1
        self._lines: dict[tuple[int, bool], str] = {}
        """The lines of the current file by batch, and by whether the batch failed."""
        self._letters = {name: (files.read(f"{_DIRECTORY}/{name}") or "").splitlines() for name in _LETTERS}

    def add(self, batches: Sequence[BatchReport | FailedBatch]) -> None:
        """Add batches, and write the files that change."""
        changed = False
        for batch in batches:
            if batch.number // _IN_FILE != self._current:
                if changed:
                    self._write()
                self._open(batch.number // _IN_FILE)
            changed = True
            self._lines[_key(batch)] = _line(batch)
        if changed:
            self._write()
        for name, lines in self._letters.items():
            added = [_letter_line(batch, letter) for batch in batches for letter in getattr(batch, name, ())]
            if added:
                self._letters[name] = [*lines, *added][-_MOST_LETTERS:]
                self._files.write(f"{_DIRECTORY}/{name}", "\n".join(self._letters[name]))

    def _open(self, number: int) -> None:
        self._current = number
        lines = (self._files.read(f"{_DIRECTORY}/{number}") or "").splitlines()
        self._lines = {_key(batch): line for line in lines if (batch := _batch(line)) is not None}
        self._numbers = [*(each for each in self._numbers if each != number), number]
        while len(self._numbers) > _MOST_FILES:
            self._files.remove(f"{_DIRECTORY}/{self._numbers.pop(0)}")

    def _write(self) -> None:
        self._files.write(f"{_DIRECTORY}/{self._current}", "\n".join(self._lines.values()))


def read_history(files: Files, after: int = -1) -> list[BatchReport | FailedBatch]:
    """Return the batches that a checkpoint has a record of, oldest first. Lines that cannot be read are left out.

    :param after: only batches with higher numbers
    :raises CheckpointError: the checkpoint cannot be read
    """
    letters = _letters_of(files)
    found: dict[tuple[int, bool], BatchReport | FailedBatch] = {}
    for number in sorted(_numbers(files)):
        if (number + 1) * _IN_FILE <= after:
            continue
        for line in (files.read(f"{_DIRECTORY}/{number}") or "").splitlines():
            batch = _batch(line)
            if batch is None or batch.number <= after:
                continue
            if isinstance(batch, BatchReport) and batch.number in letters:
                batch = attrs.evolve(batch, **letters[batch.number])
            found[_key(batch)] = batch
    return [found[key] for key in sorted(found, key=lambda key: (key[0], not key[1]))]


@attrs.frozen
class LastRun:
    """The trigger and the description of a run; see `Run`. The description of a run that left none is empty."""

    trigger: str | None = None
    description: Mapping[str, Any] = attrs.field(factory=dict)


def read_job(files: Files) -> LastRun:
    """Return the record of the last run; an empty one if there is none that can be read.

    :raises CheckpointError: the checkpoint cannot be read
    """
    stored = files.read(_JOB)
    try:
        found = structured(LastRun, orjson.loads(stored or ""))
        if trigger_problem(found.trigger) is not None:
            return LastRun()
        return LastRun(found.trigger, read_job_document(found.description))
    except UNREADABLE:
        return LastRun()


def _key(batch: BatchReport | FailedBatch) -> tuple[int, bool]:
    return batch.number, isinstance(batch, FailedBatch)


def _numbers(files: Files) -> list[int]:
    return [int(name) for name in files.names(_DIRECTORY) if name.isdecimal()]


def _line(batch: BatchReport | FailedBatch) -> str:
    if isinstance(batch, BatchReport) and batch.stages:  # `BatchReport.of_stages` adds up the rest
        document = {"stages": {stage: _document(each) for stage, each in batch.stages.items()}}
    else:
        document = _document(batch)
    return orjson.dumps(document).decode()


def _document(batch: BatchReport | FailedBatch) -> Any:
    """Return a batch without its dead letters and late events."""
    if isinstance(batch, BatchReport):
        batch = attrs.evolve(batch, dead_letters=(), late_events=())
    return _converter().unstructure(batch)


def _batch(line: str) -> BatchReport | FailedBatch | None:
    try:
        entry = orjson.loads(line)
        if "stages" in entry:
            stages = entry["stages"].items()
            return BatchReport.of_stages({name: _converter().structure(each, BatchReport) for name, each in stages})
        kind = FailedBatch if "failed" in entry else BatchReport
        batch: BatchReport | FailedBatch = _converter().structure(entry, kind)
    except Exception:  # cattrs raises many kinds of errors for lines that another release has written
        return None
    return batch


def _letter_line(batch: BatchReport | FailedBatch, letter: DeadLetterReport | LateEventReport) -> str:
    return orjson.dumps({"batch": batch.number, "letter": _converter().unstructure(letter)}).decode()


def _letters_of(files: Files) -> dict[int, dict[str, Any]]:
    """Return the dead letters and late events as fields of batch reports, by the number of the batch."""
    found: dict[int, dict[str, Any]] = {}
    for name, kind in _LETTERS.items():
        for line in (files.read(f"{_DIRECTORY}/{name}") or "").splitlines():
            try:
                entry = orjson.loads(line)
                number, letter = int(entry["batch"]), _converter().structure(entry["letter"], kind)
            except Exception:  # cattrs raises many kinds of errors for lines that another release has written
                continue
            found.setdefault(number, {}).setdefault(name, []).append(letter)
    return found


def _number(value: Any, type_: Any) -> int:
    if abs(exact(value, type_)) > _MOST:
        raise ValueError("a number is out of range")
    return value  # type: ignore[no-any-return]


def _time(value: Any, _: Any) -> datetime:
    found = datetime.fromisoformat(value)
    if found.tzinfo is None:
        raise ValueError("a time has no time zone")
    return found


@cache
def _converter() -> Any:
    from cattrs.preconf.orjson import make_converter

    converter = make_converter(omit_if_default=True)
    converter.register_unstructure_hook(timedelta, timedelta.total_seconds)
    converter.register_structure_hook(int, _number)
    converter.register_structure_hook(datetime, _time)
    converter.register_structure_hook(timedelta, lambda seconds, _: timedelta(seconds=seconds))
    return converter
