"""Checkpoints and savepoints of earlier versions are read as ever, and their jobs continue: see README.md."""

from collections.abc import Callable, Iterable, Iterator
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from tests.commands import amadou
from tests.stored.cases import CASES, FORMS, KEYS
from tests.stored.fixture import FORMATS, Fixture, Place, in_order, rows_in
from tests.stored.jobs.kinds import ALL_AGGREGATES, kinds_job

from amadou_plugins import aggregates, joins, windows
from amadou_runtime.runs.files import LocalFiles
from amadou_runtime.savepoint.job_savepoint import JobSavepoint
from amadou_runtime.spark.checkpoint import CheckpointMetadata, keep

FIXTURES = [Fixture(directory, case) for directory in FORMATS for case in CASES.values()]
STORED = [(fixture, store) for fixture in FIXTURES if fixture.archive.exists() for store in fixture.case.stores]
ON_SPARK = ("kinds", "log-by-key")
"""The case that continues on Spark in every run of the tests, and its store."""
MADE_ON = (4, 3)
"""The oldest version of Spark that is sure to read the checkpoints, which newer versions have made."""


def for_each(chosen: Iterable[tuple[Fixture, str]], *needed: int) -> pytest.MarkDecorator:
    """Return the mark that runs a test for fixtures and their stores.

    :param needed: the version of Spark that the test needs; by default, that of the store
    """
    return pytest.mark.parametrize(
        ("fixture", "store"),
        [
            pytest.param(fixture, store, id=f"{fixture}-{store}", marks=[*marks_of(fixture, store, needed)])
            for fixture, store in chosen
        ],
    )


def marks_of(fixture: Fixture, store: str, needed: tuple[int, ...]) -> Iterator[pytest.MarkDecorator]:
    if needed or store != "groups":
        yield pytest.mark.needs_spark(*(needed or (4,)))
    for package in fixture.case.packages:
        yield pytest.mark.skipif(find_spec(package) is None, reason=f"needs {package}")


def named(name: str) -> list[tuple[Fixture, str]]:
    return [(fixture, store) for fixture, store in STORED if fixture.case.name.partition("-")[0] == name]


def is_always_continued(fixture: Fixture, store: str) -> bool:
    return (fixture.case.name, store) == ON_SPARK


every_fixture = for_each(STORED)


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
    used = {*map(type, ALL_AGGREGATES.values()), aggregates.Quantiles}  # the latter is in the job `sketches`
    assert components >= subclasses_in(windows, windows.WindowSpec) | subclasses_in(joins, joins.JoinSpec)
    assert used >= subclasses_in(aggregates, aggregates.Aggregate) - {aggregates.CompositeAggregate}


@pytest.mark.parametrize("format_", [3, 5])
@pytest.mark.parametrize(
    "command", [("state", "show", "state", "k"), ("state", "keys", "state"), ("savepoint", "state", "new")]
)
def test_a_checkpoint_of_a_format_that_this_version_does_not_read_says_what_to_do(
    format_: int, command: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "state").mkdir()
    keep(LocalFiles("state", tmp_path / "state"), CheckpointMetadata("job", "0a", 1, 1, "groups", {}, []))
    metadata = tmp_path / "state" / "amadou.json"
    metadata.write_text(metadata.read_text().replace('"format": 4', f'"format": {format_}'))
    done = amadou(*command)
    assert (done.exit_code, "Traceback" in done.output) == (1, False)
    shown = " ".join(done.output.split())
    assert (
        "amadou.json has a different format: use the release of amadou that stored the state, or start with a" in shown
    )


def subclasses_in(package: Any, base: type) -> set[type]:
    members = (getattr(package, name) for name in package.__all__)
    return {each for each in members if isinstance(each, type) and issubclass(each, base) and each is not base}


