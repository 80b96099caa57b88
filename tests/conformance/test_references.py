"""References: mappings that all keys share (`semantics.md` 37)."""

import json
import random
import time
from datetime import datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import attrs
import pytest
from tests.conformance.conftest import MakeRun
from tests.conformance.handlers import EventHandler, at, event
from tests.conformance.handlers import job as job_in_memory
from tests.waits import wait_for

from amadou import (
    FromPort,
    Handler,
    Job,
    KeyedEvent,
    ListSpec,
    MemorySink,
    MemorySource,
    ReferenceChange,
    ReferenceSpec,
    SinkSpec,
    Stage,
    Subject,
)
from amadou.errors import (
    CallbackError,
    JobError,
    ReferenceKeyError,
    SinkError,
    SourceError,
    SpecError,
    TooManyDeadLettersError,
)
from amadou.plugins import TableSource
from amadou_plugins.connectors import JsonLinesSink, JsonLinesSource
from amadou_runtime import TestRun, run, start
from amadou_runtime.runs.files import LocalFiles
from amadou_runtime.spark import reference_files
from amadou_runtime.spark.clock import RunClock
from amadou_runtime.spark.savepoints.rescaling import rescale

pytestmark = pytest.mark.rule(37)


@attrs.define
class Rule:
    limit: int
    tags: list[str] = attrs.Factory(list)


class RuleOfEvent(EventHandler):
    """Emits for each event the rule that its value names; a timer emits the rule `timer`."""

    rules = ReferenceSpec(str, Rule, source="rules")
    out = SinkSpec(tuple)

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
    return job_in_memory(handler or RuleOfEvent(), "events", "rules", **settings)


def rule(seconds: float, name: str, limit: int | None) -> KeyedEvent[Any]:
    return event(seconds, None if limit is None else Rule(limit), name)


@pytest.mark.on_spark("references")
def test_all_keys_of_a_batch_see_the_reference_updates_of_the_batch(test_run: MakeRun) -> None:
    """Rule b: whatever the times of the events and the order of the records."""
    test = test_run(job())
    test.add_record(event(1, "a", "k1"), "events").add_record(rule(50, "a", 7), "rules")
    test.add_record(event(60, "a", "k2"), "events").end_batch()
    test.add_record(rule(51, "a", 8), "rules").add_record(event(61, "a", "k1"), "events")
    result = test.run()
    assert [each for each in result.records("out") if each[0] != "timer"] == [("a", 7), ("a", 7), ("a", 8)]
    assert result.reference("rules") == result.reference(RuleOfEvent.rules) == {"a": Rule(8)}
    assert {entry.source for entry in result.trace} == {"events", None}


def test_the_newest_update_of_a_reference_wins_and_none_removes_the_entry(test_run: MakeRun) -> None:
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


def test_timers_see_the_reference_updates_of_their_batch(test_run: MakeRun) -> None:
    """Rule b."""
    test = test_run(job()).add_record(event(1, "a"), "events").end_batch()
    test.add_record(event(20, "a"), "events").end_batch()
    test.add_record(rule(1, "timer", 4), "rules").end_batch()
    assert test.run().records("out")[-1] == ("timer", 4)


def test_the_source_of_a_reference_does_not_hold_back_the_watermark(test_run: MakeRun) -> None:
    """Rule c."""
    test = test_run(job()).add_record(rule(1, "a", 1), "rules").add_record(event(30, "a"), "events").end_batch()
    test.add_record(rule(900, "a", 1), "rules").end_batch()
    result = test.run()
    assert (result.watermark, result.late) == (at(30), [])


def test_changing_a_value_read_from_a_reference_does_not_change_the_reference(test_run: MakeRun) -> None:
    """Rule b: the handler changes the rule that it has read."""
    test = test_run(job()).add_record(rule(1, "a", 3), "rules")
    for key in ("k1", "k2", "k3"):
        test.add_record(event(1, "a", key), "events")
    result = test.run()
    assert result.records("out") == [("a", 3)] * 3
    assert result.reference("rules") == {"a": Rule(3)}


def test_reference_entries_survive_restarts_and_crashes(test_run: MakeRun) -> None:
    """Rules b and 20."""
    test = test_run(job()).add_record(rule(1, "a", 3), "rules").restart()
    test.add_record(event(1, "a"), "events").add_record(rule(2, "b", 4), "rules").crash(0)
    test.add_record(event(2, "b"), "events").end_batch()
    snapshot = test.run().records("out"), test.snapshot()
    assert snapshot[0] == [("a", 3), ("b", 4)]
    after = test_run(job(), snapshot=snapshot[1]).add_record(event(3, "a"), "events").run()
    assert after.records("out") == [("a", 3)]


def test_a_failed_batch_does_not_change_reference_entries(test_run: MakeRun) -> None:
    """Rules b and 18."""

    class Failing(RuleOfEvent):
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


class ReadsAsMapping(RuleOfEvent):
    def on_event(self, subject: Subject, event: KeyedEvent[Any]) -> None:
        has = (subject, "a") in self.rules, (subject, "x") in self.rules
        named = [(name, rule.limit) for name, rule in self.rules.items(subject)]
        self.out.collect(subject, (*has, self.rules.size(subject), named, self.rules[subject, event.value].limit))


