"""A job that is moved with savepoints gives what it gives without interruption."""

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import attrs
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.conformance.handlers import START, job
from tests.conformance.model import Step
from tests.conformance.test_scripts import BOUNDARIES, Machine, Script, fields, play, scripts, seconds, subject_of
from tests.savepoints import key_groups, rewritten
from tests.spark.log_storage import MemorySegments

from amadou import Job
from amadou_runtime import TestResult, TestRun
from amadou_runtime.core.key_group import KeyGroup
from amadou_runtime.core.packed_group import PackedGroup
from amadou_runtime.savepoint.savepoint import Savepoint
from amadou_runtime.spark.log.filling import fill
from amadou_runtime.spark.log.segments import Log
from amadou_runtime.spark.log.stored_log import logged_groups
from amadou_runtime.spark.packed_range import PackedRange

MOVES = ("start", "rescale", "groups", "log", "back")


@contextmanager
def directory() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="amadou-savepoints-") as made:
        yield Path(made)


def job_of(script: Script) -> Job:
    return job(
        Machine(),
        *script.sources,
        watermark_delay=script.watermark_delay,
        idle_timeout=script.idle_timeout,
        late_events=script.late_events,
        on_error=script.on_error,
    )


@attrs.define
class Given:
    """What a script gives, by key where keys are independent of each other."""

    collected: dict[Any, list[Any]] = attrs.field(factory=dict)
    late: dict[Any, list[Any]] = attrs.field(factory=dict)
    dead_letters: dict[Any, list[Any]] = attrs.field(factory=dict)
    subjects: dict[Any, Any] = attrs.field(factory=dict)
    watermark: Any = None

    def add(self, result: TestResult) -> None:
        for into, items in (
            (self.collected, [(told[1], told) for told in result.records("collected")]),
            (self.late, [(late[0], late) for late in result.late]),
            (self.dead_letters, [(letter.key, fields(letter)) for letter in result.dead_letters]),
        ):
            for key, item in items:
                into.setdefault(repr(key), []).append(item)
        self.subjects = {key: subject_of(result, key) for key in result.keys()}  # noqa: SIM118 - a method of its own
        self.watermark = seconds(result.watermark)


def uninterrupted(script: Script) -> Given:
    found = Given()
    with TestRun(job_of(script), processing_time=START) as run:
        for step in script.steps:
            if step[0] == "move":
                run.end_batch().run()
            else:
                play(run, *step)
        found.add(run.run())
    return found


def moved(script: Script, into: Path) -> Given:
    """What a script gives if each of its moves takes a savepoint and starts from it, or from an earlier one."""
    test_job = job_of(script)
    run = TestRun(test_job, processing_time=START)
    results: list[TestResult] = []
    taken: list[tuple[Path, int, int]] = []
    backs = 0
    at = 0
    while at < len(script.steps):
        step = script.steps[at]
        at += 1
        if step[0] != "move":
            play(run, *step)
            continue
        kind, key_groups_then = step[1:]
        results.append(run.end_batch().run())
        path = into / f"{len(list(into.iterdir()))}"
        run.savepoint(path)
        run.close()
        if kind == "back" and taken and backs < 3:
            backs += 1
            path, at, length = taken[-1]
            del results[length:]
        else:
            taken.append((path, at, len(results)))
            path = converted(path, kind, key_groups_then)
        Savepoint(path).verify()
        run = TestRun(test_job, savepoint=path)
    results.append(run.run())
    run.close()
    found = Given()
    for result in results:
        found.add(result)
    return found


def converted(path: Path, kind: str, groups: int) -> Path:
    """A savepoint that a job with other settings would have written with the same state."""
    savepoint = Savepoint(path)
    if kind in ("start", "back"):
        return path
    found = key_groups(savepoint, groups)
    if kind == "groups":
        found = through_groups(found)
    elif kind == "log":
        found = through_log(found, path.with_name(f"{path.name}-spill"))
    return rewritten(savepoint, found, groups, path.with_name(f"{path.name}-{kind}")).directory


def through_groups(groups: list[tuple[int, KeyGroup]]) -> list[tuple[int, KeyGroup]]:
    filled = PackedRange(None)
    filled.fill(groups)
    stored = PackedRange(filled.pack())
    return [(number, KeyGroup(PackedGroup(stored.packed(number)))) for number in sorted(stored.numbers)]


def through_log(groups: list[tuple[int, KeyGroup]], spill: Path) -> list[tuple[int, KeyGroup]]:
    segments = MemorySegments()
    fill(Log(segments, "0"), groups, "run")
    return list(logged_groups(Log(segments, "0"), spill))


@st.composite
def scripts_with_moves(draw: st.DrawFn) -> Script:
    script = draw(scripts((*BOUNDARIES, "restart", "crash"), batches=8, records=5))
    move = st.tuples(st.just("move"), st.sampled_from(MOVES), st.integers(1, 7))
    steps: list[Step] = []
    for step in script.steps:
        steps.append(step)
        if step[0] != "add_record" and draw(st.booleans()):
            steps.append(draw(move))
    return attrs.evolve(script, steps=steps)


@settings(max_examples=100, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
@given(scripts_with_moves())
@pytest.mark.rule(19)
def test_a_job_that_is_moved_gives_what_it_gives_without_interruption(script: Script) -> None:
    with directory() as into:
        assert moved(script, into) == uninterrupted(script)
