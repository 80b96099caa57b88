"""New code with the entries of references that older code stored (`semantics.md` 17 and 37)."""

from pathlib import Path
from typing import Any

import attrs
import pytest
from tests.conformance.conftest import MakeRun
from tests.conformance.handlers import EventHandler, event
from tests.conformance.handlers import job as job_in_memory

from amadou import Handler, Job, KeyedEvent, MemorySink, MemorySource, ReferenceSpec, SinkSpec, Subject
from amadou.errors import AmadouError, CheckpointError, JobError, SavepointError, SpecError, StateDecodeError
from amadou.plugins import TableSource
from amadou_runtime import TestRun, run
from amadou_runtime.jobs.state_schema import described, state_problem, with_structures
from amadou_runtime.savepoint.savepoint import Savepoint
from amadou_runtime.testing.rehearsal import rehearse

pytestmark = [pytest.mark.rule(17), pytest.mark.rule(37)]


@attrs.define
class Limit:
    cents: int


class EmitsLimits(EventHandler):
    """Emits for each event what its value names, and all entries."""

    limits: ReferenceSpec[Any, Any]
    out = SinkSpec(list)

    def on_event(self, subject: Subject, event: KeyedEvent[Any]) -> None:
        found = dict(self.limits.items(subject))
        assert found.get(event.value) == self.limits.get(subject, event.value)
        self.out.collect(subject, sorted(found.items()))


class Whole(EmitsLimits):
    limits = ReferenceSpec(str, int, source="limits")


class Texts(EmitsLimits):
    limits = ReferenceSpec(str, str, source="limits")


class Numbered(EmitsLimits):
    limits = ReferenceSpec(int, int, source="limits")


class Renamed(EmitsLimits):
    limits = ReferenceSpec(str, int, source="limits", name="caps")


def cents(value: Any, version: int) -> Limit:
    if version == 0:
        return Limit(value * 100)
    assert version == 1, version
    return Limit(value["cents"] + 1)


class Versioned(EmitsLimits):
    limits = ReferenceSpec(str, Limit, source="limits", version=1, migrate=cents)


class VersionedAgain(EmitsLimits):
    limits = ReferenceSpec(str, Limit, source="limits", version=2, migrate=cents)


def fails(value: Any, version: int) -> Limit:
    raise ValueError(f"no limit for {value}")


class Failing(EmitsLimits):
    limits = ReferenceSpec(str, Limit, source="limits", version=1, migrate=fails)


def job(handler: Handler, **settings: Any) -> Job:
    return job_in_memory(handler, "events", "limits", **settings)


def saved(directory: Path) -> Path:
    test = TestRun(job(Whole())).add_record(event(1, 5, "DE"), "limits").add_record(event(1, 7, "FR"), "limits")
    test.add_record(event(1, "DE"), "events").run()
    test.savepoint(directory / "saved")
    return directory / "saved"


REFUSED = [
    (
        Texts,
        r"limits was ReferenceSpec str → int and is now ReferenceSpec str → str. Set version=1 and migrate= on lim",
    ),
    (Numbered, "ReferenceSpec str → int and is now ReferenceSpec int → int: the stored keys would not be found"),
    (
        Renamed,
        r"the reference 'caps' of 'rules' would begin without the entries.*stored as 'limits'.*set name='limits'",
    ),
]


@pytest.mark.parametrize(("handler", "message"), REFUSED)
def test_code_that_cannot_read_the_entries_is_refused_when_it_starts(
    test_run: MakeRun, handler: type[EmitsLimits], message: str, tmp_path: Path
) -> None:
    message = message.replace("'rules'", f"'{job(handler()).name}'")
    test = test_run(job(Whole())).add_record(event(1, 5, "DE"), "limits").add_record(event(1, "DE"), "events")
    with pytest.raises(CheckpointError, match=message):
        test.end_batch().restart(handler())
    with pytest.raises(SavepointError, match=message):
        TestRun(job(handler()), savepoint=saved(tmp_path))


def test_entries_of_an_older_version_are_migrated(test_run: MakeRun) -> None:
    test = test_run(job(Whole())).add_record(event(1, 5, "DE"), "limits").add_record(event(1, 7, "FR"), "limits")
    test.add_record(event(1, "DE"), "events").end_batch()
    test.restart(Versioned()).add_record(event(2, Limit(10), "FR"), "limits")
    test.add_record(event(2, "DE"), "events").end_batch().run()
    result = test.restart(VersionedAgain()).add_record(event(3, "DE"), "events").run()
    before, migrated, again = result.records("out")
    assert before == [("DE", 5), ("FR", 7)]
    assert migrated == [("DE", Limit(500)), ("FR", Limit(10))]
    assert again == [("DE", Limit(500)), ("FR", Limit(11))]
    assert result.reference("limits") == dict(again)
    with pytest.raises(CheckpointError, match="Set version=2 and migrate= on limits again"):
        test.restart(Versioned())


def test_a_failing_migration_ends_the_run_and_rehearse_names_the_entries(test_run: MakeRun, tmp_path: Path) -> None:
    settings: dict[str, Any] = {"on_error": "dead_letter"}
    test = test_run(job(Whole(), **settings)).add_record(event(1, 5, "DE"), "limits").end_batch()
    test.restart(Failing()).add_record(event(2, "DE"), "events")
    with pytest.raises(
        AmadouError, match=r"state 'limits' of key 'DE'.*migrate= failed for version 0: ValueError: no li"
    ):
        test.run()
    savepoint = Savepoint(saved(tmp_path))
    result = rehearse(savepoint, job(Failing())).specs["limits"]
    assert (result.entries, result.failed) == (2, 2)
    assert result.failures[0].error == "migrate= failed for version 0: ValueError: no limit for 5"
    result = rehearse(savepoint, job(Versioned())).specs["limits"]
    assert (result.entries, result.migrated, result.failed) == (2, 2, 0)