def test_a_reference_reads_like_a_mapping(test_run: MakeRun) -> None:
    test = test_run(job(ReadsAsMapping())).add_record(rule(1, "a", 3), "rules").add_record(rule(1, "b", 4), "rules")
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
def test_an_invalid_reference_update_fails_like_an_invalid_record(test_run: MakeRun, update: Any, message: str) -> None:
    """Rules a and 19: a bad update fails like other records."""
    with pytest.raises(CallbackError, match=message) as caught:
        test_run(job()).add_record(update, "rules").run()
    assert (caught.value.callback, caught.value.source) == ("key_event", "rules")
    test = test_run(job(on_error="dead_letter"))
    test.add_record(update, "rules").add_record(rule(1, "b", 1), "rules")
    result = test.run()
    assert result.reference("rules") == {"b": Rule(1)}
    assert [dead_letter.source for dead_letter in result.dead_letters] == ["rules"]


class EmitsLimits(EventHandler):
    """Emits an entry for each event."""

    out = SinkSpec(tuple)

    def on_event(self, subject: Subject, event: KeyedEvent[Any]) -> None:
        self.out.collect(subject, (subject.key, event.value))


SEEN = {"seen": MemorySink()}


class ReadsLimits(Handler):
    limits = ReferenceSpec(str, int, source="limits")
    seen = SinkSpec(tuple)

    def key_event(self, record: Any) -> KeyedEvent[Any]:
        return KeyedEvent(record[0], None, record[1]) if isinstance(record, tuple) and len(record) == 2 else record  # type: ignore[arg-type]

    def on_event(self, subject: Subject, event: KeyedEvent[Any]) -> None:
        self.seen.collect(subject, (event.value, self.limits.get(subject, event.value)))


@pytest.mark.on_spark("references")
@pytest.mark.several_stages
def test_a_port_can_update_a_reference(test_run: MakeRun) -> None:
    """Rules a and 36."""
    fed_job = Job(
        "fed",
        stages={
            "make": Stage(EmitsLimits(), {"in": MemorySource()}),
            "use": Stage(
                ReadsLimits(), {"limits": FromPort("make", "out"), "events": MemorySource()}, {"seen": MemorySink()}
            ),
        },
    )
    test = test_run(fed_job).add_record(event(5, 1, "a"), "in").add_record(event(9, 2, "a"), "in")
    test.add_record(event(7, 3, "a"), "in").add_event(event(1, "a", "k"), "events")
    result = test.run()
    assert result.records("seen") == [("a", 2)]
    assert result.reference("limits") == {"a": 2}


@pytest.mark.several_stages
def test_a_port_that_updates_a_reference_does_not_hold_back_the_watermark(test_run: MakeRun) -> None:
    """Rules c and 36."""
    sources = {"limits": FromPort("make", "out"), "events": MemorySource()}
    stages = {"make": Stage(EmitsLimits(), {"in": MemorySource()}), "use": Stage(ReadsLimits(), sources, SEEN)}
    test = test_run(Job("fed", stages=stages)).add_record(event(1, 1, "a"), "in").end_batch()
    for second in (10, 20, 30):
        test.add_event(event(second, "a", "k"), "events").end_batch()
    assert test.run().stage("use").watermark == at(30)


@pytest.mark.parametrize(
    "store",
    [pytest.param("groups", marks=pytest.mark.qualify), pytest.param("log", marks=pytest.mark.needs_spark(4))],
)
@pytest.mark.spark
def test_a_run_on_spark_reads_a_reference(spark: Any, store: Any) -> None:
    """Rule b: in a run with several key ranges."""
    rules = MemorySource([rule(1, f"r{number}", number) for number in range(100)])
    events = MemorySource([event(2, f"r{number}", f"k{number}") for number in range(100)])
    rules_job = Job("fraud", RuleOfEvent(), {"events": events, "rules": rules}, {"out": MemorySink()}, state=store)
    run(rules_job, trigger="available-now")
    outputs = rules_job.sinks["out"].records  # type: ignore[union-attr]
    assert sorted(each for each in outputs if each[0] != "timer") == sorted((f"r{n}", n) for n in range(100))


class TwoReferences(RuleOfEvent):
    others = ReferenceSpec(str, int, source="rules")


class Missing(RuleOfEvent):
    rules = ReferenceSpec(str, Rule, source="missing")


def test_invalid_references_are_errors_when_the_job_is_created() -> None:
    with pytest.raises(
        JobError, match=r"Missing.rules needs the source 'missing', but the job has no source with this"
    ):
        job(Missing())
    with pytest.raises(JobError, match="2 references of TwoReferences have the source 'rules': use a source for each"):
        job(TwoReferences())
    with pytest.raises(JobError, match="all sources of the job update references"):
        Job("fraud", RuleOfEvent(), {"rules": MemorySource()}, {"out": MemorySink()})
    with pytest.raises(SpecError, match="source must be the name of a source of the job, not None"):
        ReferenceSpec(str, int, source=None)  # type: ignore[arg-type]


def test_savepoints_contain_reference_entries(tmp_path: Path) -> None:
    test = TestRun(job()).add_record(rule(5, "a", 1), "rules").add_record(rule(6, "b", None), "rules").end_batch()
    test.run()
    test.savepoint(tmp_path / "saved")
    after = TestRun(job(), savepoint=tmp_path / "saved").add_record(rule(3, "b", 2), "rules")
    result = after.add_record(event(9, "a"), "events").run()
    assert (result.records("out"), result.reference("rules")) == ([("a", 1)], {"a": Rule(1)})


