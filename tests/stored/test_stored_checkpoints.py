"""Checkpoints and savepoints of earlier versions are read as ever, and their jobs continue: see README.md."""

from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from tests.stored.cases import CASES, FORMS
from tests.stored.fixture import FORMATS, Fixture, Place, in_order, rows_in
from tests.stored.jobs.kinds import ALL_AGGREGATES, kinds_job
from tests.stored.jobs.sketches import SKETCHES

from amadou_plugins import aggregates, joins, windows
from amadou_runtime.savepoint.job_savepoint import JobSavepoint

FIXTURES = [Fixture(directory, case) for directory in FORMATS for case in CASES.values()]
STORED = [(fixture, store) for fixture in FIXTURES if fixture.archive.exists() for store in fixture.case.stores]
ON_SPARK = {
    *(("kinds", store) for store in FORMS),
    ("columns-tumbling", "groups"),
    ("columns-tumbling", "log-by-key"),
    ("stages", "log"),
    ("sensors", "groups"),
    ("top_pages", "log"),
}
"""The cases that continue on Spark in every run of the tests."""


def marks_of(store: str) -> list[pytest.MarkDecorator]:
    return [] if store == "groups" else [pytest.mark.needs_spark(4)]


every_fixture = pytest.mark.parametrize(
    ("fixture", "store"),
    [pytest.param(fixture, store, id=f"{fixture}-{store}", marks=marks_of(store)) for fixture, store in STORED],
)


@pytest.fixture(scope="module")
def place_of(tmp_path_factory: pytest.TempPathFactory) -> Callable[[Fixture], Place]:
    """Unpacks a fixture for all tests that only read it."""
    return cache(lambda fixture: fixture.unpack(tmp_path_factory.mktemp("stored")))


def test_the_first_format_has_a_fixture_of_each_case() -> None:
    archives = {path.name.removesuffix(".tar.xz") for path in FORMATS[0].glob("*.tar.xz")}
    assert archives == CASES.keys()


def test_the_job_with_every_kind_of_state_has_every_kind_of_window_join_and_aggregate() -> None:
    job = kinds_job("", "", "groups", 1)
    components = {type(spec) for spec in job.specs.values()}
    used = {type(aggregate) for aggregate in (*ALL_AGGREGATES.values(), *SKETCHES.values())}
    assert components >= subclasses_in(windows, windows.WindowSpec) | subclasses_in(joins, joins.JoinSpec)
    assert used >= subclasses_in(aggregates, aggregates.Aggregate) - {aggregates.CompositeAggregate}


def subclasses_in(package: Any, base: type) -> set[type]:
    members = (getattr(package, name) for name in package.__all__)
    return {each for each in members if isinstance(each, type) and issubclass(each, base) and each is not base}


@pytest.mark.parametrize("fixture", dict.fromkeys(each for each, _ in STORED if each.case.name == "kinds"), ids=str)
def test_the_fixture_with_every_kind_of_state_has_all_of_it(
    fixture: Fixture, place_of: Callable[[Fixture], Place]
) -> None:
    place, job = place_of(fixture), kinds_job("", "", "groups", 1)
    manifest = JobSavepoint(place.savepoint("groups")).stages[""].manifest
    specs = {row["spec"] for row in rows_in(fixture.rows) if "spec" in row}
    assert specs == job.specs.keys() - {"in_memory"} | {"made 1", "made 2"}
    assert manifest.left_out == {"in_memory": 7}
    assert manifest.held == {"events": 3}
    assert manifest.clock["letters"]["total"] == 1
    assert {tag for row in rows_in(fixture.rows) for _, tag in row.get("timers", ())} == {"", "tag"}
    assert {file.name for file in manifest.files if file.name.startswith("references/")} == {"references/limits"}


@every_fixture
def test_the_state_of_a_checkpoint_is_read_as_ever(
    fixture: Fixture, store: str, place_of: Callable[[Fixture], Place]
) -> None:
    assert place_of(fixture).rows(store) == rows_in(fixture.rows)


@every_fixture
def test_a_savepoint_is_whole_and_its_state_is_read_as_ever(
    fixture: Fixture, store: str, place_of: Callable[[Fixture], Place]
) -> None:
    place = place_of(fixture)
    JobSavepoint(place.savepoint(store)).verify()
    assert place.rows(store, savepoint=True) == rows_in(fixture.rows)


@every_fixture
def test_a_test_run_continues_from_a_savepoint(
    fixture: Fixture, store: str, place_of: Callable[[Fixture], Place]
) -> None:
    assert place_of(fixture).continued(store) == rows_in(fixture.outputs)


@pytest.mark.parametrize(
    ("fixture", "store"),
    [
        pytest.param(fixture, store, id=f"{fixture}-{store}", marks=marks_of(store))
        for fixture, store in STORED
        if store != "groups"
    ],
)
def test_key_groups_on_the_store_log_have_the_form_of_the_fixture(
    fixture: Fixture, store: str, place_of: Callable[[Fixture], Place]
) -> None:
    expected = {FORMS[store]} if rows_in(fixture.rows) else set()
    assert place_of(fixture).forms(store) == expected


@pytest.mark.parametrize(
    ("fixture", "store"),
    [each for each in STORED if each[0].case.name.startswith("columns-") and FORMS[each[1]] != "by key"],
    ids=str,
)
def test_fixtures_of_vectorised_windows_have_state_of_whole_key_groups(
    fixture: Fixture, store: str, place_of: Callable[[Fixture], Place]
) -> None:
    savepoint = JobSavepoint(place_of(fixture).savepoint(store)).stages[""]
    assert all(block.group_states for block in savepoint.blocks())


@pytest.mark.spark
@pytest.mark.needs_spark(4, 3)  # older versions of Spark do not read the checkpoints of newer ones
@pytest.mark.parametrize(
    ("fixture", "store"),
    [
        pytest.param(
            fixture,
            store,
            id=f"{fixture}-{store}",
            marks=() if (fixture.case.name, store) in ON_SPARK else [pytest.mark.qualify],
        )
        for fixture, store in STORED
    ],
)
def test_a_run_on_spark_continues_from_a_checkpoint(
    fixture: Fixture, store: str, tmp_path: Path, spark: Any, request: pytest.FixtureRequest
) -> None:
    for service in fixture.case.services:
        request.getfixturevalue(service)
    with fixture.with_services(tmp_path) as place:
        assert place.resumed(store) == rows_in(fixture.outputs)


@pytest.mark.spark
@pytest.mark.needs_spark(4, 3)
@pytest.mark.qualify
@pytest.mark.parametrize(("fixture", "store"), [each for each in STORED if each[0].case.name == "kinds"], ids=str)
def test_a_checkpoint_of_a_run_that_was_killed_before_the_commit_has_no_output_twice(
    fixture: Fixture, store: str, tmp_path: Path, spark: Any
) -> None:
    place = fixture.unpack(tmp_path)
    *stored, dead_letters, late_events = place.outputs(store)
    place.remove_last_commit(store)
    place.resumed(store)
    *outputs, all_dead_letters, all_late_events = place.outputs(store)
    *expected, more_dead_letters, more_late_events = rows_in(fixture.outputs)
    assert outputs == in_order([*stored, *expected])
    assert all_dead_letters[1] == dead_letters[1] + more_dead_letters[1]
    assert all_late_events[1] == late_events[1] + more_late_events[1]
