"""State that was stored by earlier versions of a handler."""

from datetime import datetime, timedelta
from typing import Any

import attrs
import pytest
from tests.conformance.conftest import MakeRun
from tests.conformance.handlers import Recorder, at, event, job

from amadou import Handler, KeyedEvent, ListSpec, MapSpec, SinkSpec, Subject, ValueSpec
from amadou._state.encoding import pack, unpack
from amadou.errors import AmadouError, CallbackError, CheckpointError
from amadou_runtime import TestRun

MINUTE = timedelta(minutes=1)


@attrs.frozen
class Old:
    name: str
    count: int


@attrs.frozen
class New:
    name: str
    since: int = 2020


@attrs.frozen
class Stranger:
    owner: str


class StoresOld(Recorder):
    """An event with a value writes state; an event without a value collects the state."""

    one = ValueSpec(Old)
    many = MapSpec(str, Old)
    row = ListSpec(Old)
    number = ValueSpec(int)
    results = SinkSpec(list)

    def on_event(self, subject: Subject, event: KeyedEvent[Any]) -> None:
        one, many, row = self.one.state_for(subject), self.many.state_for(subject), self.row.state_for(subject)
        number = self.number.state_for(subject)
        if event.value is None:
            self.results.collect(subject, [one.value, dict(many), list(row), number.value])
        else:
            one.value = many["a"] = event.value
            row.append(event.value)
            number.value = 5


class Changed(StoresOld):
    """Adds an attribute, removes another, and widens a union."""

    one = ValueSpec(New)  # type: ignore[assignment]
    many = MapSpec(str, New)  # type: ignore[assignment]
    row = ListSpec(New)  # type: ignore[assignment]
    number = ValueSpec(int | str)  # type: ignore[assignment]


def renamed(stored: dict[str, Any], version: int) -> Stranger:
    assert version == 0
    return Stranger(f"{stored['name']} the {stored['count']}th")


class Migrated(StoresOld):
    """Uses a class without common attributes, with a migration."""

    one = ValueSpec(Stranger, version=1, migrate=renamed)  # type: ignore[assignment]
    many = MapSpec(str, Stranger, version=1, migrate=renamed)  # type: ignore[assignment]
    row = ListSpec(Stranger, version=1, migrate=renamed)  # type: ignore[assignment]
    number = ValueSpec(str, version=2, migrate=lambda stored, version: f"{stored} of {version}")  # type: ignore[assignment]


class MigratedAgain(Migrated):
    """The next version."""

    one = ValueSpec(str, version=2, migrate=lambda stored, version: f"{version}: {stored}")  # type: ignore[assignment]


class OtherType(StoresOld):
    """Declares a type that cannot be read from the stored value."""

    number = ValueSpec(datetime)  # type: ignore[assignment]


def restarted_with(test_run: MakeRun, *handlers: Handler) -> TestRun:
    """Return a run in which `StoresOld` writes state, and each of the handlers reads the state after a restart."""
    run = test_run(job(StoresOld())).add_record(event(0, Old("Ada", 3)))
    for handler in handlers:
        run.restart(handler).add_record(event(0))
    return run


@pytest.mark.rule(17)
def test_state_is_readable_after_adding_or_removing_attributes_or_widening_a_union(test_run: MakeRun) -> None:
    ada = New("Ada")
    assert restarted_with(test_run, Changed()).run().records("results") == [[ada, {"a": ada}, [ada], 5]]


Shorter = attrs.make_class("New", {"name": attrs.field(type=str)}, frozen=True)


class WithoutSince(StoresOld):
    """Removes an attribute of `Changed`."""

    one = ValueSpec(Shorter)
    many = MapSpec(str, Shorter)
    row = ListSpec(Shorter)
    number = ValueSpec(int | str)  # type: ignore[assignment]

    def on_event(self, subject: Subject, event: KeyedEvent[Any]) -> None: ...