@pytest.mark.qualify  # tests/spark/test_rescaling.py moves state, and tests/stored references
@pytest.mark.spark
@pytest.mark.needs_spark(4)
def test_reference_entries_move_between_engines_and_survive_rescaling(spark: Any, tmp_path: Path) -> None:
    (tmp_path / "rules").mkdir()
    (tmp_path / "rules" / "0.jsonl").write_text('{"name": "r7", "second": 1, "limit": 7}\n')
    add_events(tmp_path, 1, "r7")
    run(stream_job(tmp_path), engine="embedded", to_savepoint=str(tmp_path / "first"))
    state = str(tmp_path / "state")
    add_events(tmp_path, 2, "r7", "r8")
    (tmp_path / "rules" / "1.jsonl").write_text('{"name": "r8", "second": 1, "limit": 8}\n')
    run(stream_job(tmp_path), checkpoint=state, from_savepoint=str(tmp_path / "first"), trigger="available-now")
    rescale(spark, state, partitions=3)
    add_events(tmp_path, 3, "r7", "r8")
    second = str(tmp_path / "second")
    run(stream_job(tmp_path), checkpoint=state, to_savepoint=second, trigger="available-now")
    add_events(tmp_path, 4, "r7", "r8")
    run(stream_job(tmp_path), engine="embedded", from_savepoint=second)
    limits = sorted((name, limit) for name, limit, _ in seen(tmp_path))
    assert limits == [("r7", 7)] * 4 + [("r8", 8)] * 3


class Watcher(RuleOfEvent):
    """An event's value is ``watch``, ``unwatch`` or the name of a rule."""

    def on_event(self, subject: Subject, event: KeyedEvent[Any]) -> None:
        if event.value == "watch":
            self.rules.watch(subject)
        elif event.value == "unwatch":
            self.rules.unwatch(subject)
        elif event.value == "timer":
            subject.set_timer(event.timestamp)
        if event.value == "watch and fail":
            self.rules.watch(subject)
            raise ValueError("fail")

    def on_reference_changed(self, subject: Subject, change: ReferenceChange) -> None:
        limits = [self.rules[subject, key].limit for key in change.keys if (subject, key) in self.rules]
        if -1 in limits:
            raise ValueError("negative")
        self.out.collect(subject, (subject.key, change.reference, list(change.keys), limits, subject.timestamp))


def changes_of(result: Any, new: bool = True) -> list[Any]:
    return [each for each in result.records("out", new=new) if each[0] != "timer"]


@pytest.mark.on_spark("references")
def test_keys_that_watch_a_reference_are_notified_of_changes(test_run: MakeRun) -> None:
    """Rule d."""
    test = test_run(job(Watcher())).add_record(event(1, "watch", "k2"), "events")
    test.add_record(event(1, "watch", "k1"), "events").add_record(event(1, "other", "k3"), "events")
    test.add_record(rule(1, "a", 1), "rules").end_batch()
    assert changes_of(test.run()) == []  # keys that watch are notified from the next batch on
    test.add_record(rule(7, "b", 2), "rules").add_record(rule(3, "a", 3), "rules").add_record(rule(2, "a", 9), "rules")
    test.add_record(event(2, "unwatch", "k2"), "events").end_batch()
    assert changes_of(test.run()) == [(key, "rules", ["a", "b"], [3, 2], at(7)) for key in ("k1", "k2")]
    test.add_record(event(3, "other", "k1"), "events").end_batch()
    assert changes_of(test.run()) == []
    test.add_record(rule(8, "b", None), "rules").restart()
    assert changes_of(test.run()) == [("k1", "rules", ["b"], [], at(8))]
    test.add_record(rule(4, "c", 1), "rules").crash(0)
    result = test.run()
    assert changes_of(result) == [("k1", "rules", ["c"], [1], at(4))]
    assert result.keys() == ["k1"]


class WatcherOfTwo(EventHandler):
    """When it is notified of a change of `first`, a key stops or begins to watch `second`."""

    first = ReferenceSpec(str, int, source="first")
    second = ReferenceSpec(str, int, source="second")
    out = SinkSpec(tuple)

    def on_event(self, subject: Subject, event: KeyedEvent[Any]) -> None:
        self.first.watch(subject)
        if subject.key == "leaves":
            self.second.watch(subject)

    def on_reference_changed(self, subject: Subject, change: ReferenceChange) -> None:
        self.out.collect(subject, (subject.key, change.reference))
        if change.reference == "first":
            (self.second.unwatch if subject.key == "leaves" else self.second.watch)(subject)


def test_watching_and_unwatching_take_effect_within_a_batch(test_run: MakeRun) -> None:
    """Rule d."""
    test = test_run(job_in_memory(WatcherOfTwo(), "events", "first", "second"))
    test.add_records([event(1, None, "leaves"), event(1, None, "joins")], "events").end_batch()
    test.add_record(event(1, 1, "a"), "first").add_record(event(1, 1, "a"), "second").end_batch()
    calls = [("joins", "first"), ("leaves", "first"), ("joins", "second")]
    assert test.run().records("out", new=True) == calls
    test.add_record(event(1, 1, "b"), "second").end_batch()
    assert test.run().records("out", new=True) == [("joins", "second")]


