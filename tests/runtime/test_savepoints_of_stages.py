"""Savepoints of jobs with stages, without Spark: their files, runs, test runs, upgrades, errors and commands."""

import json
import random
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.commands import amadou, output
from tests.staged import BEGIN, STEP, Groups, Place, Sums, add, line, memory_job, steps, uninterrupted

from amadou import FromPort, Handler, Job, KeyedEvent, MapSpec, MemorySink, MemorySource, SinkSpec, Stage, Subject
from amadou.errors import CheckpointError, JobError, SavepointError
from amadou_runtime import TestRun, run
from amadou_runtime.savepoint.job_savepoint import JobSavepoint, write_job_savepoint
from amadou_runtime.savepoint.savepoint import Savepoint

pytest_plugins = ["pytester"]


@pytest.fixture
def savepoint(tmp_path: Path) -> Path:
    """A savepoint of the job."""
    with TestRun(memory_job()) as test_run:
        for step in steps(random.Random(0), 2):
            add(test_run, step)
        test_run.run()
        test_run.savepoint(tmp_path / "savepoint")
    return tmp_path / "savepoint"


@pytest.mark.parametrize("kind", ["savepoint", "snapshot"])
@pytest.mark.parametrize("seed", range(5))
def test_a_test_run_continues_from_the_savepoint_or_snapshot_of_another(seed: int, kind: str, tmp_path: Path) -> None:
    chance = random.Random(seed)
    script = [(step, chance.random() < 0.5) for step in steps(chance, 6)]

    def trace_of(test_run: TestRun, number: int) -> list[Any]:
        step, ends = script[number]
        for source, record in step:
            test_run.add_record(record, source)
        if ends:
            test_run.end_batch()
        trace = test_run.run(flush=number == 5).trace
        return [(each.callback, each.stage, each.key, each.timestamp, each.watermark, each.outputs) for each in trace]

    with TestRun(memory_job()) as whole:
        expected = [trace_of(whole, number) for number in range(6)][-1]
    traces: list[Any] = []
    start: dict[str, Any] = {}
    for number in range(6):
        with TestRun(memory_job(), **start) as test_run:
            traces += trace_of(test_run, number)
            test_run.savepoint(tmp_path / str(number))
            start = {kind: tmp_path / str(number) if kind == "savepoint" else test_run.snapshot()}
    assert traces == expected


def test_runs_of_jobs_with_stages_continue_from_savepoints(tmp_path: Path) -> None:
    place, script, saved = Place(tmp_path), steps(random.Random(1), 4), None
    for number, step in enumerate(script):
        place.add(step)
        to = str(tmp_path / f"savepoint-{number}")
        run(place.job(), engine="embedded", from_savepoint=saved, to_savepoint=to, flush=number == 3)
        saved = to
    assert place.outputs() == uninterrupted(script)
    assert [list(of.manifest.sources) for of in JobSavepoint(to).stages.values()] == [["in"], ["extra"]]


def test_the_savepoint_of_a_job_with_stages_contains_a_savepoint_of_each_stage(savepoint: Path) -> None:
    manifest = json.loads((savepoint / "savepoint.json").read_text())
    assert (manifest["format"], manifest["job"], list(manifest["stages"])) == (2, "staged", ["sums", "groups"])
    whole = JobSavepoint(savepoint)
    whole.verify()
    sums, groups = (Savepoint(savepoint / "stages" / name) for name in ("sums", "groups"))
    assert (sums.job, groups.job) == ("staged.sums", "staged.groups")
    assert (list(sums.manifest.specs), list(groups.manifest.specs)) == (["pending", "total"], ["pending"])
    assert (list(sums.manifest.sources), list(groups.manifest.sources)) == (["in"], ["extra"])
    assert whole.manifest.keys == sums.manifest.keys + groups.manifest.keys
    assert whole.manifest.id not in manifest["stages"].values()


def test_the_savepoint_of_a_job_with_stages_is_complete_or_does_not_exist(savepoint: Path, tmp_path: Path) -> None:
    def copy(directory: Path) -> Any:
        shutil.copytree(savepoint / "stages" / "sums", directory)
        return Savepoint(directory).manifest

    def fail(_: Path) -> Any:
        raise CheckpointError("c", "its state cannot be read")

    with pytest.raises(CheckpointError):
        write_job_savepoint("staged", {"sums": copy, "groups": fail}, tmp_path / "other")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["savepoint"]


