"""References: mappings that all keys share (`semantics.md` 37)."""

from datetime import timedelta
from typing import Any

import attrs
import pytest
from tests.conformance.conftest import MakeRun
from tests.conformance.handlers import at, event

from amadou import (
    FromPort,
    Handler,
    Job,
    KeyedEvent,
    MemorySink,
    MemorySource,
    ReferenceSpec,
    SinkSpec,
    Stage,
    Subject,
)
from amadou.errors import CallbackError, JobError, ReferenceKeyError, SpecError
from amadou_runtime import run

pytestmark = pytest.mark.rule(37)


@attrs.define
class Rule:
    limit: int
    tags: list[str] = attrs.Factory(list)


class Fraud(Handler):
    """Emits for each event the rule that its value names; a timer emits the rule `timer`."""

    rules = ReferenceSpec(str, Rule, source="rules")
    out = SinkSpec(tuple)

    def key_event(self, record: Any) -> KeyedEvent[Any]:
        return record  # type: ignore[no-any-return]

    def on_event(self, subject: Subject, event: KeyedEvent[Any]) -> None:
        rule = self.rules.get(subject, event.value)
        self.out.collect(subject, (event.value, None if rule is None else rule.limit))
        if rule is not None:
            rule.tags.append("changed")  # changes a copy
            rule.limit = -1
        subject.set_timer(event.timestamp + timedelta(seconds=10))

    def on_timer_expired(self, subject: Subject, timestamp: Any) -> None:
        rule = self.rules.get(subject, "timer")
        self.out.collect(subject, ("timer", None if rule is None else rule.limit))


def job(handler: Handler | None = None, **settings: Any) -> Job:
    sources = {"events": MemorySource(), "rules": MemorySource()}
    return Job("fraud", handler or Fraud(), sources, {"out": MemorySink()}, **settings)


def rule(seconds: float, name: str, limit: int | None) -> KeyedEvent[Any]:
    return event(seconds, None if limit is None else Rule(limit), name)


def test_all_keys_of_a_batch_see_its_updates(test_run: MakeRun) -> None:
    """Rule b: whatever the times of the events and the order of the records."""
    test = test_run(job())
    test.add_record(event(1, "a", "k1"), "events").add_record(rule(50, "a", 7), "rules")
    test.add_record(event(60, "a", "k2"), "events").end_batch()
    test.add_record(rule(51, "a", 8), "rules").add_record(event(61, "a", "k1"), "events")
    result = test.run()
    assert [each for each in result.records("out") if each[0] != "timer"] == [("a", 7), ("a", 7), ("a", 8)]
    assert result.reference("rules") == result.reference(Fraud.rules) == {"a": Rule(8)}
    assert {entry.source for entry in result.trace} == {"events", None}


def test_the_newest_update_wins_and_none_removes(test_run: MakeRun) -> None:
    """Rule a."""
    test = test_run(job())
    for update in (rule(5, "a", 1), rule(9, "a", 2), rule(7, "a", 3), rule(9, "b", 1), rule(9, "b", 2)):
        test.add_record(update, "rules")
    assert test.end_batch().run().reference("rules") == {"a": Rule(2), "b": Rule(2)}
    test.add_record(rule(8, "a", None), "rules").add_record(rule(10, "b", None), "rules")
    assert test.end_batch().run().reference("rules") == {"a": Rule(2)}
    test.add_record(rule(9, "b", 5), "rules").add_record(rule(11, "a", None), "rules")
    assert test.end_batch().run().reference("rules") == {}
    test.add_record(rule(12, "b", 6), "rules").add_record(event(1, "b"), "events")
    result = test.run()
    assert result.reference("rules") == {"b": Rule(6)}
    assert result.records("out") == [("b", 6)]


def test_timers_see_the_updates_of_their_batch(test_run: MakeRun) -> None:
    """Rule b."""
    test = test_run(job()).add_record(event(1, "a"), "events").end_batch()
    test.add_record(event(20, "a"), "events").end_batch()
    test.add_record(rule(1, "timer", 4), "rules").end_batch()
    assert test.run().records("out")[-1] == ("timer", 4)


