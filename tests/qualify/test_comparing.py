"""The model and the comparison of scripts/qualify, without Spark and without faults."""

from collections import Counter
from pathlib import Path

import orjson
import pytest
from attrs import evolve
from tests.qualify.counts import STAGES, Model, Sum, job_of
from tests.qualify.faulted_run import FaultedRun, Setup
from tests.qualify.soak import FLAT, Sample, growth
from tests.qualify.systems import Systems

from amadou_runtime import TestRun


@pytest.mark.parametrize("stages", [1, 2])
def test_the_job_writes_what_the_model_says_and_nothing_is_late(stages: int) -> None:
    model = Model(50, seed=3, millis_apart=40)
    job = job_of("files", ["files"], "", stages=stages, padding=10, pace=100, moments=False)
    params = {"IN": "in", **{f"{stage}_FILES".upper(): "out" for stage in STAGES[:stages]}}
    run = TestRun(job, params=params)
    for _ in range(10):
        run.add_records(model.draw(1000), source="events").end_batch()
    result = run.run(flush=True)
    for stage in STAGES[:stages]:
        written = result.records("sums") if stages == 1 else result.records("sums", stage=stage)
        assert Counter(written) == model.sums(stage)
    assert not result.late
    assert len(model.sums("counts")) > 100


def test_a_lost_a_doubled_and_a_wrong_result_are_seen(tmp_path: Path) -> None:
    def compared(sums: list[Sum]) -> tuple[int, ...]:
        (tmp_path / "counts" / "1.jsonl").write_bytes(b"".join(orjson.dumps(each_of(sum_)) + b"\n" for sum_ in sums))
        run.outcome.lost, run.outcome.twice, run.outcome.wrong = {}, {}, {}
        run.compare()
        return tuple(run.outcome.counts[name] for name in ("lost", "twice", "wrong"))

    def each_of(sum_: Sum) -> dict[str, object]:
        return {"name": sum_.name, "minute": sum_.minute, "sum": sum_.sum, "total": sum_.total}

    run = FaultedRun(Setup(), tmp_path, 1, Systems())
    (tmp_path / "counts").mkdir()
    run.feed(2)
    first, second, *others = expected = list(run.model.sums("counts"))
    assert compared(expected) == (0, 0, 0)
    assert run.outcome.is_right
    assert compared([second, *others]) == (1, 0, 0)
    assert compared([first, first, second, *others]) == (0, 1, 0)
    assert compared([evolve(first, sum=first.sum + 1), second, *others]) == (1, 0, 1)
    assert not run.outcome.is_right


@pytest.mark.parametrize(("growth_per_sample", "is_flat"), [(0.0, True), (0.1, True), (3.0, False)])
def test_a_size_that_is_cut_from_time_to_time_is_flat_and_one_that_also_grows_is_not(
    growth_per_sample: float, is_flat: bool
) -> None:
    sizes = [100 + number % 7 * 10 + number * growth_per_sample for number in range(30)]
    samples = [Sample(number, 0, 0, 0, 0, 0, size) for number, size in enumerate(sizes)]
    assert (growth(samples, "checkpoint") <= FLAT) == is_flat
    assert growth(samples, "java") == 0