def test_a_test_run_loads_chosen_keys_in_each_stage(savepoint: Path) -> None:
    with TestRun(memory_job(), savepoint=savepoint, keys=["a1", "group 1"]) as test_run:
        result = test_run.run()
        assert result.keys(stage="sums") == ["a1"]
        assert result.keys(stage="groups") == ["group 1"]


def test_a_stage_that_is_added_begins_without_state(savepoint: Path, tmp_path: Path) -> None:
    with TestRun(memory_job(counts=True), savepoint=savepoint) as test_run:
        result = test_run.run(flush=True)
        assert {count for _, count in result.records("counts")} == {1}
        assert result.records("out")
        test_run.savepoint(tmp_path / "with-counts")
    assert list(JobSavepoint(tmp_path / "with-counts").stages) == ["sums", "counts", "groups"]


class Doubling(Handler):
    """Collects doubled values."""

    doubled = SinkSpec(int)

    def key_event(self, record: bytes) -> KeyedEvent[int]:
        return Sums().key_event(record)

    def on_event(self, subject: Subject, event: KeyedEvent[int]) -> None:
        self.doubled.collect(subject, 2 * event.value)


def test_a_stage_that_is_added_can_feed_a_stage_with_state(tmp_path: Path) -> None:
    def made(**stages: Stage) -> Job:
        fed = {"doubled": FromPort("doubling", "doubled", key=str)} if stages else {}
        sources = {"extra": MemorySource(), **fed}
        return Job("staged", stages={"groups": Stage(Groups(), sources, {"out": MemorySink()}), **stages})

    with TestRun(made()) as before:
        before.add_record(line("4", 1, 7)).add_watermark(BEGIN + STEP).run()
        before.savepoint(tmp_path / "before")
    added = Stage(Doubling(), {"in": MemorySource()})
    with TestRun(made(doubling=added), savepoint=tmp_path / "before") as after:
        after.add_record(line("x", 11, 2), stage="doubling").add_watermark()
        assert [[key, value] for key, _, value in after.run(flush=True).records("out")] == [["4", 7], ["4", 4]]


def test_a_stage_can_be_removed_only_if_the_job_retires_it(savepoint: Path, tmp_path: Path) -> None:
    advice = r"stages that the job does not have: sums \(.*set retired=\{'sums': \"drop\"\} on the job"
    with pytest.raises(SavepointError, match=advice):
        TestRun(memory_job(sums=False), savepoint=savepoint)
    with TestRun(memory_job(sums=False, retired={"sums": "drop"}), savepoint=savepoint) as test_run:
        assert test_run.run(flush=True).records("out")
        test_run.savepoint(tmp_path / "without")
    with TestRun(memory_job(retired={}), savepoint=tmp_path / "without") as again:
        assert again.run().keys(stage="sums") == []


def test_the_savepoint_of_a_job_with_one_handler_becomes_that_of_a_stage(tmp_path: Path) -> None:
    place, script = Place(tmp_path), steps(random.Random(5), 2)
    place.add(script[0])
    whole = place.job()
    sums = whole.stages["sums"]
    one = Job("staged", Sums(), sums.sources, {"sums": MemorySink()})
    run(one, engine="embedded", to_savepoint=str(tmp_path / "one"))
    output("savepoint", str(tmp_path / "one"), str(tmp_path / "stages"), "--as-stage", "sums", "--verify")
    place.add(script[1])
    run(whole, engine="embedded", from_savepoint=str(tmp_path / "stages"), to_savepoint=str(tmp_path / "end"))
    assert list(JobSavepoint(tmp_path / "end").stages) == ["sums", "groups"]
    with TestRun(whole, savepoint=tmp_path / "end") as test_run:
        keys = {json.loads(record)[0] for step in script for source, record in step if source == "in"}
        result = test_run.run(flush=True)
        assert {key: result.state("total", key) for key in keys} == {
            key: sum(source == "in" and json.loads(record)[0] == key for step in script for source, record in step)
            for key in keys
        }
    again = amadou("savepoint", str(tmp_path / "end"), str(tmp_path / "x"), "--as-stage", "sums")
    assert "it has stages already: sums, groups" in again.output
    wrong = amadou("savepoint", str(tmp_path / "one"), str(tmp_path / "x"), "--as-stage", "../y")
    assert "the stage name '../y' must consist of letters, digits, - and _" in wrong.output