@pytest.mark.parametrize("fixture", dict.fromkeys(fixture for fixture, _ in named("kinds")), ids=str)
def test_the_fixture_with_every_kind_of_state_has_all_of_it(
    fixture: Fixture, place_of: Callable[[Fixture], Place]
) -> None:
    place, job = place_of(fixture), kinds_job("", "", "groups", 1)
    manifest = JobSavepoint(place.savepoint("groups")).stages[""].manifest
    specs = {row["spec"] for row in rows_in(fixture.rows) if "spec" in row}
    assert specs == job.specs.keys() - {"in_memory"} | {"made 1", "made 2"}
    assert manifest.left_out == {"in_memory": 7}
    assert manifest.held == {"events": 3}
    assert manifest.clock["letters"]["failures"].keys() == {"on_event"}
    assert {tag for row in rows_in(fixture.rows) for _, tag in row.get("timers", ())} == {"", "tag"}
    assert {file.name for file in manifest.files if file.name.startswith("references/")} == {"references/limits"}


@every_fixture
def test_the_state_of_a_checkpoint_is_read_as_ever(
    fixture: Fixture, store: str, place_of: Callable[[Fixture], Place]
) -> None:
    assert place_of(fixture).rows(store) == rows_in(fixture.rows)


@for_each(named("kinds"))
@pytest.mark.parametrize("savepoint", [False, True], ids=["checkpoint", "savepoint"])
def test_a_key_is_found_where_an_earlier_version_has_stored_it(
    fixture: Fixture, store: str, savepoint: bool, place_of: Callable[[Fixture], Place]
) -> None:
    keys = ["a", "é", 1, -7, 1 << 40, {"$bytes": "AP8="}, {"$tuple": ["a", 1]}]
    rows = [row for row in rows_in(fixture.rows) if row["key"] in keys]
    stored = place_of(fixture).rows_of_keys(store, KEYS, savepoint=savepoint)
    # On the store `groups`, the files still have the state in memory of the run that has ended.
    assert [row for row in stored if row.get("spec") != "in_memory"] == rows


@for_each(named("kinds"))
def test_the_history_of_a_key_ends_with_its_state(
    fixture: Fixture, store: str, place_of: Callable[[Fixture], Place]
) -> None:
    first, *_, last = place_of(fixture).history(store, "a")
    rows = [row for row in rows_in(fixture.rows) if row["key"] == "a"]
    assert [row for row in last if row.get("spec") != "in_memory"] == rows
    assert first != last


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


@for_each((fixture, store) for fixture, store in STORED if store != "groups")
def test_key_groups_on_the_store_log_have_the_form_of_the_fixture(
    fixture: Fixture, store: str, place_of: Callable[[Fixture], Place]
) -> None:
    expected = {FORMS[store]} if rows_in(fixture.rows) else set()
    assert place_of(fixture).forms(store) == expected


@for_each((fixture, store) for fixture, store in named("columns") if FORMS[store] != "by key")
def test_fixtures_of_vectorised_windows_have_state_of_whole_key_groups(
    fixture: Fixture, store: str, place_of: Callable[[Fixture], Place]
) -> None:
    savepoint = JobSavepoint(place_of(fixture).savepoint(store)).stages[""]
    assert all(block.group_states for block in savepoint.blocks())


def check_continues(fixture: Fixture, store: str, to: Path, request: pytest.FixtureRequest) -> None:
    for service in fixture.case.services:
        request.getfixturevalue(service)
    with fixture.with_services(to) as place:
        assert place.resumed(store) == rows_in(fixture.outputs)


@pytest.mark.spark
@for_each([each for each in STORED if is_always_continued(*each)], *MADE_ON)
def test_a_run_on_spark_continues_from_a_checkpoint(
    fixture: Fixture, store: str, tmp_path: Path, spark: Any, request: pytest.FixtureRequest
) -> None:
    check_continues(fixture, store, tmp_path, request)


@pytest.mark.spark
@pytest.mark.qualify
@for_each([each for each in STORED if not is_always_continued(*each)], *MADE_ON)
def test_a_run_on_spark_continues_from_any_other_checkpoint(
    fixture: Fixture, store: str, tmp_path: Path, spark: Any, request: pytest.FixtureRequest
) -> None:
    check_continues(fixture, store, tmp_path, request)


@pytest.mark.spark
@pytest.mark.qualify
@for_each(named("kinds"), *MADE_ON)
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
