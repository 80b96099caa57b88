"""Savepoints of earlier versions can be read: see README.md."""

import json
from pathlib import Path
from typing import Any

import pytest
from tests.stored.jobs.format_1 import BEGIN, KEYS, MINUTE, Values, columns_job, item, values_job
from typer.testing import CliRunner

from amadou_runtime import TestRun, run
from amadou_runtime.command.cli import app
from amadou_runtime.savepoint.savepoint import Savepoint
from amadou_runtime.savepoint.stored_keys import key_state
from amadou_runtime.testing.rehearsal import rehearse

HERE = Path(__file__).parent
FORMATS = sorted(HERE.glob("savepoints-*"), key=lambda path: int(path.name.partition("-")[2]))
formats = pytest.mark.parametrize("stored", FORMATS, ids=lambda path: path.name)


def test_there_are_savepoints_of_the_first_format() -> None:
    assert FORMATS[0].name == "savepoints-1"


@formats
@pytest.mark.parametrize("name", ["all", "columns-groups", "columns-log"])
def test_savepoints_of_each_format_are_whole(stored: Path, name: str) -> None:
    Savepoint(stored / name).verify()


@formats
def test_all_kinds_of_state_are_read_from_savepoints_of_each_format(stored: Path) -> None:
    savepoint = Savepoint(stored / "all")
    assert (savepoint.manifest.keys, savepoint.manifest.timers) == (7, 32)
    assert savepoint.manifest.held == {"events": 3}
    result = rehearse(savepoint, values_job)
    assert not result.has_failed, result
    assert {name: spec.entries for name, spec in result.specs.items()} == dict.fromkeys(values_job.specs, 7)
    with TestRun(values_job, savepoint=savepoint.directory) as test_run:
        result = test_run.run()
        assert sorted(map(str, result.keys())) == sorted(map(str, KEYS))
        for number, key in enumerate(KEYS, len(KEYS)):
            assert result.state(Values.item, key) == item(number, item(1))
            assert result.state(Values.versioned, key) == number
            assert sorted(result.state(Values.recent, key)) == sorted([str(number - 7), "0", str(number)])
            assert result.state(Values.by_pair, key)[number, "x"] == [number]
            assert result.state(Values.anything, key)["set"] == {1, 2}
        assert [event.value for event in result.held("events")] == [{"value": 100}, {"value": 101}, {"value": 102}]


@formats
def test_a_job_continues_from_savepoints_of_each_format(stored: Path) -> None:
    with TestRun(values_job, savepoint=stored / "all") as test_run:
        test_run.add_record(("a", 45, 0), "needed").add_watermark(BEGIN + 90 * MINUTE)
        outputs = test_run.run().records("out")
    assert [each for each in outputs if each[0] == "event" and each[2] == "events"] == [
        ["event", "a", "events", 100],
        ["event", "é", "events", 101],
        ["event", "1", "events", 102],
    ]
    timers = [each for each in outputs if each[0] == "timer" and each[1] == "b'\\x00\\xff'"]
    assert {each[2] for each in timers} == {"", "tag"}
    assert {each[3][1] for each in timers} == {12}
    assert {each[1] for each in outputs if each[0] == "session"} == set(map(str, KEYS))


@formats
def test_the_rows_of_savepoints_of_each_format_are_the_same_as_ever(stored: Path, tmp_path: Path) -> None:
    """To see what has changed, compare the two files."""
    done = CliRunner().invoke(app, ["state", "export", str(stored / "all"), str(tmp_path / "rows.jsonl")])
    assert done.exit_code == 0, done.output
    assert (tmp_path / "rows.jsonl").read_text() == (stored / "rows.jsonl").read_text()
    imported = ["state", "import", str(stored / "rows.jsonl"), str(tmp_path / "same"), "--into", str(stored / "all")]
    assert CliRunner().invoke(app, imported).exit_code == 0
    for key in KEYS:
        of_both = [Savepoint(path) for path in (stored / "all", tmp_path / "same")]
        first, second = (key_state(key, each.find(key), each.structures, values_job) for each in of_both)
        assert first == second


@formats
@pytest.mark.parametrize("store", ["groups", "log"])
def test_windows_that_are_stored_for_whole_key_groups_continue(stored: Path, store: str, tmp_path: Path) -> None:
    savepoint = Savepoint(stored / f"columns-{store}")
    assert any(block.group_states for block in savepoint.blocks())
    (tmp_path / "in").mkdir()
    job = columns_job(f"{tmp_path}/in/", str(tmp_path / "out"))
    run(job, engine="embedded", from_savepoint=str(savepoint.directory), flush=True)
    texts = [path.read_text() for path in (tmp_path / "out").iterdir()]
    results: list[Any] = [json.loads(line) for text in texts for line in text.splitlines()]
    assert sum(result["value"]["n"] for result in results) == 30
    assert sum(result["value"]["n"] * result["value"]["mean"] for result in results) == sum(range(60, 90))


@formats
@pytest.mark.parametrize("store", ["groups", "log"])
def test_a_key_of_windows_that_are_stored_for_whole_key_groups_is_found(stored: Path, store: str) -> None:
    savepoint = Savepoint(stored / f"columns-{store}")
    job = columns_job("in/", "out/")
    state = key_state("k3", savepoint.find("k3"), savepoint.structures, job).state
    assert state["window"].text.endswith("{'n': 2, 'mean': 73.0}}")  # at 63 and 83 seconds
    assert key_state("nobody", savepoint.find("nobody"), savepoint.structures, job).state == {}