def test_the_time_of_a_notification_is_never_before_the_watermark(test_run: MakeRun) -> None:
    """Rule d: so what it sends to another stage is not late there."""
    test = test_run(job(Watcher())).add_record(event(1, "watch", "k"), "events").end_batch()
    test.add_record(event(100, "x"), "events").end_batch()
    test.add_record(rule(5, "a", 1), "rules").end_batch().add_record(rule(999, "b", 1), "rules").end_batch()
    assert [each[-1] for each in changes_of(test.run())] == [at(100), at(999)]


class EmitsAtTimer(EventHandler):
    """Emits an entry at the time of a timer."""

    out = SinkSpec(tuple)

    def on_event(self, subject: Subject, event: KeyedEvent[Any]) -> None:
        subject.set_timer(at(event.value))

    def on_timer_expired(self, subject: Subject, timestamp: datetime) -> None:
        self.out.collect(subject, ("a", 1))


class RemembersEvents(ReadsLimits):
    """Watches a reference, and sends the events of the last minute when it changes."""

    names = ListSpec(str, ttl=timedelta(minutes=1))

    def on_event(self, subject: Subject, event: KeyedEvent[Any]) -> None:
        self.limits.watch(subject)
        self.names.state_for(subject).append(event.value)

    def on_reference_changed(self, subject: Subject, change: ReferenceChange) -> None:
        self.seen.collect(subject, ("names", list(self.names.state_for(subject))))


class TimeOfEvent(Handler):
    out = SinkSpec(tuple)

    def key_event(self, record: tuple[str, list[str]]) -> KeyedEvent[Any]:
        return KeyedEvent(record[0], None, record[1])  # type: ignore[arg-type]

    def on_event(self, subject: Subject, event: KeyedEvent[Any]) -> None:
        self.out.collect(subject, (event.value, event.timestamp, subject.is_late))


@pytest.mark.several_stages
@pytest.mark.parametrize(("timer", "time"), [(50, 100), (150, 150)])
def test_a_flush_notifies_keys_at_the_time_of_the_update_or_the_watermark_before(
    test_run: MakeRun, timer: int, time: int
) -> None:
    """Rule d: so state is visible, and what is sent to another stage is not late there."""
    stages = {
        "make": Stage(EmitsAtTimer(), {"in": MemorySource()}),
        "use": Stage(RemembersEvents(), {"limits": FromPort("make", "out"), "events": MemorySource()}),
        "end": Stage(TimeOfEvent(), {"sent": FromPort("use", "seen")}, {"out": MemorySink()}),
    }
    test = test_run(Job("fed", stages=stages)).add_record(event(1, timer), "in")
    for each in (event(20, "old", "k"), event(90, "new", "k"), event(100, "other", "x")):
        test.add_event(each, "events")
    result = test.end_batch().run(flush=True)
    assert result.stage("end").records("out") == [(["new"], at(time), False), (["other"], at(time), False)]


def test_on_reference_changed_is_called_before_the_timers_and_events_of_a_key(test_run: MakeRun) -> None:
    """Rule d."""
    test = test_run(job(Watcher())).add_record(event(1, "watch"), "events").add_record(event(2, "timer"), "events")
    test.end_batch().add_record(event(9, "x"), "events").add_record(rule(9, "a", 1), "rules").end_batch()
    calls = [entry.callback for entry in test.run().trace][2:]
    assert calls[:3] == ["on_reference_changed", "on_timer_expired", "on_event"]


def test_of_many_keys_only_those_that_watch_a_reference_are_notified(test_run: MakeRun) -> None:
    """Rule d: of many keys, only those that watch are processed."""
    keys = [f"k{number}" for number in range(3_000)]
    test = test_run(job(Watcher()))
    test.add_records([event(1, "timer", key) for key in keys], "events")
    test.add_records([event(1, "watch", key) for key in keys[::100]], "events").end_batch()
    test.add_record(rule(1, "a", 1), "rules").end_batch()
    result = test.run()
    assert [each[0] for each in changes_of(result)] == sorted(keys[::100])


def test_a_failing_on_reference_changed_is_a_dead_letter(test_run: MakeRun) -> None:
    """Rules d and 19."""
    test = test_run(job(Watcher(), on_error="dead_letter"))
    test.add_record(event(3, "watch", "k1"), "events").add_record(
        event(1, "watch and fail", "k2"), "events"
    ).end_batch()
    test.add_record(rule(1, "a", -1), "rules").end_batch().add_record(rule(2, "a", 2), "rules").end_batch()
    result = test.run()
    assert changes_of(result) == [("k1", "rules", ["a"], [2], at(3))]
    dead_letters = [
        (dead_letter.callback, dead_letter.key, dead_letter.timestamp) for dead_letter in result.dead_letters
    ]
    assert dead_letters == [("on_event", "k2", at(1)), ("on_reference_changed", "k1", at(3))]


def test_watching_a_reference_requires_on_reference_changed(test_run: MakeRun) -> None:
    class WithoutCallback(RuleOfEvent):
        def on_event(self, subject: Subject, event: KeyedEvent[Any]) -> None:
            self.rules.watch(subject)

    with pytest.raises(CallbackError, match="WithoutCallback does not define on_reference_changed"):
        test_run(job(WithoutCallback())).add_record(event(1), "events").run()


class Rows(TableSource):
    """The lines of a file, as pairs of a name and a limit: a table that tests can change."""

    def __init__(self, path: Path, refresh: timedelta | None = None) -> None:
        self.path = path
        self.refresh = refresh

    def key_event(self, record: Any) -> KeyedEvent[Any]:
        name, limit = record
        return KeyedEvent(name, None, None if limit == "-" else int(limit))  # type: ignore[arg-type]

    def records(self) -> list[Any]:
        try:
            return [line.split() for line in self.path.read_text().splitlines()]
        except OSError as error:
            raise SourceError(f"cannot read the table: {error}") from error