def test_the_error_for_an_invalid_retired_stage_names_it() -> None:
    with pytest.raises(JobError, match="retired contains the stage 'sums', but the job has it: remove the name"):
        memory_job(retired={"sums": "drop"})
    with pytest.raises(JobError, match=r"retired\['old'\] must be \"drop\": the state of a stage cannot be kept"):
        memory_job(retired={"old": "keep"})


def test_the_error_for_changed_state_names_its_stage(savepoint: Path) -> None:
    class Changed(Groups):
        pending = MapSpec(str, int)

    with pytest.raises(SavepointError, match=r"stages/groups: .*pending"):
        TestRun(memory_job(groups=Changed()), savepoint=savepoint)


def test_the_error_for_damaged_files_names_their_stage(savepoint: Path, tmp_path: Path) -> None:
    stages = savepoint / "stages"
    shutil.copytree(stages / "groups", tmp_path / "groups")
    shutil.rmtree(stages / "groups")
    with pytest.raises(SavepointError, match=r"its stage groups is missing\. The savepoint is incomplete: copy it"):
        JobSavepoint(savepoint)
    with TestRun(memory_job()) as other:
        other.savepoint(tmp_path / "other")
    shutil.copytree(tmp_path / "other" / "stages" / "groups", stages / "groups")
    with pytest.raises(SavepointError, match="its stage groups belongs to another savepoint"):
        JobSavepoint(savepoint)
    shutil.rmtree(stages / "groups")
    shutil.copytree(tmp_path / "groups", stages / "groups")
    (file,) = (stages / "groups" / "state").iterdir()
    file.write_bytes(file.read_bytes()[:-30] + bytes(30))
    with pytest.raises(SavepointError, match=r"stages/groups: .*is damaged"):
        JobSavepoint(savepoint).verify()
    with pytest.raises(SavepointError, match=r"stages/groups: .*is damaged"):
        TestRun(memory_job(), savepoint=savepoint)
    file.unlink()
    with pytest.raises(SavepointError, match=r"stages/groups: the file state/.* is missing"):
        JobSavepoint(savepoint)


def test_a_savepoint_of_another_kind_of_job_is_refused(savepoint: Path, tmp_path: Path) -> None:
    one = Job("staged", Sums(), {"in": MemorySource()}, {"sums": MemorySink()})
    with pytest.raises(SavepointError, match="belongs to a job with stages, but 'staged' is a job with one handler"):
        TestRun(one, savepoint=savepoint)
    with TestRun(one) as test_run:
        test_run.savepoint(tmp_path / "one")
    with pytest.raises(SavepointError, match=r"one handler, but 'staged' is a job with stages\. .*--as-stage"):
        TestRun(memory_job(), savepoint=tmp_path / "one")
    other = Job("other", stages=memory_job().stages)
    with pytest.raises(SavepointError, match="it belongs to the job 'staged', not to 'other'"):
        TestRun(other, savepoint=savepoint)
    with pytest.raises(SavepointError, match=r"savepoint of a job with stages \(sums, groups\), not of one of them"):
        Savepoint(savepoint)


JOB = """
from tests.staged import staged_job

from amadou import MemorySink, MemorySource

job = staged_job(
    {"in": MemorySource(), "extra": MemorySource()}, {"out": MemorySink(), "counts": MemorySink()}, counts=COUNTS
)
"""