@pytest.mark.rule(17)
def test_an_attribute_that_was_removed_cannot_be_added_back(test_run: MakeRun) -> None:
    run = test_run(job(Changed())).add_record(event(0, New("Ada", 5)))
    run.restart(WithoutSince).add_record(event(0)).restart(WithoutSince).add_record(event(0))
    with pytest.raises(CheckpointError) as caught:
        run.restart(Changed).run()
    for name, kind in (("one", "ValueSpec"), ("many", "MapSpec str →"), ("row", "ListSpec")):
        assert f"{name} ({kind} New): New.since was removed, and is there again" in str(caught.value)


@pytest.mark.on_spark("classes travel")
@pytest.mark.rule(17)
def test_migrations_convert_state_from_version_to_version(test_run: MakeRun) -> None:
    result = restarted_with(test_run, Migrated(), MigratedAgain()).run()
    ada = Stranger("Ada the 3th")
    assert result.records("results") == [
        [ada, {"a": ada}, [ada], "5 of 0"],
        ["1: {'owner': 'Ada the 3th'}", {"a": ada}, [ada], "5 of 0"],
    ]


def without_specs(run: TestRun) -> bytes:
    """Return a snapshot of a run without its specs, like the one of a checkpoint that does not store specs."""
    run.run()
    *parts, _ = unpack(run.snapshot())
    return pack([*parts, {}])


@pytest.mark.parametrize("handler", [OtherType, StoresOld], ids=["another type", "an older version"])
@pytest.mark.rule(17)
def test_incompatible_state_is_refused_before_the_first_batch(test_run: MakeRun, handler: type[Handler]) -> None:
    run = restarted_with(test_run, Migrated()) if handler is StoresOld else restarted_with(test_run)
    message = (
        "number was ValueSpec str version 2 and is now"
        if handler is StoresOld
        else "number was ValueSpec int and is now"
    )
    with pytest.raises(CheckpointError, match=message):
        run.restart(handler)
    run.run()
    with pytest.raises(CheckpointError, match=message):
        test_run(job(handler()), snapshot=run.snapshot())


def test_a_snapshot_of_another_job_is_refused(test_run: MakeRun) -> None:
    snapshot = restarted_with(test_run).snapshot()
    with pytest.raises(CheckpointError, match="it belongs to the job 'conformance', not to 'another'"):
        test_run(attrs.evolve(job(StoresOld()), name="another"), snapshot=snapshot)


@pytest.mark.parametrize("handler", [OtherType, StoresOld], ids=["another type", "an older version"])
@pytest.mark.rule(17)
def test_incompatible_state_of_unknown_specs_is_an_error_that_names_key_spec_and_types(
    test_run: MakeRun, handler: type[Handler]
) -> None:
    run = restarted_with(test_run, Migrated()) if handler is StoresOld else restarted_with(test_run)
    with pytest.raises(CallbackError, match="StateDecodeError") as caught:
        test_run(job(handler()), snapshot=without_specs(run)).add_record(event(0)).run()
    for part in ("of key 'k'", "The state is unchanged"):
        assert part in caught.value.error
    if handler is OtherType:
        assert "state 'number'" in caught.value.error
        assert "found 5, expected datetime" in caught.value.error
    else:
        assert "the state has version 1, but the spec has version 0" in caught.value.error


@pytest.mark.rule(17)
def test_unreadable_state_is_not_changed(test_run: MakeRun) -> None:
    before = test_run(job(StoresOld())).add_record(event(0, Old("Ada", 3)))
    snapshot = without_specs(before)
    with pytest.raises(AmadouError):
        test_run(job(OtherType(), on_error="dead_letter"), snapshot=snapshot).add_record(event(0)).run()
    ada = Old("Ada", 3)
    run = test_run(job(StoresOld()), snapshot=snapshot).add_record(event(0))
    assert run.run().records("results") == [[ada, {"a": ada}, [ada], 5]]