def table_job(directory: Path, refresh: timedelta | None = None, **settings: Any) -> Job:
    sources = {"events": JsonLinesSource(str(directory / "in")), "limits": Rows(directory / "table", refresh)}
    sinks = {"seen": JsonLinesSink(str(directory / "out"))}
    if settings:
        sinks["dead_letters"] = JsonLinesSink(str(directory / "letters"))
    return Job("table", LimitOfName(), sources, sinks, **settings)


class LimitOfName(Handler):
    limits = ReferenceSpec(str, int, source="limits")
    seen = SinkSpec(tuple)

    def key_event(self, record: Any) -> KeyedEvent[Any]:
        return KeyedEvent(record["name"], at(record["second"]), record["name"])

    def on_event(self, subject: Subject, event: KeyedEvent[Any]) -> None:
        self.seen.collect(subject, (event.value, self.limits.get(subject, event.value), self.limits.size(subject)))


def add_events(directory: Path, number: int, *names: str) -> None:
    lines = "".join(json.dumps({"name": name, "second": number}) + "\n" for name in names)
    (directory / "in").mkdir(exist_ok=True)
    (directory / f"part-{number}").write_text(lines)
    (directory / f"part-{number}").rename(directory / "in" / f"{number}.jsonl")


def written(directory: Path) -> list[Any]:
    return [json.loads(line) for path in sorted(directory.glob("*.jsonl")) for line in path.read_text().splitlines()]


def seen(directory: Path) -> list[Any]:
    return [tuple(line) for line in written(directory / "out")]


def test_a_table_is_read_before_the_first_batch(engine: str, tmp_path: Path) -> None:
    """Rule e."""
    (tmp_path / "table").write_text("a 1\nb 2\n")
    add_events(tmp_path, 1, "a", "x")
    run(table_job(tmp_path), engine=engine, trigger="available-now")  # type: ignore[arg-type]
    assert sorted(seen(tmp_path), key=str) == [("a", 1, 2), ("x", None, 2)]


class WatcherOfTable(LimitOfName):
    def on_event(self, subject: Subject, event: KeyedEvent[Any]) -> None:
        self.limits.watch(subject)

    def on_reference_changed(self, subject: Subject, change: ReferenceChange) -> None:
        self.seen.collect(subject, (change.keys, change.timestamp, self.limits[subject, "a"]))


def test_in_a_test_run_rows_of_a_table_have_the_time_of_its_clock(test_run: MakeRun, tmp_path: Path) -> None:
    """Rule e."""
    of_table = Job(
        "table", WatcherOfTable(), {"events": MemorySource(), "limits": Rows(tmp_path)}, {"seen": MemorySink()}
    )
    run = test_run(of_table, processing_time=at(1_000))
    run.add_record({"name": "k", "second": 900}, "events").end_batch().add_record(("a", "1"), "limits")
    assert run.run().records("seen") == [(("a",), at(1_000), 1)]
    run.advance_processing_time(timedelta(minutes=1)).add_record(("a", "2"), "limits")
    assert run.run().records("seen", new=True) == [(("a",), at(1_060), 2)]


def test_a_table_that_cannot_be_read_is_an_error_at_the_start(engine: str, tmp_path: Path) -> None:
    """Rule e."""
    add_events(tmp_path, 1, "a")
    with pytest.raises(SourceError, match="cannot read the table"):
        run(table_job(tmp_path), engine=engine, trigger="available-now")  # type: ignore[arg-type]
    (tmp_path / "table").write_text("a one\n")
    with pytest.raises(CallbackError, match="invalid literal"):
        run(table_job(tmp_path), engine=engine, trigger="available-now")  # type: ignore[arg-type]


@pytest.mark.spark
def test_a_table_is_read_again_at_each_interval_and_by_the_next_run(spark: Any, tmp_path: Path) -> None:
    """Rule e: rows that the table no longer has are removed. If the table cannot be read, its rows stay."""
    (tmp_path / "table").write_text("a 1\nb 2\n")
    add_events(tmp_path, 1, "a")
    running = start(
        table_job(tmp_path, timedelta(seconds=0.2)), spark, checkpoint=str(tmp_path / "state"), trigger="1 second"
    )
    try:
        wait_for(lambda: len(seen(tmp_path)) == 1)
        (tmp_path / "table").write_text("b 3\nc 4\nd 5\n")
        time.sleep(0.3)  # time itself is tested: longer than the interval
        add_events(tmp_path, 2, "a", "b")
        wait_for(lambda: len(seen(tmp_path)) == 3)
        (tmp_path / "table").unlink()
        time.sleep(0.3)
        add_events(tmp_path, 3, "c")
        wait_for(lambda: len(seen(tmp_path)) == 4)
    finally:
        running.stop()
    assert sorted(seen(tmp_path), key=str) == [("a", 1, 2), ("a", None, 3), ("b", 3, 3), ("c", 4, 3)]
    (tmp_path / "table").write_text("d 6\n")
    add_events(tmp_path, 4, "c", "d")
    run(table_job(tmp_path), checkpoint=str(tmp_path / "state"), trigger="available-now")
    assert sorted(seen(tmp_path)[4:], key=str) == [("c", None, 1), ("d", 6, 1)]