def test_the_source_does_not_hold_the_watermark_back(test_run: MakeRun) -> None:
    """Rule c."""
    test = test_run(job()).add_record(rule(1, "a", 1), "rules").add_record(event(30, "a"), "events").end_batch()
    test.add_record(rule(900, "a", 1), "rules").end_batch()
    result = test.run()
    assert (result.watermark, result.late) == (at(30), [])


def test_values_are_not_shared(test_run: MakeRun) -> None:
    """Rule b: the handler changes the rule that it has read."""
    test = test_run(job()).add_record(rule(1, "a", 3), "rules")
    for key in ("k1", "k2", "k3"):
        test.add_record(event(1, "a", key), "events")
    result = test.run()
    assert result.records("out") == [("a", 3)] * 3
    assert result.reference("rules") == {"a": Rule(3)}


def test_entries_survive_restarts_and_crashes(test_run: MakeRun) -> None:
    """Rules b and 20."""
    test = test_run(job()).add_record(rule(1, "a", 3), "rules").restart()
    test.add_record(event(1, "a"), "events").add_record(rule(2, "b", 4), "rules").crash(0)
    test.add_record(event(2, "b"), "events").end_batch()
    snapshot = test.run().records("out"), test.snapshot()
    assert snapshot[0] == [("a", 3), ("b", 4)]
    after = test_run(job(), snapshot=snapshot[1]).add_record(event(3, "a"), "events").run()
    assert after.records("out") == [("a", 3)]


def test_a_failed_batch_does_not_change_entries(test_run: MakeRun) -> None:
    """Rules b and 18."""

    class Failing(Fraud):
        def on_event(self, subject: Subject, event: KeyedEvent[Any]) -> None:
            super().on_event(subject, event)
            if event.value == "bad":
                raise ValueError("bad")

    test = test_run(job(Failing())).add_record(rule(1, "a", 3), "rules").end_batch()
    test.run()
    test.add_record(rule(2, "a", 4), "rules").add_record(event(1, "bad"), "events")
    with pytest.raises(CallbackError, match="bad"):
        test.run()
    assert test.add_record(event(2, "a"), "events").run().records("out") == [("a", 3)]


class Reading(Fraud):
    def on_event(self, subject: Subject, event: KeyedEvent[Any]) -> None:
        has = (subject, "a") in self.rules, (subject, "x") in self.rules
        named = [(name, rule.limit) for name, rule in self.rules.items(subject)]
        self.out.collect(subject, (*has, self.rules.size(subject), named, self.rules[subject, event.value].limit))


def test_a_reference_reads_like_a_mapping(test_run: MakeRun) -> None:
    test = test_run(job(Reading())).add_record(rule(1, "a", 3), "rules").add_record(rule(1, "b", 4), "rules")
    result = test.add_record(event(1, "b"), "events").run()
    assert result.records("out") == [(True, False, 2, [("a", 3), ("b", 4)], 4)]
    test.add_record(event(2, "x"), "events")
    with pytest.raises(CallbackError, match=r"the reference rules has no entry for 'x': read it with self.rules.get"):
        test.run()
    assert issubclass(ReferenceKeyError, KeyError)


@pytest.mark.parametrize(
    ("update", "message"),
    [
        (event(1, "text", "a"), "EncodeError"),
        (event(1, Rule(1), 5), "EncodeError"),
        (KeyedEvent("a", None, Rule(1)), "is not a datetime"),  # type: ignore[arg-type]
    ],
)
def test_updates_are_checked(test_run: MakeRun, update: Any, message: str) -> None:
    """Rules a and 19: a bad update fails like other records."""
    with pytest.raises(CallbackError, match=message) as caught:
        test_run(job()).add_record(update, "rules").run()
    assert (caught.value.callback, caught.value.source) == ("key_event", "rules")
    test = test_run(job(on_error="dead_letter"))
    test.add_record(update, "rules").add_record(rule(1, "b", 1), "rules")
    result = test.run()
    assert result.reference("rules") == {"b": Rule(1)}
    assert [letter.source for letter in result.dead_letters] == ["rules"]


