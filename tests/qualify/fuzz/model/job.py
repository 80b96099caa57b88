"""Runs the steps of a script, batch by batch."""

from typing import Any

import attrs
from tests.qualify.fuzz.known import Rules
from tests.qualify.fuzz.model.stage import Sent, StageModel
from tests.qualify.fuzz.scripts import KEYS, MICRO, Script, Step


@attrs.frozen
class Results:
    """What a stage gives in a script; see `script_run.observed`."""

    collected: list[list[Any]]
    late: list[list[Any]]
    diverted: list[list[Any]]
    dead_letters: list[list[Any]]
    counters: dict[str, int]
    dropped: int
    watermark: float | str | None
    entries: dict[str, int]
    state: dict[int, list[Any]]
    """State without a ttl, and timers, by key."""


def results_of_model(script: Script, rules: Rules) -> dict[str, Results]:
    """What a script gives, by stage.

    :raises LeftOut: the script depends on something that is left out
    """
    run = JobModel(script, rules)
    run.execute(script.steps)
    return {name: results_of_stage(stage) for name, stage in run.stages.items()}


class JobModel:
    def __init__(self, script: Script, rules: Rules) -> None:
        self.script = script
        self.rules = rules
        self.stages = {stage.name: StageModel(stage, rules) for stage in script.stages}
        self.now = 0

    def execute(self, steps: list[Step]) -> None:
        records: list[Step] = []
        has_begun = False
        """Whether a batch has ended since the last `run`, so that timers can be due."""
        for step in steps:
            name, *arguments = step
            if name in ("record", "many", "update"):
                records.append(step)
                continue
            if name in ("run", "flush", "snapshot", "savepoint"):
                self.run(records, has_begun, name == "flush")
                records, has_begun = [], False
                if name in ("snapshot", "savepoint"):  # another run continues
                    self.lose_memory(is_counted=name == "snapshot")
                    for stage in self.stages.values():
                        stage.clock.began = self.now
                continue
            if name == "crash":
                self.lose_memory()
            self.play_batch(records)
            records, has_begun = [], True
            if name == "watermark":
                self.advance(*arguments)
            elif name == "clock":
                for stage in self.stages.values():
                    stage.clock.pass_time(self.now, *arguments)
                self.now += arguments[0] * MICRO
            elif name == "restart":
                self.lose_memory()
        self.run(records, has_begun, flush=False)
        for stage in self.stages.values():
            stage.clock.follow(self.now)

    def run(self, records: list[Step], has_begun: bool, flush: bool) -> None:
        if has_begun or records:
            for number in range(self.script.depth if has_begun else 1):
                self.play_batch(records if number == 0 else [])
        if flush:
            last_event = max(stage.clock.last_event for stage in self.stages.values())
            for stage in self.stages.values():
                stage.clock.flush()
                stage.last_event = last_event
            for _ in range(self.script.depth):
                self.play_batch([])

    def lose_memory(self, *, is_counted: bool = True) -> None:
        for stage in self.stages.values():
            stage.lose_memory(is_counted)

    def advance(self, at: float, stage_name: str | None, source: str | None) -> None:
        """`add_watermark`."""
        time = at * MICRO
        for name, stage in self.stages.items():
            if stage_name is not None and name != stage_name:
                continue
            for external in stage.stage.external:
                if source in (None, external.name):
                    stage.clock.bring(external.name, time, self.now)

    def play_batch(self, records: list[Step]) -> None:
        sent: dict[str, list[Sent]] = {}
        for name, stage in self.stages.items():
            stage.play_batch([record for record in records if record[1] == name], sent, self.now)
            sent[name] = stage.sent
        for stage in self.stages.values():  # rule 36 b
            for source in stage.stage.fed:
                assert source.feed is not None
                stage.clock.feeding[source.name] = self.stages[source.feed].clock.watermark


def results_of_stage(stage: StageModel) -> Results:
    output = stage.output
    if stage.has_just_lost:
        stage.rules.meets("lost-at-once")
    state = {KEYS.index(key): shown(stage, of) for key, of in stage.keys.items() if not of.is_empty()}
    return Results(
        collected=output.collected,
        late=output.late,
        diverted=output.diverted,
        dead_letters=output.dead_letters,
        counters=output.counters,
        dropped=output.dropped,
        watermark=stage.clock.watermark,
        entries={name: value for name, (_, value) in stage.reference.items() if value is not None},
        state=state,
    )


def shown(stage: StageModel, of: Any) -> list[Any]:
    total, names, history, timers = of.shown()
    ttl = stage.stage.ttl
    return [
        None if "total" in ttl else total,
        None if "names" in ttl else names,
        None if "history" in ttl else history,
        timers,
    ]