def test_a_row_that_fails_is_a_dead_letter(engine: str, tmp_path: Path) -> None:
    """Rule e: it counts as one of the calls that `max_dead_letters` limits."""
    (tmp_path / "table").write_text("a 1\nb two\nc 3\n")
    add_events(tmp_path, 1, "a")
    letters = table_job(tmp_path, on_error="dead_letter", max_dead_letters=1)
    summary = run(letters, engine=engine, trigger="available-now")  # type: ignore[arg-type]
    assert seen(tmp_path) == [("a", 1, 2)]
    [letter] = written(tmp_path / "letters")
    assert (letter["callback"], letter["source"], letter["record"]) == ("key_event", "limits", ["b", "two"])
    assert "invalid literal" in letter["error"]
    assert summary.counts.outputs["dead_letters"] == 1
    (tmp_path / "table").write_text("a 1\n" * 50 + "b two\n" * 20)
    run(table_job(tmp_path, on_error="dead_letter", max_dead_letters=0.5), engine=engine, trigger="available-now")  # type: ignore[arg-type]
    with pytest.raises(TooManyDeadLettersError, match="20 × key_event of limits: ValueError: invalid"):
        run(table_job(tmp_path, on_error="dead_letter", max_dead_letters=0.1), engine=engine, trigger="available-now")  # type: ignore[arg-type]


@pytest.mark.qualify  # test_a_row_that_fails_is_a_dead_letter has the dead letters
@pytest.mark.spark
def test_while_rows_fail_no_entries_are_removed(spark: Any, tmp_path: Path) -> None:
    """Rule e: but those that a row removes. A row that stays as it is becomes a dead letter once in a run."""
    (tmp_path / "table").write_text("a 1\nb 2\n")
    add_events(tmp_path, 1, "a")
    letters = table_job(tmp_path, timedelta(microseconds=1), on_error="dead_letter")
    running = start(letters, spark, checkpoint=str(tmp_path / "state"), trigger="200 milliseconds")
    try:
        wait_for(lambda: len(seen(tmp_path)) == 1)
        (tmp_path / "table").write_text("b two\nc 3\n")
        add_events(tmp_path, 2, "a", "b", "c")
        wait_for(lambda: len(seen(tmp_path)) == 4)
        add_events(tmp_path, 3, "b")
        wait_for(lambda: len(seen(tmp_path)) == 5)
        (tmp_path / "table").write_text("a -\nb two\nd four\n")
        add_events(tmp_path, 4, "c")
        wait_for(lambda: len(seen(tmp_path)) == 6)
        (tmp_path / "table").write_text("c 4\n")
        add_events(tmp_path, 5, "a", "c")
        wait_for(lambda: len(seen(tmp_path)) == 8)
    finally:
        running.stop()
    assert sorted(seen(tmp_path)[1:4]) == [("a", 1, 3), ("b", 2, 3), ("c", 3, 3)]
    assert seen(tmp_path)[4:6] == [("b", 2, 3), ("c", 3, 2)]
    assert sorted(seen(tmp_path)[6:], key=str) == [("a", None, 1), ("c", 4, 1)]
    assert [letter["record"] for letter in written(tmp_path / "letters")] == [["b", "two"], ["d", "four"]]