@pytest.fixture
def stages_job(savepoint: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory with the job, `stages_job.py`, and `savepoint`."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    (tmp_path / "stages_job.py").write_text(JOB.replace("COUNTS", "False"))
    return tmp_path


def test_commands_for_keys_need_the_name_of_a_stage(stages_job: Path) -> None:
    needs = "cannot load savepoint: it has several stages: name one of them with --stage (sums, groups)"
    for command in (["state", "keys", "savepoint"], ["state", "show", "savepoint", "a1"]):
        done = amadou(*command)
        assert (done.exit_code, needs in done.output) == (1, True)
        unknown = amadou(*command, "--stage", "other")
        assert "it has no stage 'other' (stages: sums, groups)" in unknown.output
    assert needs in amadou("state", "export", "savepoint", "rows.jsonl").output
    assert needs in amadou("reproduce", "--key", "a1", "savepoint", "stages_job.py").output
    with TestRun(Job("one", Sums(), {"in": MemorySource()}, {"sums": MemorySink()})) as test_run:
        test_run.savepoint(stages_job / "one")
    assert "it has no stages: omit --stage" in amadou("state", "keys", "one", "--stage", "sums").output


def test_state_show_and_state_keys_show_the_state_of_a_stage(stages_job: Path) -> None:
    listed = output("state", "keys", "savepoint", "--stage", "groups", "--json").splitlines()
    assert {json.loads(each)["key"] for each in listed} == {"group 0", "group 1", "group 2"}
    shown = output("state", "show", "savepoint", "a1", "--stage", "sums", "--job", "stages_job.py")
    assert "'a1' in job staged.sums" in shown
    assert "total" in shown
    assert amadou("state", "show", "savepoint", "a1", "--stage", "groups").exit_code == 1


def test_verifying_a_savepoint_describes_each_stage(stages_job: Path) -> None:
    shown = output("savepoint", "--verify", "savepoint")
    assert "savepoint: verified. Job staged, batch" in shown
    assert "Stage sums, watermark 2025-01-01T00:00:49+00:00" in shown
    assert "Stage groups, watermark 2025-01-01T00:00:25.500000+00:00" in shown


def test_importing_rows_changes_the_state_of_one_stage(stages_job: Path) -> None:
    output("state", "export", "savepoint", "rows.jsonl", "--stage", "sums", "--spec", "total")
    rows = [json.loads(text) | {"value": 1000} for text in (stages_job / "rows.jsonl").read_text().splitlines()]
    (stages_job / "rows.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    output("state", "import", "rows.jsonl", "changed", "--into", "savepoint", "--stage", "sums")
    JobSavepoint(stages_job / "changed").verify()
    with TestRun(memory_job(), savepoint=stages_job / "changed") as test_run:
        result = test_run.run()
        assert {result.state("total", row["key"]) for row in rows} == {1000}
        assert set(result.keys(stage="groups")) == {"group 0", "group 1", "group 2"}
    output("state", "import", "rows.jsonl", "new", "--job", "stages_job.py", "--stage", "sums")
    with TestRun(memory_job(), savepoint=stages_job / "new") as test_run:
        assert len(test_run.run().keys(stage="sums")) == len(rows)


def test_rehearse_tries_new_code_on_all_stages(stages_job: Path) -> None:
    shown = output("rehearse", "savepoint", "stages_job.py")
    assert "Stage sums" in shown
    assert "Stage groups" in shown
    assert "The new code can continue from this savepoint." in shown
    (stages_job / "in.jsonl").write_bytes(line("a1", 60) + b"\n" + line("a1", 100) + b"\n")
    (stages_job / "with_counts.py").write_text(JOB.replace("COUNTS", "True"))
    compared = output(
        *("rehearse", "savepoint", "with_counts.py", "--old", "stages_job.py"),
        *("--records", "in.jsonl", "--source", "in"),
    )
    assert "counts.counts" in compared
    assert "+ ['a1', " in compared
    (stages_job / "fewer.py").write_text(JOB.replace("counts=COUNTS", "sums=False"))
    failed = amadou("rehearse", "savepoint", "fewer.py")
    assert failed.exit_code == 1
    assert "The job would not start: it has stages that the job does not have: sums" in failed.output


def test_reproduce_writes_a_test_for_a_key_of_a_stage(pytester: pytest.Pytester, stages_job: Path) -> None:
    output("reproduce", "--key", "a1", "--stage", "sums", "savepoint", "stages_job.py")
    text = (stages_job / "test_a1.py").read_text()
    assert "run.set_state('total', 'a1', " in text
    assert "stage='sums')" in text
    pytester.runpytest_inprocess("test_a1.py").assert_outcomes(passed=1)
