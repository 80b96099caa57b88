"""State of older versions of its class."""

from datetime import datetime, timedelta
from typing import Any

import attrs
import pytest
from tests.conformance.conftest import MakeRun
from tests.conformance.handlers import Recorder, at, event, job

from amadou import Handler, KeyedEvent, ListSpec, MapSpec, SinkSpec, Subject, ValueSpec
from amadou._encoding import pack, unpack
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


class Keeping(Recorder):
    """An event with a value writes; one without collects what there is."""

    one = ValueSpec(Old)
    many = MapSpec(str, Old)
    row = ListSpec(Old)
    number = ValueSpec(int)
    found = SinkSpec(list)

    def on_event(self, subject: Subject, event: KeyedEvent[Any]) -> None:
        one, many, row = self.one.state_for(subject), self.many.state_for(subject), self.row.state_for(subject)
        number = self.number.state_for(subject)
        if event.value is None:
            self.found.collect(subject, [one.value, dict(many), list(row), number.value])
        else:
            one.value = many["a"] = event.value
            row.append(event.value)
            number.value = 5


class Changed(Keeping):
    """An attribute more, one less, and a wider union."""

    one = ValueSpec(New)  # type: ignore[assignment]
    many = MapSpec(str, New)  # type: ignore[assignment]
    row = ListSpec(New)  # type: ignore[assignment]
    number = ValueSpec(int | str)  # type: ignore[assignment]


def renamed(stored: dict[str, Any], version: int) -> Stranger:
    assert version == 0
    return Stranger(f"{stored['name']} the {stored['count']}th")


class Migrated(Keeping):
    """Other classes altogether, with a migration."""

    one = ValueSpec(Stranger, version=1, migrate=renamed)  # type: ignore[assignment]
    many = MapSpec(str, Stranger, version=1, migrate=renamed)  # type: ignore[assignment]
    row = ListSpec(Stranger, version=1, migrate=renamed)  # type: ignore[assignment]
    number = ValueSpec(str, version=2, migrate=lambda stored, version: f"{stored} of {version}")  # type: ignore[assignment]


class MigratedAgain(Migrated):
    """The next version."""

    one = ValueSpec(str, version=2, migrate=lambda stored, version: f"{version}: {stored}")  # type: ignore[assignment]


class Misfit(Keeping):
    """A type that cannot be read from what is stored."""

    number = ValueSpec(datetime)  # type: ignore[assignment]


def written(test_run: MakeRun, *handlers: Handler) -> TestRun:
    """A run in which the first handler writes and each further one only reads."""
    run = test_run(job(Keeping())).add_record(event(0, Old("Ada", 3)))
    for handler in handlers:
        run.restart(handler).add_record(event(0))
    return run


@pytest.mark.rule(17)
def test_new_and_removed_attributes_and_wider_unions_just_work(test_run: MakeRun) -> None:
    ada = New("Ada")
    assert written(test_run, Changed()).run().records("found") == [[ada, {"a": ada}, [ada], 5]]


@pytest.mark.on_spark("restart")
@pytest.mark.rule(17)
def test_a_migration_covers_the_rest_and_goes_on_from_version_to_version(test_run: MakeRun) -> None:
    result = written(test_run, Migrated(), MigratedAgain()).run()
    ada = Stranger("Ada the 3th")
    assert result.records("found") == [
        [ada, {"a": ada}, [ada], "5 of 0"],
        ["1: {'owner': 'Ada the 3th'}", {"a": ada}, [ada], "5 of 0"],
    ]


def unchecked(run: TestRun) -> bytes:
    """What a run stored, without what its specs were: as in a checkpoint that says nothing of them."""
    run.run()
    *parts, _ = unpack(run.snapshot())
    return pack([*parts, {}])


@pytest.mark.parametrize("handler", [Misfit, Keeping], ids=["another type", "an older version"])
@pytest.mark.rule(17)
def test_anything_else_is_refused_before_a_batch(test_run: MakeRun, handler: type[Handler]) -> None:
    run = written(test_run, Migrated()) if handler is Keeping else written(test_run)
    was = (
        "number was ValueSpec str version 2 and is now" if handler is Keeping else "number was ValueSpec int and is now"
    )
    with pytest.raises(CheckpointError, match=was):
        run.restart(handler)
    run.run()
    with pytest.raises(CheckpointError, match=was):
        test_run(job(handler()), snapshot=run.snapshot())


def test_a_snapshot_of_another_job_is_refused(test_run: MakeRun) -> None:
    snapshot = written(test_run).snapshot()
    with pytest.raises(CheckpointError, match="it belongs to the job 'conformance', not to 'another'"):
        test_run(attrs.evolve(job(Keeping()), name="another"), snapshot=snapshot)