@pytest.mark.qualify
@pytest.mark.spark
def test_a_reprocessed_batch_sees_the_same_rows_of_a_table(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rule e: also those that fail. The table changes between the crash and the next run."""
    (tmp_path / "table").write_text("a 1\nb two\n")
    add_events(tmp_path, 1, "a")
    state = str(tmp_path / "state")
    with monkeypatch.context() as patch:
        patch.setattr(JsonLinesSink, "commit", lambda *_: (_ for _ in ()).throw(SinkError("crash")))
        with pytest.raises(SinkError, match="crash"):
            run(table_job(tmp_path, on_error="dead_letter"), checkpoint=state, trigger="available-now")
    (tmp_path / "table").write_text("a 2\nb 2\n")
    add_events(tmp_path, 2, "a")
    with pytest.raises(TooManyDeadLettersError, match="1 × key_event of limits: ValueError: invalid literal"):
        run(table_job(tmp_path, on_error="dead_letter", max_dead_letters=0), checkpoint=state, trigger="available-now")
    run(table_job(tmp_path, on_error="dead_letter"), checkpoint=state, trigger="available-now")
    assert seen(tmp_path) == [("a", 1, 1), ("a", 2, 2)]
    assert [letter["record"] for letter in written(tmp_path / "letters")] == [["b", "two"]]
    assert sorted(path.name for path in (tmp_path / "state" / "references" / "limits").iterdir()) == [
        "0-rows",
        "1-rows",
    ]


@pytest.mark.qualify  # test_reference_entries_survive_restarts_and_crashes has this for test runs on Spark
@pytest.mark.spark
def test_reference_entries_survive_a_restart_on_spark(spark: Any, tmp_path: Path) -> None:
    """Rules b and 20: files of changes, and the file with all entries that replaces them."""
    limits_job, state = stream_job(tmp_path), str(tmp_path / "state")
    for number in range(3):
        add_limits(tmp_path, number, range(30))
        add_events(tmp_path, number, "r7")
        run(limits_job, checkpoint=state, trigger="available-now")
    assert sorted(each[:2] for each in seen(tmp_path)) == [("r7", number * 100 + 7) for number in range(3)]
    files = sorted(path.name for path in (tmp_path / "state" / "references" / "limits").iterdir())
    assert any(name.endswith("-all") for name in files)
    assert len(files) < 3


@pytest.mark.spark
def test_reference_entries_survive_a_crash_between_the_file_with_all_entries_and_the_end_of_the_batch(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rules b and 20: the replaced files are needed until the batch of the new file is completed."""
    limits_job, state = stream_job(tmp_path), str(tmp_path / "state")
    add_limits(tmp_path, 0, range(5))
    add_events(tmp_path, 0, "r0")
    run(limits_job, checkpoint=state, trigger="available-now")
    add_limits(tmp_path, 1, range(5, 100))
    with monkeypatch.context() as patch:
        patch.setattr(RunClock, "end", lambda *_: (_ for _ in ()).throw(SinkError("crash")))
        with pytest.raises(SinkError, match="crash"):
            run(limits_job, checkpoint=state, trigger="available-now")
    assert list((tmp_path / "state" / "references" / "limits").glob("*-all"))
    add_events(tmp_path, 3, "r4", "r99")
    run(limits_job, checkpoint=state, trigger="available-now")
    assert sorted(seen(tmp_path)) == [("r0", 0, 6), ("r4", 4, 101), ("r99", 199, 101)]


def add_limits(directory: Path, number: int, limits: range) -> None:
    """Add limits with names such as r7, each of which contains the number, and one with a name so long that a file with
    all entries soon is smaller than the files of changes.
    """
    names = [*(f"r{each}" for each in limits), random.Random(1).randbytes(600_000).hex()]
    values = [*limits, 0]
    lines = [
        {"name": name, "second": number, "limit": number * 100 + each} for name, each in zip(names, values, strict=True)
    ]
    (directory / "rules").mkdir(exist_ok=True)
    (directory / f"rules-{number}").write_text("".join(json.dumps(line) + "\n" for line in lines))
    (directory / f"rules-{number}").rename(directory / "rules" / f"{number}.jsonl")


def test_only_the_batch_that_reads_a_table_again_notifies_keys_of_its_rows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reference_files, "is_woken", lambda *_: True)
    files = LocalFiles(str(tmp_path), tmp_path)
    spark = SimpleNamespace(sparkContext=SimpleNamespace(addFile=lambda file: None))
    rows_job = watching_job(tmp_path, timedelta(microseconds=1))
    references = reference_files.StageReferences(rows_job, "", files, spark, tmp_path, "run", None)
    for number in range(2):
        (tmp_path / "table").write_text(f"a {number}\n")
        references.read_tables(number)
    assert references.changed_files(0) == references.changed_files(2) == {}
    assert references.changed_files(1) == {"limits": references.sent["limits"][-1]}


def stream_job(directory: Path) -> Job:
    sources = {
        "events": JsonLinesSource(str(directory / "in")),
        "limits": JsonLinesSource(str(directory / "rules"), key_event=limit_of),
    }
    return Job("stream", LimitOfName(), sources, {"seen": JsonLinesSink(str(directory / "out"))})


def limit_of(record: Any) -> KeyedEvent[int]:
    return KeyedEvent(record["name"], at(record["second"]), record["limit"])


class Unused(Handler):
    seen = SinkSpec(tuple)

    def key_event(self, record: Any) -> Any: ...

    def on_event(self, subject: Subject, event: KeyedEvent[Any]) -> None: ...


def test_a_table_source_without_a_reference_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(
        JobError, match=r"sources\['limits'\] is a table, but no reference of Unused has it as its source"
    ):
        Job("t", Unused(), {"in": MemorySource(), "limits": Rows(tmp_path)}, {"seen": MemorySink()})


class WatchesRows(LimitOfName):
    def on_event(self, subject: Subject, event: KeyedEvent[Any]) -> None:
        self.limits.watch(subject)

    def on_reference_changed(self, subject: Subject, change: ReferenceChange) -> None:
        limits = [self.limits.get(subject, key) for key in change.keys]
        self.seen.collect(subject, (subject.key, list(change.keys), limits))


def watching_job(directory: Path, refresh: timedelta | None = None, state: Any = "groups") -> Job:
    return attrs.evolve(table_job(directory, refresh), handler=WatchesRows(), state=state)


@pytest.mark.parametrize("state", [pytest.param("groups", marks=pytest.mark.qualify), "log"])
@pytest.mark.spark
@pytest.mark.needs_spark(4)
def test_keys_are_notified_of_changed_rows_of_a_table(spark: Any, state: Any, tmp_path: Path) -> None:
    """Rule d: even if no data arrives."""
    (tmp_path / "table").write_text("a 1\nb 2\n")
    add_events(tmp_path, 1, "x", "y")
    rows_job, checkpoint = watching_job(tmp_path, timedelta(seconds=0.2), state), str(tmp_path / "state")
    running = start(rows_job, spark, checkpoint=checkpoint, trigger="100 milliseconds")
    try:
        wait_for(lambda: running.summary.counts.keys == 2)
        (tmp_path / "table").write_text("b 3\nc 4\n")
        wait_for(lambda: len(seen(tmp_path)) == 2)
        batches = running.summary.batches
        wait_for(lambda: running.summary.batches > batches + 2)
    finally:
        running.stop()
    assert sorted(seen(tmp_path)) == [(key, ["a", "b", "c"], [None, 3, 4]) for key in ("x", "y")]
    (tmp_path / "table").write_text("c 5\n")
    run(rows_job, checkpoint=checkpoint, trigger="available-now")
    assert sorted(seen(tmp_path)[2:]) == [(key, ["b", "c"], [None, 5]) for key in ("x", "y")]


