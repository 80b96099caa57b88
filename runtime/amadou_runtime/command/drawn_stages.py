"""Draws the stages of a job as text."""

from collections.abc import Iterator
from itertools import zip_longest

from amadou import Job
from amadou.engine import FedSource
from amadou_runtime.jobs.stages import readers

_ARROW = " ──▶ "


def drawn_stages(job: Job) -> Iterator[str]:
    """Yield the lines of a picture of a job's stages: a box for each, between its sources and its ports."""
    inputs = {name: _inputs(stage) for name, stage in job.by_stage.items()}
    outputs = {name: _outputs(job, name) for name in job.by_stage}
    left = [max(len(pair[side]) for pairs in inputs.values() for pair in pairs) for side in (0, 1)]
    port = max((len(name) for pairs in outputs.values() for name, _ in pairs), default=0)
    box = max(map(len, job.by_stage))
    margin = " " * (sum(left) + 2 * len(_ARROW))
    for name in job.by_stage:
        yield f"{margin}┌─{'─' * box}─┐"
        title = name
        for source, output in zip_longest(inputs[name], outputs[name]):
            before = margin if source is None else f"{source[0]:>{left[0]}}{_ARROW}{source[1]:{left[1]}}{_ARROW}"
            after = "" if output is None else f"{_ARROW}{output[0]:{port}}{_ARROW}{output[1]}"
            yield f"{before}│ {title:{box}} │{after}"
            title = ""
        yield f"{margin}└─{'─' * box}─┘"


def _inputs(stage: Job) -> list[tuple[str, str]]:
    """Return the sources of a stage, as pairs of origin and name."""
    return [
        (f"{of.stage}.{of.port}" if isinstance(of, FedSource) else type(of).__name__, name)
        for name, of in stage.sources.items()
    ]


def _outputs(job: Job, name: str) -> list[tuple[str, str]]:
    """Return the ports of a stage, as pairs of name and targets."""
    stage, fed = job.by_stage[name], readers(job, name)
    found = []
    for port in stage.ports:
        sinks = [type(sink).__name__ for of, sink in stage.all_sinks if of == port]
        targets = [*(f"stage {reader}" for reader in fed.get(port, ())), *sinks] or ["the checkpoint"]
        found.append((port, ", ".join(targets)))
    return found
