"""The plan and the result of a replay of dead letters."""

import base64
import hashlib
from collections import Counter
from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any

import attrs

from amadou import Job
from amadou.engine import check_key, pack, unpack
from amadou.errors import LoadError
from amadou.event_time import from_micros, to_micros
from amadou.plugins import RunSummary
from amadou.text import shown_value
from amadou_runtime.core.failed_call import FailedCall
from amadou_runtime.formats.documents import UNREADABLE, exact
from amadou_runtime.runs.dead_letter_files import Letter, stage_of

CALLBACKS = ("key_event", "on_event", "on_timer_expired")
"""Handler callbacks whose dead letters can be replayed. Failed calls of components can also be replayed."""
CALL = "call"
"""Value of `ReplayedLetter.callback` for every function that a component called."""
_SHOWN = 100
_STEP = 10_000
"""Maximum number of dead letters that one batch replays."""


@attrs.frozen
class ReplayedLetter:
    """A dead letter to replay.

    :param id: the dead letter's id: the hash of its line, and a number that distinguishes equal lines
    :param callback: the callback that failed: one of `CALLBACKS`, or `CALL`
    :param source: the name of the record's or event's source; `None` for timers and calls
    :param content: the record; or the event's key, timestamp and value; or the timer's key, time in microseconds and
        tag; or the fields of a `FailedCall`. The record of a `FromPort` source is the time of the callback that
        collected the value, and the encoded value
    :param stage: the stage that wrote the dead letter; empty in a job with one handler
    """

    id: str
    callback: str
    source: str | None
    content: Any
    stage: str = ""

    def line(self) -> str:
        """Return the dead letter as a line of text."""
        return f"{self.id} {base64.b64encode(pack([self.callback, self.source, self.content])).decode()}"

    @classmethod
    def of_line(cls, line: str) -> "ReplayedLetter":
        """Return the dead letter from a line of text that `line` returned."""
        name, _, packed = line.partition(" ")
        return cls(name, *unpack(base64.b64decode(packed)))


@attrs.frozen
class Plan:
    """The dead letters to replay, and the numbers of dead letters that are skipped.

    :param steps: the dead letters to replay in each batch, all of the same stage
    :param before: number of dead letters that earlier replays processed
    :param others: number of dead letters that cannot be replayed, by callback
    """

    steps: list[list[ReplayedLetter]]
    before: int
    others: Mapping[str, int]


@attrs.frozen
class Replay:
    """Result of a replay of dead letters.

    :param summary: summary of the replay's batches; `None` if none of the dead letters can be replayed
    :param letters: number of dead letters that this replay processed
    :param before: number of dead letters that were skipped because an earlier replay processed them
    :param others: number of dead letters that cannot be replayed, by callback
    """

    summary: RunSummary | None
    letters: int
    before: int
    others: Mapping[str, int]

    def __str__(self) -> str:
        lines = [f"dead letters replayed: {self.letters:,}"]
        if self.before:
            lines.append(f"skipped (already replayed): {self.before:,}")
        lines += [f"skipped (cannot be replayed): {count:,} from {name}" for name, count in self.others.items()]
        return "\n".join([*lines, *([] if self.summary is None else [str(self.summary)])])


def plan_of(letters: Iterable[Letter], job: Job, replayed: frozenset[str] | set[str]) -> Plan:
    """Return the plan for replaying dead letters.

    :param replayed: the ids of dead letters that earlier replays processed
    :raises LoadError: a dead letter is from another job, needs a source or component that the job does not have, or is
        damaged
    """
    found: dict[str, list[ReplayedLetter]] = {stage: [] for stage in job.by_stage}
    others, seen = Counter[str](), Counter[str]()
    for number, letter in enumerate(letters, start=1):
        fields = letter.fields
        digest = hashlib.sha256(letter.line).hexdigest()[:32]
        seen[digest] += 1
        stage = stage_of(letter.fields, job)
        callback = fields["callback"]
        if callback not in CALLBACKS and not letter.packed.get("call"):
            others[callback] += 1
        elif callback in ("key_event", "on_event") and letter.packed["record"] is None:
            others[f"{callback} (record could not be encoded)"] += 1
        else:
            try:
                again = _replayed(f"{digest}-{seen[digest]}", letter, job.by_stage[stage])
            except LoadError:
                raise
            except UNREADABLE as error:
                what = f"dead letter {number:,} of those passed, of {shown_value(callback, _SHOWN)}, is damaged"
                raise LoadError(job.name, f"{what}: remove its line ({error!r})") from error
            found[stage].append(attrs.evolve(again, stage=stage))
    fresh = {stage: [letter for letter in of if letter.id not in replayed] for stage, of in found.items()}
    before = sum(len(of) - len(fresh[stage]) for stage, of in found.items())
    return Plan([step for of in fresh.values() for step in _steps(of)], before, others)


