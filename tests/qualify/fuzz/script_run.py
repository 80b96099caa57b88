"""Runs a script on an engine, and compares what it gives with what the model says."""

import tempfile
from collections import Counter
from collections.abc import Iterable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import attrs
from tests.qualify.fuzz.handlers import MICROSECOND, PLACES, START, answers_of, at, job_of, micros
from tests.qualify.fuzz.model.job import Results
from tests.qualify.fuzz.scripts import KEYS, MICRO, UNPARSABLE, Script, Stage, Step
from tests.savepoints import written_from

from amadou_plugins.windows import WindowResult
from amadou_runtime import TestResult, TestRun
from amadou_runtime.savepoint.job_savepoint import JobSavepoint

COUNTED = (".late", ".evicted", ".lost", ".expired", ".late_sessions", "timers.not_set", "counted")


class ScriptRun:
    """A test run that runs steps. A snapshot or savepoint continues in another test run, so results are summed up."""

    def __init__(self, script: Script, **engine: Any) -> None:
        self.script = script
        self.engine = engine
        self.kinds = {stage.name: stage.kind for stage in script.stages}
        self.results = {stage.name: Results([], [], [], [], {}, 0, None, {}, {}) for stage in script.stages}
        self.now = START
        self.run = self.new_run(processing_time=self.now)

    def new_run(self, **start: Any) -> TestRun:
        lookups: dict[str, Any] = {}
        for stage in self.script.stages:
            if stage.lookup is not None:
                lookups["look"] = answers_of(stage)
        return TestRun(job_of(self.script), lookups=lookups, **self.engine, **start)

    def execute(self) -> dict[str, Results]:
        with ExitStack() as stack:
            stack.callback(lambda: self.run.close())
            for step in self.script.steps:
                self.step(step)
            self.take(self.run.run())
        return {name: attrs.evolve(each) for name, each in self.results.items()}

    def step(self, step: Step) -> None:
        match step:
            case ["record", stage, source, partition, key, seconds, value]:
                record = self.record(stage, key, seconds, value)
                self.run.add_record(record, source, partition=partition, stage=stage)
            case ["many", stage, source, partition, events]:
                self.run.add_record(("many", events), source, partition=partition, stage=stage)
            case ["update", stage, name, seconds, value]:
                source = next(each.reference for each in self.script.stages if each.name == stage)
                assert source is not None
                self.run.add_record((name, seconds, value), source.name, stage=stage)
            case ["watermark", seconds, stage, source]:
                self.run.add_watermark(at(seconds), source, stage=stage)
            case ["clock", seconds]:
                self.now += seconds * MICRO * MICROSECOND
                self.run.advance_processing_time(seconds * MICRO * MICROSECOND)
            case ["crash", after, stage]:
                self.run.crash(after, stage=stage)
            case ["run"]:
                self.run.run()
            case ["flush"]:
                self.run.run(flush=True)
            case ["snapshot"]:
                self.take(self.run.run())
                snapshot = self.run.snapshot()
                self.run.close()
                self.run = self.new_run(snapshot=snapshot)
            case ["savepoint", store, key_groups]:
                self.take(self.run.run())
                with tempfile.TemporaryDirectory() as directory:
                    taken, other = Path(directory, "taken"), Path(directory, "other")
                    self.run.savepoint(taken)
                    self.run.close()
                    written_from(store, job_of(self.script), taken, key_groups, other)
                    JobSavepoint(other).verify()
                    self.run = self.new_run(savepoint=other, processing_time=self.now)
            case [name]:
                getattr(self.run, name)()

    def record(self, stage: str, key: int, seconds: float, value: Any) -> Any:
        if self.kinds[stage] == "machine":
            return (key, seconds, value)
        if value == UNPARSABLE:
            return {"k": KEYS[key]}
        return {"k": KEYS[key], "t": at(seconds), **value}

    def take(self, result: TestResult) -> None:
        """Add the results of a test run to those before."""
        for stage in self.script.stages:
            before, new = self.results[stage.name], observed(result.stage(stage.name), stage)
            self.results[stage.name] = attrs.evolve(
                new,
                collected=before.collected + new.collected,
                late=before.late + new.late,
                diverted=before.diverted + new.diverted,
                dead_letters=before.dead_letters + new.dead_letters,
                counters=dict(Counter(before.counters) + Counter(new.counters)),
                dropped=before.dropped + new.dropped,
            )


def observed(result: TestResult, stage: Stage) -> Results:
    if stage.kind == "windowed":
        collected = [window_result(one) for one in result.records("results")]
    else:
        collected = result.records("out")
    has_port = stage.late == "divert" or any(each.settings.get("late") == "divert" for each in stage.components)
    return Results(
        collected=collected,
        late=[[PLACES[repr(event.key)], micros(event.timestamp), id_of(event.value, stage)] for event in result.late],
        diverted=[
            [PLACES[repr(late.key)], micros(late.timestamp), id_of(late.value, stage), late.by]
            for late in (result.records("late_events") if has_port else ())
        ],
        dead_letters=[letter_fields(letter, stage) for letter in result.dead_letters],
        counters={
            name.removeprefix(f"{stage.name}."): number
            for name, number in result.counters.items()
            if name.endswith(COUNTED)
        },
        dropped=result.dropped,
        watermark=micros(result.watermark),
        entries=result.reference("ref") if stage.reference is not None else {},
        state={PLACES[repr(key)]: state_of(result, key, stage) for key in result.keys()},  # noqa: SIM118 - a method
    )