class Limits(Handler):
    """Emits an entry for each event."""

    out = SinkSpec(tuple)

    def key_event(self, record: Any) -> KeyedEvent[Any]:
        return record  # type: ignore[no-any-return]

    def on_event(self, subject: Subject, event: KeyedEvent[Any]) -> None:
        self.out.collect(subject, (subject.key, event.value))


class Limited(Handler):
    limits = ReferenceSpec(str, int, source="limits")
    seen = SinkSpec(tuple)

    def key_event(self, record: Any) -> KeyedEvent[Any]:
        return KeyedEvent(record[0], None, record[1]) if isinstance(record, tuple) and len(record) == 2 else record  # type: ignore[arg-type]

    def on_event(self, subject: Subject, event: KeyedEvent[Any]) -> None:
        self.seen.collect(subject, (event.value, self.limits.get(subject, event.value)))


def test_a_port_can_update_a_reference(engine: str, test_run: MakeRun) -> None:
    """Rules a and 36."""
    if engine == "spark":
        pytest.skip("see test_a_port_updates_a_reference_on_spark: the store groups cannot have several stages")
    _check_fed(test_run)


@pytest.mark.spark
def test_a_port_updates_a_reference_on_spark(spark: Any) -> None:
    from amadou_runtime import TestRun

    _check_fed(lambda job: TestRun(job, engine="both", spark=spark))


def _check_fed(test_run: Any) -> None:
    made = Job(
        "fed",
        stages={
            "make": Stage(Limits(), {"in": MemorySource()}),
            "use": Stage(
                Limited(), {"limits": FromPort("make", "out"), "events": MemorySource()}, {"seen": MemorySink()}
            ),
        },
    )
    test = test_run(made).add_record(event(5, 1, "a"), "in").add_record(event(9, 2, "a"), "in")
    test.add_record(event(7, 3, "a"), "in").add_event(event(1, "a", "k"), "events")
    result = test.run()
    assert result.records("seen") == [("a", 2)]
    assert result.reference("limits") == {"a": 2}


@pytest.mark.parametrize("store", ["groups", "log"])
@pytest.mark.spark
def test_a_run_on_spark_reads_a_reference(spark: Any, store: Any) -> None:
    """Rule b: in a run with several key ranges."""
    rules = MemorySource([rule(1, f"r{number}", number) for number in range(100)])
    events = MemorySource([event(2, f"r{number}", f"k{number}") for number in range(100)])
    made = Job("fraud", Fraud(), {"events": events, "rules": rules}, {"out": MemorySink()}, state=store)
    run(made, trigger="available-now")
    found = made.sinks["out"].records  # type: ignore[union-attr]
    assert sorted(each for each in found if each[0] != "timer") == sorted((f"r{n}", n) for n in range(100))


class Two(Fraud):
    others = ReferenceSpec(str, int, source="rules")


class Missing(Fraud):
    rules = ReferenceSpec(str, Rule, source="missing")


def test_mistakes_are_found_when_the_job_is_created() -> None:
    with pytest.raises(
        JobError, match=r"Missing.rules needs the source 'missing', but the job has no source with this"
    ):
        job(Missing())
    with pytest.raises(JobError, match="2 references of Two have the source 'rules': use a source for each"):
        job(Two())
    with pytest.raises(JobError, match="all sources of the job update references"):
        Job("fraud", Fraud(), {"rules": MemorySource()}, {"out": MemorySink()})
    with pytest.raises(SpecError, match="source must be the name of a source of the job, not None"):
        ReferenceSpec(str, int, source=None)  # type: ignore[arg-type]