@pytest.mark.parametrize("handler", [Misfit, Keeping], ids=["another type", "an older version"])
@pytest.mark.rule(17)
def test_what_only_state_tells_names_key_spec_and_types_and_destroys_nothing(
    test_run: MakeRun, handler: type[Handler]
) -> None:
    run = written(test_run, Migrated()) if handler is Keeping else written(test_run)
    with pytest.raises(CallbackError, match="StateDecodeError") as caught:
        test_run(job(handler()), snapshot=unchecked(run)).add_record(event(0)).run()
    for part in ("of key 'k'", "The state is unchanged"):
        assert part in caught.value.error
    if handler is Misfit:
        assert "state 'number'" in caught.value.error
        assert "found 5, expected datetime" in caught.value.error
    else:
        assert "the state has version 1, but the spec has version 0" in caught.value.error


@pytest.mark.rule(17)
def test_state_that_cannot_be_read_is_still_there(test_run: MakeRun) -> None:
    before = test_run(job(Keeping())).add_record(event(0, Old("Ada", 3)))
    snapshot = unchecked(before)
    with pytest.raises(AmadouError):
        test_run(job(Misfit(), on_error="dead_letter"), snapshot=snapshot).add_record(event(0)).run()
    ada = Old("Ada", 3)
    run = test_run(job(Keeping()), snapshot=snapshot).add_record(event(0))
    assert run.run().records("found") == [[ada, {"a": ada}, [ada], 5]]


class Aged(Recorder):
    """An event with a value writes under three specs whose parts live a minute; one without tells what there is."""

    one = ValueSpec(int, ttl=MINUTE)
    many = MapSpec(str, int, ttl=MINUTE)
    row = ListSpec(int, ttl=MINUTE)
    found = SinkSpec(list)

    def on_event(self, subject: Subject, event: KeyedEvent[Any]) -> None:
        one, many, row = self.one.state_for(subject), self.many.state_for(subject), self.row.state_for(subject)
        if event.value is None:
            self.found.collect(subject, [one.value, dict(many), list(row)])
        else:
            one.value = many["a"] = event.value
            row.append(event.value)


class AgedAndMigrated(Aged):
    one = ValueSpec(str, ttl=MINUTE, version=1, migrate=lambda stored, _: f"was {stored}")  # type: ignore[assignment]
    many = MapSpec(str, str, ttl=MINUTE, version=1, migrate=lambda stored, _: f"was {stored}")  # type: ignore[assignment]
    row = ListSpec(str, ttl=MINUTE, version=1, migrate=lambda stored, _: f"was {stored}")  # type: ignore[assignment]


class Ageless(Aged):
    one = ValueSpec(int)
    many = MapSpec(str, int)
    row = ListSpec(int)


NOTHING: list[Any] = [None, {}, []]


@pytest.mark.parametrize(
    ("handler", "kept"), [(Aged, [7, {"a": 7}, [7]]), (AgedAndMigrated, ["was 7", {"a": "was 7"}, ["was 7"]])]
)
@pytest.mark.rule(17)
def test_state_keeps_its_age_over_restarts_and_migrations(
    test_run: MakeRun, handler: type[Handler], kept: list[Any]
) -> None:
    run = test_run(job(Aged())).add_record(event(10, 7)).restart(handler)
    run.add_record(event(20)).add_watermark(at(69)).add_record(event(69)).add_watermark(at(70)).add_record(event(70))
    assert run.run().records("found") == [kept, kept, NOTHING]


@pytest.mark.rule(17)
def test_state_that_gets_a_ttl_ages_from_when_it_is_touched_first(test_run: MakeRun) -> None:
    run = test_run(job(Ageless())).add_record(event(0, 7)).add_watermark(at(100)).restart(Aged)
    run.add_record(event(100)).add_watermark(at(159)).add_record(event(159)).add_watermark(at(160))
    kept = [7, {"a": 7}, [7]]
    assert run.add_record(event(160)).run().records("found") == [kept, kept, NOTHING]


@pytest.mark.rule(17)
def test_state_that_gets_a_ttl_ages_from_a_batch_without_events_too(test_run: MakeRun) -> None:
    run = test_run(job(Ageless())).add_record(event(0, 7)).add_watermark(at(100)).restart(Aged)
    run.add_watermark(at(159))
    assert run.run().keys() == ["k"]
    assert run.add_watermark(at(180)).run().keys() == []


@pytest.mark.rule(17)
def test_state_that_loses_its_ttl_stays(test_run: MakeRun) -> None:
    run = test_run(job(Aged())).add_record(event(0, 7)).restart(Ageless).add_record(event(1)).add_watermark(at(1000))
    assert run.add_record(event(1000)).run().records("found") == [[7, {"a": 7}, [7]]] * 2


class Stumbling(Keeping):
    number = ValueSpec(int, version=1, migrate=lambda stored, _: 1 // 0)


@pytest.mark.on_spark("crash")
@pytest.mark.rule(17)
def test_code_whose_first_batch_fails_leaves_the_state_to_the_code_before_it(test_run: MakeRun) -> None:
    run = written(test_run)
    run.run()
    run.restart(Stumbling).add_record(event(0))
    with pytest.raises(CallbackError, match="migrate= failed for version 0: ZeroDivisionError"):
        run.run()
    ada = Old("Ada", 3)
    assert run.restart(Keeping).add_record(event(0)).run().records("found")[-1] == [ada, {"a": ada}, [ada], 5]