def window_result(one: WindowResult) -> list[Any]:
    return ["window", PLACES[repr(one.key)], micros(one.start), micros(one.end), one.partial, one.value]


def id_of(value: Any, stage: Stage) -> Any:
    return None if stage.kind == "windowed" else value["id"]


def state_of(result: TestResult, key: Any, stage: Stage) -> list[Any]:
    timers = [[micros(timestamp), tag] for timestamp, tag in result.timers(key)]
    if stage.kind == "windowed":
        return [0, [], [], timers]
    names = [list(item) for item in result.state("names", key).items()]
    parts = {"total": result.state("total", key), "names": names, "history": result.state("history", key)}
    return [*(None if name in stage.ttl else part for name, part in parts.items()), timers]


def letter_fields(letter: Any, stage: Stage) -> list[Any]:
    """Of a dead letter: callback, source, key, time, tag, watermark, and state and timers before."""
    if letter.callback == "key_event":
        return ["key_event", letter.source, None, None, "", None, None]
    state = letter.state
    timers = [[micros(timestamp), tag] for timestamp, tag in letter.timers]
    names = [list(item) for item in state.get("names", {}).items()]
    before = [state.get("total", 0), names, state.get("history", []), timers]
    key, mark = PLACES[repr(letter.key)], micros(letter.watermark)
    return [letter.callback, letter.source, key, micros(letter.timestamp), letter.tag, mark, before]


def plain(value: Any) -> Any:
    """A value of the model or of an engine in one form: tuples are lists, times are whole, no end is infinite."""
    if isinstance(value, float):
        if value == float("inf"):
            return "end"
        return int(value) if value == int(value) else value
    if isinstance(value, list | tuple):
        return [plain(each) for each in value]
    if isinstance(value, dict):
        return {name: plain(each) for name, each in value.items()}
    return value


def differences(actual: dict[str, Results], expected: dict[str, Results], in_order: bool) -> list[str]:
    """What differs, as lines; none if nothing does.

    :param in_order: whether all keys are in one key group, so that their timers have one order (rule 6)
    """
    lines: list[str] = []
    for stage, wanted in expected.items():
        found = actual[stage]
        parts = [
            ("outputs", by_key(found.collected, 1), by_key(wanted.collected, 1)),
            ("late events", by_key(found.late, 0), by_key(wanted.late, 0)),
            ("diverted events", by_key(in_any_order(found.diverted), 0), by_key(in_any_order(wanted.diverted), 0)),
            ("dead letters", *(by_key(letters(of.dead_letters, in_order), 2) for of in (found, wanted))),
        ]
        if in_order:
            parts.append(("order of timers", {"": of_timers(found.collected)}, {"": of_timers(wanted.collected)}))
        parts += [
            (name, {"": plain(getattr(found, name))}, {"": plain(getattr(wanted, name))})
            for name in ("counters", "dropped", "watermark", "entries", "state")
        ]
        for name, of_found, of_wanted in parts:
            for key in sorted(of_found.keys() | of_wanted.keys(), key=str):
                first, second = of_found.get(key, []), of_wanted.get(key, [])
                if first != second:
                    lines += [f"{stage}: {name} {key!r}", *compared(first, second)]
    return lines


def compared(actual: Any, expected: Any) -> list[str]:
    if not (isinstance(actual, list) and isinstance(expected, list)):
        return [f"    actual:   {actual}", f"    expected: {expected}"]
    same = 0
    while same < min(len(actual), len(expected)) and actual[same] == expected[same]:
        same += 1
    lines = [f"    {same} the same"] if same else []
    lines += [f"    actual:   {each}" for each in actual[same : same + 4]]
    return lines + [f"    expected: {each}" for each in expected[same : same + 4]]


def by_key(rows: Iterable[list[Any]], place: int) -> dict[Any, list[Any]]:
    found: dict[Any, list[Any]] = {}
    for row in rows:
        found.setdefault(row[place], []).append(plain(row))
    return found


def letters(rows: list[list[Any]], in_order: bool) -> list[list[Any]]:
    """Dead letters; those of records are in any order unless the records are: Spark reads sources side by side."""
    of_records = [row for row in rows if row[0] == "key_event"]
    others = [row for row in rows if row[0] != "key_event"]
    return [*(of_records if in_order else in_any_order(of_records)), *others]


def in_any_order(rows: list[list[Any]]) -> list[list[Any]]:
    return sorted(rows, key=lambda row: str(plain(row)))


def of_timers(rows: Iterable[list[Any]]) -> list[Any]:
    """The rows of timers, and of what windows emit when they close."""
    return [plain(row) for row in rows if row[0] in ("timer", "window")]


def results_of(script: Script, **engine: Any) -> dict[str, Results]:
    return ScriptRun(script, **engine).execute()
