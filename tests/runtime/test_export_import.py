"""`amadou state export`, then `import --into` with the same rows: the new savepoint has the same state."""

import json
import os
import resource
from pathlib import Path
from typing import Any

import attrs
import pytest
from tests.commands import output
from tests.conformance.handlers import SECOND, CreatesWindow, at, event, job
from tests.runtime.exporting import (
    SETTINGS,
    Stores,
    exported,
    imported,
    rows_of,
    same_again,
    saved,
    state_in,
)
from tests.stored.cases import CASES
from tests.stored.fixture import FORMATS, Fixture, rows_in
from tests.stored.jobs.format_1 import KEYS, values_job

from amadou.engine import unpack
from amadou_runtime import TestResult, TestRun
from amadou_runtime.savepoint.job_savepoint import JobSavepoint
from amadou_runtime.savepoint.manifest import MANIFEST

STORED = Path(__file__).parents[1] / "stored"
in_both_formats = pytest.mark.parametrize("suffix", ["jsonl", "parquet"])


@in_both_formats
def test_a_window_that_was_created_at_run_time_closes_after_its_state_is_exported_and_imported(
    suffix: str, tmp_path: Path
) -> None:
    creating = job(CreatesWindow())
    new = same_again(saved(TestRun(creating).add_records([event(1), event(2, key="other")]), tmp_path), suffix)
    result = TestRun(creating, savepoint=new).add_record(event(3)).run(flush=True)
    assert sorted(seen for seen in result.records("seen") if seen[0] == "closed") == [
        ("closed", "k", 0.0, seen_at(result), 2),
        ("closed", "other", 0.0, seen_at(result), 1),
    ]


def seen_at(result: TestResult) -> float:
    assert result.watermark is not None
    return (result.watermark - at(0)) / SECOND


def test_rows_of_thousands_of_key_groups_need_few_open_files(tmp_path: Path) -> None:
    counting = job(Stores(int))
    TestRun(counting).savepoint(tmp_path / "saved")
    manifest = JobSavepoint(tmp_path / "saved").manifest
    (tmp_path / "saved" / MANIFEST).write_text(attrs.evolve(manifest, key_groups=4_096).to_json())
    rows = [{"key": number, "spec": "one", "value": number} for number in range(3_000)]
    (tmp_path / "rows.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (len(os.listdir("/dev/fd")) + 150, limits[1]))
    try:
        new = imported(tmp_path / "saved", tmp_path / "rows.jsonl")
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)
    assert {key: unpack(packed) for key, (packed, *_) in state_in(new)["one"].items()} == {n: n for n in range(3_000)}
    JobSavepoint(new).verify()
    positions = [block.first for block in JobSavepoint(new).stages[""].blocks()]
    assert positions == sorted(positions)


@pytest.mark.parametrize(("store", "suffix"), [("groups", "jsonl"), ("log-by-key", "parquet")])
@pytest.mark.parametrize("directory", FORMATS, ids=lambda path: path.name)
def test_stored_state_of_every_kind_continues_after_it_is_exported_and_imported(
    directory: Path, store: str, suffix: str, tmp_path: Path
) -> None:
    fixture = Fixture(directory, CASES["kinds"])
    place = fixture.unpack(tmp_path)
    new = same_again(place.savepoint(store), suffix)
    place.savepoint(store).rename(place.savepoint(store).with_name("earlier"))
    new.rename(place.savepoint(store))
    assert place.rows(store, savepoint=True) == rows_in(fixture.rows)
    assert place.continued(store) == rows_in(fixture.outputs)


@in_both_formats
@pytest.mark.parametrize("stored", sorted(STORED.glob("savepoints-*")), ids=lambda path: path.name)
def test_a_stored_savepoint_continues_after_its_state_is_exported_and_imported(
    stored: Path, suffix: str, tmp_path: Path
) -> None:
    new = tmp_path / "new"
    output("state", "export", str(stored / "all"), str(tmp_path / f"rows.{suffix}"))
    output("state", "import", str(tmp_path / f"rows.{suffix}"), str(new), "--into", str(stored / "all"))
    assert exported(new).read_text() == (stored / "rows.jsonl").read_text()
    assert state_in(new) == state_in(stored / "all")
    results = []
    for savepoint in (stored / "all", new):
        with TestRun(values_job, savepoint=savepoint) as run:
            result = run.add_record(("a", 45, 0), "needed").add_watermark(at(90 * 60)).run(flush=True)
            results.append([result.records("out"), [str(result.state("item", key)) for key in KEYS]])
    assert results[0] == results[1]


@in_both_formats
@pytest.mark.parametrize("more", SETTINGS[:3], ids=["", "ttl", "version"])
def test_null_removes_state_and_a_tag_stands_for_none(more: dict[str, Any], suffix: str, tmp_path: Path) -> None:
    stored = job(Stores(int | None, default=5, **more))
    run = TestRun(stored)
    for key, value in (("k", None), ("removed", None), ("changed", 7)):
        run.set_state("one", key, value, written=at(0) if "ttl" in more else None)
    savepoint = saved(run, tmp_path)
    rows = {row["key"]: row for row in rows_of(savepoint)}
    assert {key: row["value"] for key, row in rows.items()} == {
        "k": {"$None": None},
        "removed": {"$None": None},
        "changed": 7,
    }
    changed = [rows["removed"] | {"value": None}, rows["changed"] | {"value": {"$None": None}}]
    savepoint.with_name("changed.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in changed))
    new = imported(savepoint, savepoint.with_name("changed.jsonl"))
    assert {row["key"]: row["value"] for row in rows_of(new)} == {"k": {"$None": None}, "changed": {"$None": None}}
    result = TestRun(stored, savepoint=new).add_records([event(1, key=key) for key in rows]).run()
    assert result.records("seen") == [5 if key == "removed" else None for key in rows]