class Expiring(Recorder):
    """Has state that expires after a minute. An event with a value writes the state; other events collect it."""

    one = ValueSpec(int, ttl=MINUTE)
    many = MapSpec(str, int, ttl=MINUTE)
    row = ListSpec(int, ttl=MINUTE)
    results = SinkSpec(list)

    def on_event(self, subject: Subject, event: KeyedEvent[Any]) -> None:
        one, many, row = self.one.state_for(subject), self.many.state_for(subject), self.row.state_for(subject)
        if event.value is None:
            self.results.collect(subject, [one.value, dict(many), list(row)])
        else:
            one.value = many["a"] = event.value
            row.append(event.value)


class ExpiringAndMigrated(Expiring):
    one = ValueSpec(str, ttl=MINUTE, version=1, migrate=lambda stored, _: f"was {stored}")  # type: ignore[assignment]
    many = MapSpec(str, str, ttl=MINUTE, version=1, migrate=lambda stored, _: f"was {stored}")  # type: ignore[assignment]
    row = ListSpec(str, ttl=MINUTE, version=1, migrate=lambda stored, _: f"was {stored}")  # type: ignore[assignment]


class WithoutTtl(Expiring):
    one = ValueSpec(int)
    many = MapSpec(str, int)
    row = ListSpec(int)


NOTHING: list[Any] = [None, {}, []]


@pytest.mark.parametrize(
    ("handler", "stored"), [(Expiring, [7, {"a": 7}, [7]]), (ExpiringAndMigrated, ["was 7", {"a": "was 7"}, ["was 7"]])]
)
@pytest.mark.rule(17)
def test_the_ttl_of_state_continues_across_restarts_and_migrations(
    test_run: MakeRun, handler: type[Handler], stored: list[Any]
) -> None:
    run = test_run(job(Expiring())).add_record(event(10, 7)).restart(handler)
    run.add_record(event(20)).add_watermark(at(69)).add_record(event(69)).add_watermark(at(70)).add_record(event(70))
    assert run.run().records("results") == [stored, stored, NOTHING]


@pytest.mark.rule(17)
def test_a_new_ttl_starts_when_the_state_is_first_accessed(test_run: MakeRun) -> None:
    run = test_run(job(WithoutTtl())).add_record(event(0, 7)).add_watermark(at(100)).restart(Expiring)
    run.add_record(event(100)).add_watermark(at(159)).add_record(event(159)).add_watermark(at(160))
    stored = [7, {"a": 7}, [7]]
    assert run.add_record(event(160)).run().records("results") == [stored, stored, NOTHING]


@pytest.mark.rule(17)
def test_a_new_ttl_starts_even_in_a_batch_without_events(test_run: MakeRun) -> None:
    run = test_run(job(WithoutTtl())).add_record(event(0, 7)).add_watermark(at(100)).restart(Expiring)
    run.add_watermark(at(159))
    assert run.run().keys() == ["k"]
    assert run.add_watermark(at(180)).run().keys() == []


@pytest.mark.rule(17)
def test_state_whose_ttl_was_removed_does_not_expire(test_run: MakeRun) -> None:
    run = (
        test_run(job(Expiring()))
        .add_record(event(0, 7))
        .restart(WithoutTtl)
        .add_record(event(1))
        .add_watermark(at(1000))
    )
    assert run.add_record(event(1000)).run().records("results") == [[7, {"a": 7}, [7]]] * 2


class FailingMigration(StoresOld):
    number = ValueSpec(int, version=1, migrate=lambda stored, _: 1 // 0)


@pytest.mark.rule(17)
def test_a_failing_migration_leaves_the_state_to_the_previous_code(test_run: MakeRun) -> None:
    run = restarted_with(test_run)
    run.run()
    run.restart(FailingMigration).add_record(event(0))
    with pytest.raises(CallbackError, match="migrate= failed for version 0: ZeroDivisionError"):
        run.run()
    ada = Old("Ada", 3)
    assert run.restart(StoresOld).add_record(event(0)).run().records("results")[-1] == [ada, {"a": ada}, [ada], 5]