@pytest.mark.qualify  # the test of keys that watch a reference has a crash
@pytest.mark.spark
@pytest.mark.needs_spark(4)
def test_a_reprocessed_batch_notifies_keys_of_changed_rows_once(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rules d and e: the table changes between the crash and the next run. A run that ends reads the table once."""
    limits_job = watching_job(tmp_path, timedelta(milliseconds=1))
    (tmp_path / "table").write_text("a 1\n")
    add_events(tmp_path, 1, "x")
    state = str(tmp_path / "state")
    run(limits_job, checkpoint=state, trigger="available-now")
    (tmp_path / "table").write_text("a 2\n")
    with monkeypatch.context() as patch:
        patch.setattr(JsonLinesSink, "commit", lambda *_: (_ for _ in ()).throw(SinkError("crash")))
        with pytest.raises(SinkError, match="crash"):
            run(limits_job, checkpoint=state, trigger="available-now")
    (tmp_path / "table").write_text("a 3\n")
    run(limits_job, checkpoint=state, trigger="available-now")
    assert seen(tmp_path) == [("x", ["a"], [2]), ("x", ["a"], [3])]


@pytest.mark.qualify  # test_reference_entries_move_between_engines_and_survive_rescaling has this for entries
@pytest.mark.spark
@pytest.mark.needs_spark(4)
def test_keys_are_notified_of_changed_rows_after_rescaling_and_from_a_savepoint(spark: Any, tmp_path: Path) -> None:
    """Rule d: batches are numbered anew, and engines change."""
    (tmp_path / "table").write_text("a 1\n")
    state, saved = str(tmp_path / "state"), str(tmp_path / "saved")
    for number in range(2):
        add_events(tmp_path, number, "x")
        (tmp_path / "table").write_text(f"a {number}\n")
        run(watching_job(tmp_path), checkpoint=state, trigger="available-now")
    assert seen(tmp_path) == [("x", ["a"], [1])]
    rescale(spark, state, partitions=3)
    (tmp_path / "table").write_text("a 4\n")
    run(watching_job(tmp_path), checkpoint=state, to_savepoint=saved, trigger="available-now")
    (tmp_path / "table").write_text("a 5\n")
    run(watching_job(tmp_path), engine="embedded", from_savepoint=saved)
    assert sorted(seen(tmp_path)) == [("x", ["a"], [number]) for number in (1, 4, 5)]


class WatchesAndReads(WatchesRows):
    def on_event(self, subject: Subject, event: KeyedEvent[Any]) -> None:
        super().on_event(subject, event)
        self.seen.collect(subject, (event.value, self.limits.get(subject, event.value), self.limits.size(subject)))


@pytest.mark.qualify
@pytest.mark.spark
@pytest.mark.needs_spark(4)
def test_a_job_with_a_table_moves_between_engines(spark: Any, tmp_path: Path) -> None:
    """Rule e: the next run reads the table, and notifies the keys that watch of what has changed in between."""
    of = attrs.evolve(table_job(tmp_path), handler=WatchesAndReads())
    names = [str(tmp_path / name) for name in ("first", "state", "second")]
    add_events(tmp_path, 1, "a")
    (tmp_path / "table").write_text("a 1\nb 2\n")
    run(of, engine="embedded", to_savepoint=names[0])
    add_events(tmp_path, 2, "b")
    (tmp_path / "table").write_text("a 3\nc 4\n")
    run(of, checkpoint=names[1], from_savepoint=names[0], to_savepoint=names[2], trigger="available-now")
    add_events(tmp_path, 3, "c")
    (tmp_path / "table").write_text("a 3\nc 5\n")
    run(of, engine="embedded", from_savepoint=names[2])
    on_spark = [("a", ["a", "b", "c"], [3, None, 4]), ("b", None, 2)]
    embedded = [("a", ["c"], [5]), ("b", ["c"], [5]), ("c", 5, 2)]
    assert sorted(seen(tmp_path), key=str) == sorted([("a", 1, 2), *on_spark, *embedded], key=str)


def test_after_a_flush_the_watermark_before_it_counts_in_a_test_run_from_a_snapshot() -> None:
    """Rule d."""
    test = (
        TestRun(job(Watcher())).add_record(event(1, "watch"), "events").add_record(event(100, "x", "other"), "events")
    )
    test.end_batch().run(flush=True)
    for after in (test, TestRun(job(Watcher()), snapshot=test.snapshot())):
        result = after.add_record(rule(50, "a", 1), "rules").run()
        assert [each[-1] for each in changes_of(result)] == [at(100)]


def test_a_test_run_from_a_savepoint_of_a_job_with_a_table_has_snapshots(tmp_path: Path) -> None:
    first = TestRun(table_job(tmp_path)).add_record(("a", 1), "limits").end_batch()
    first.run()
    first.savepoint(tmp_path / "saved")
    second = TestRun(table_job(tmp_path), savepoint=tmp_path / "saved")
    third = TestRun(table_job(tmp_path), snapshot=second.snapshot()).add_record({"name": "a", "second": 1}, "events")
    assert third.run().records("seen") == [("a", 1, 1)]