def _replayed(name: str, letter: Letter, job: Job) -> ReplayedLetter:
    """
    :param job: the stage that wrote the letter, as a job
    """
    fields, packed = letter.fields, letter.packed
    callback, source = fields["callback"], fields["source"]
    if callback == "on_timer_expired":
        check_key(packed["key"])
        time, tag = to_micros(datetime.fromisoformat(fields["timestamp"])), exact(fields["tag"], str)
        return ReplayedLetter(name, callback, None, [packed["key"], time, tag])
    if callback not in CALLBACKS:
        return ReplayedLetter(name, CALL, None, list(_failed_call(letter, job)))
    if source not in job.sources:
        raise LoadError(job.name, f"the job has no source {source!r}, which a dead letter needs: add this source")
    record = packed["record"]
    if callback == "on_event":
        key, timestamp, _ = record = list(record)
        check_key(key)
        to_micros(timestamp)
    if callback == "key_event" and source in job.fed_sources:
        record = [fields["timestamp"] and datetime.fromisoformat(fields["timestamp"]), record]
    return ReplayedLetter(name, callback, source, record)


def _failed_call(letter: Letter, job: Job) -> FailedCall:
    fields, packed = letter.fields, letter.packed
    component, arguments, watermark = packed["call"]
    is_made_by_name = hasattr(job.handler, "on_recover_window")
    if component not in job.components and not is_made_by_name:
        raise LoadError(job.name, f"a dead letter needs the window or join {component!r}: declare it in the handler")
    check_key(packed["key"])
    from_micros(watermark)
    return FailedCall(
        packed["key"],
        to_micros(datetime.fromisoformat(fields["timestamp"])),
        component,
        fields["callback"],
        arguments,
        watermark,
        packed["state"][component],
        packed["next_timers"].get(component),
    )


def _steps(letters: Iterable[ReplayedLetter]) -> list[list[ReplayedLetter]]:
    """Split the dead letters into batches that preserve the order of each key's callbacks. A batch first repeats the
    components' calls, then fires timers by time and tag, and then processes the events, merged from all sources.
    """
    steps: list[list[ReplayedLetter]] = []
    step = _Step()
    for letter in letters:
        if not step.takes(letter):
            steps.append(step.letters)
            step = _Step()
        step.add(letter)
    return [*steps, step.letters] if step.letters else steps


class _Step:
    """The dead letters that one batch replays, in the order in which they were read."""

    def __init__(self) -> None:
        self.letters: list[ReplayedLetter] = []
        self._sources: set[str | None] = set()
        self._has_records = False
        self._last: dict[Any, Any] = {}
        """For each key, the last dead letter, represented by the event's source or by the timer's time and tag."""

    def takes(self, letter: ReplayedLetter) -> bool:
        if len(self.letters) >= _STEP:
            return False
        if self._has_records or letter.callback == "key_event":  # the keys of a record's events are not known yet
            return self._sources <= {letter.source}
        last = self._last.get(letter.content[0])
        if letter.callback == CALL:
            return last is None
        if letter.callback == "on_event":
            return last is None or isinstance(last, tuple) or last == letter.source
        return last is None or (isinstance(last, tuple) and last < tuple(letter.content[1:]))

    def add(self, letter: ReplayedLetter) -> None:
        self.letters.append(letter)
        self._sources.add(letter.source)
        if letter.callback == "key_event":
            self._has_records = True
        elif letter.callback != CALL:
            of_timer = letter.callback == "on_timer_expired"
            self._last[letter.content[0]] = tuple(letter.content[1:]) if of_timer else letter.source
