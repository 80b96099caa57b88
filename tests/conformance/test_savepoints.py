"""A job that savepoints move between stores and engines gives the same results as an uninterrupted job."""

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
from tests.conformance.test_scripts import (
    BOUNDARIES,
    ProgramHandler,
    Script,
    apply_step,
    fields,
    scripts,
    seconds,
    subject_of,
)
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
    with tempfile.TemporaryDirectory(prefix="amadou-savepoints-") as path:
        yield Path(path)


def job_of(script: Script) -> Job:
    return job(
        ProgramHandler(),
        *script.sources,
        watermark_delay=script.watermark_delay,
        idle_timeout=script.idle_timeout,
        late_events=script.late_events,
        on_error=script.on_error,
    )


@attrs.define
class ResultsByKey:
    """Results of a script by key, since the order across keys may differ."""

    collected: dict[Any, list[Any]] = attrs.field(factory=dict)
    late: dict[Any, list[Any]] = attrs.field(factory=dict)
    dead_letters: dict[Any, list[Any]] = attrs.field(factory=dict)
    subjects: dict[Any, Any] = attrs.field(factory=dict)
    watermark: Any = None

    def add(self, result: TestResult) -> None:
        for into, items in (
            (self.collected, [(call[1], call) for call in result.records("collected")]),
            (self.late, [(late[0], late) for late in result.late]),
            (self.dead_letters, [(dead_letter.key, fields(dead_letter)) for dead_letter in result.dead_letters]),
        ):
            for key, item in items:
                into.setdefault(repr(key), []).append(item)
        self.subjects = {key: subject_of(result, key) for key in result.keys()}  # noqa: SIM118 - a method of its own
        self.watermark = seconds(result.watermark)


def uninterrupted(script: Script) -> ResultsByKey:
    results = ResultsByKey()
    with TestRun(job_of(script), processing_time=START) as run:
        for step in script.steps:
            if step[0] == "move":
                run.end_batch().run()
            else:
                apply_step(run, *step)
        results.add(run.run())
    return results


def moved(script: Script, into: Path) -> ResultsByKey:
    """Return the results of a script in which each move starts a run from a new savepoint, or from an earlier one."""
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
            apply_step(run, *step)
            continue
        kind, new_key_groups = step[1:]
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
            path = converted(path, kind, new_key_groups)
        Savepoint(path).verify()
        run = TestRun(test_job, savepoint=path)
    results.append(run.run())
    run.close()
    by_key = ResultsByKey()
    for result in results:
        by_key.add(result)
    return by_key


def converted(path: Path, kind: str, groups: int) -> Path:
    """Return a savepoint of the same state, as a job with other settings writes it."""
    savepoint = Savepoint(path)
    if kind in ("start", "back"):
        return path
    converted_groups = key_groups(savepoint, groups)
    if kind == "groups":
        converted_groups = through_groups(converted_groups)
    elif kind == "log":
        converted_groups = through_log(converted_groups, path.with_name(f"{path.name}-spill"))
    return rewritten(savepoint, converted_groups, groups, path.with_name(f"{path.name}-{kind}")).directory


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
def test_a_job_moved_by_savepoints_gives_the_same_results_as_an_uninterrupted_job(script: Script) -> None:
    with directory() as into:
        assert moved(script, into) == uninterrupted(script)