@pytest.mark.qualify
@pytest.mark.spark
def test_a_retired_reference_begins_again_without_entries_on_spark(spark: Any, tmp_path: Path) -> None:
    state = str(tmp_path / "state")

    def outputs(handler: Handler, limits: list[Any], second: int, **settings: Any) -> list[Any]:
        sources = {
            "events": MemorySource([*EVENTS[: second - 1], event(second, "DE")]),
            "limits": MemorySource(limits),
        }
        of = Job("retiring", handler, sources, {"out": MemorySink()}, **settings)
        run(of, checkpoint=state, trigger="available-now")
        return of.sinks["out"].records  # type: ignore[union-attr, no-any-return]

    first = event(1, 5, "DE")
    assert outputs(Whole(), [first], 1) == [[("DE", 5)]]
    with pytest.raises(CheckpointError, match="would begin without the entries"):
        outputs(Renamed(), [first], 2)
    limits = [first, event(2, 7, "FR")]
    assert outputs(Renamed(), limits, 2, retired={"limits": "drop"}) == [[("FR", 7)]]
    assert sorted(path.name for path in (tmp_path / "state" / "references").iterdir()) == ["caps"]


def upgraded(known: list[tuple[Handler, dict[str, Any]]], now: Handler, **settings: Any) -> str | None:
    """Return the problem of a job after others with the same state."""
    structures: dict[str, Any] = {}
    for handler, given in known:
        earlier = job(handler, **given)
        assert state_problem(earlier, structures, described(earlier)) is None
        structures = with_structures(structures, described(earlier))
    current = job(now, **settings)
    return state_problem(current, structures, described(current))


class RenamedAgain(EmitsLimits):
    limits = ReferenceSpec(str, int, source="limits", name="tops")


def test_the_last_name_of_a_reference_decides() -> None:
    first, second = (Whole(), {}), (Renamed(), {"retired": {"limits": "drop"}})
    assert upgraded([first, second], Renamed()) is None
    assert "set name='caps'" in str(upgraded([first, second], RenamedAgain()))
    assert upgraded([first, second], RenamedAgain(), retired={"caps": "drop"}) is None
    assert "set name='caps'" in str(upgraded([first, second], Whole()))
    assert upgraded([first, second, (Whole(), {"retired": {"caps": "drop"}})], Whole()) is None


def test_the_reference_of_a_table_can_be_renamed_because_it_is_read_again() -> None:
    class Table(TableSource):
        def records(self) -> list[Any]:
            return []

    def of_table(handler: Handler) -> Job:
        sources = {"events": MemorySource(), "limits": Table()}
        return Job("tables", handler, sources, {"out": MemorySink()})

    known = with_structures({}, described(of_table(Whole())))
    renamed = of_table(Renamed())
    assert state_problem(renamed, known, described(renamed)) is None


def test_an_entry_of_a_newer_version_is_not_read() -> None:
    packed = VersionedAgain.limits.encode_value(Limit(5))
    with pytest.raises(StateDecodeError, match="the entry has version 2, but the spec has version 1"):
        Versioned.limits.shown({"DE": packed})


def test_retired_references_are_dropped_or_kept(tmp_path: Path) -> None:
    def entries(engine_of: TestRun) -> dict[str, Any]:
        engine_of.savepoint(tmp_path / f"saved-{len(list(tmp_path.iterdir()))}")
        names = {file.name for file in Savepoint(max(tmp_path.glob("saved-*"))).manifest.files}
        return {name.removeprefix("references/") for name in names if name.startswith("references/")}

    def run_of(**settings: Any) -> TestRun:
        return TestRun(job(Renamed(), **settings), savepoint=directory).add_record(event(2, 9, "IT"), "limits")

    directory = saved(tmp_path)
    dropped, kept = run_of(retired={"limits": "drop"}), run_of(retired={"limits": "keep"})
    assert (dropped.run().reference("caps"), kept.run().reference("caps")) == ({"IT": 9}, {"IT": 9})
    assert (entries(dropped), entries(kept)) == ({"caps"}, {"caps", "limits"})


EVENTS = [event(second, "DE") for second in range(1, 5)]


@pytest.mark.parametrize("type_", [float, bool, list, list[str], tuple[str, float]])
def test_keys_that_no_event_can_have_are_refused(type_: Any) -> None:
    class Keyed(EmitsLimits):
        limits = ReferenceSpec(type_, int, source="limits")

    with pytest.raises(JobError, match="the keys of a ReferenceSpec are those of events: str, int, bytes or tuples of"):
        job(Keyed())


@pytest.mark.parametrize("type_", [str, int, bytes, tuple[str, int], str | None, tuple[str, ...], Any])
def test_keys_that_events_can_have_are_accepted(type_: Any) -> None:
    class Keyed(EmitsLimits):
        limits = ReferenceSpec(type_, int, source="limits")

    assert job(Keyed()).references["limits"].key_type == type_


def test_a_version_needs_a_migration() -> None:
    with pytest.raises(SpecError, match="version= and migrate= go together"):
        ReferenceSpec(str, int, source="limits", version=1)
