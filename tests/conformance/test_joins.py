"""Joins on both engines: a fixed set for each kind, and what they share. See `tests/plugins/test_joins.py`."""

from datetime import timedelta
from typing import Any

import pytest
from attrs import frozen
from tests.conformance.conftest import MakeRun
from tests.conformance.handlers import SECOND, START, Mistake, at, event, job

from amadou import Handler, KeyedEvent, SinkSpec, Subject
from amadou.errors import CallbackError
from amadou_plugins.joins import AsOfJoin, IntervalJoin, LatestJoin


@frozen
class Quote:
    price: float
    tags: tuple[str, ...] = ()


class Joined(Handler):
    """Records results as (method, key, left second, left value, right second, right value)."""

    results = SinkSpec(tuple)

    def key_event(self, record: KeyedEvent[Any]) -> KeyedEvent[Any]:
        return record

    def record(self, what: str, subject: Subject, *sides: KeyedEvent[Any] | None) -> None:
        told = [None if one is None else ((one.timestamp - START) / SECOND, one.value) for one in sides]
        self.results.collect(subject, (what, subject.key, *told))


class All(Joined):
    """One of each kind."""

    latest = LatestJoin(left="trades", right="quotes", ttl=timedelta(seconds=50))
    as_of = AsOfJoin(left="trades", right="quotes", tolerance=timedelta(seconds=3))
    soon = AsOfJoin(
        left="trades", right="quotes", tolerance=timedelta(seconds=3), direction="nearest", how="inner", late="divert"
    )
    pairs = IntervalJoin(
        left="trades", right="quotes", lower=timedelta(seconds=-1), upper=timedelta(seconds=1), how="outer"
    )

    def on_event(self, subject: Subject, event: KeyedEvent[Any]) -> None:
        for join in (self.latest, self.as_of, self.soon, self.pairs):
            join.add(subject, event)

    @latest.on_match
    def enriched(self, subject: Subject, trade: KeyedEvent[Any], quote: KeyedEvent[Any] | None) -> None:
        self.record("latest", subject, trade, quote)

    @as_of.on_match
    def priced(self, subject: Subject, trade: KeyedEvent[Any], quote: KeyedEvent[Any] | None) -> None:
        self.record("as_of", subject, trade, quote)

    @soon.on_match
    def near(self, subject: Subject, trade: KeyedEvent[Any], quote: KeyedEvent[Any] | None) -> None:
        self.record("soon", subject, trade, quote)

    @pairs.on_match
    def paired(self, subject: Subject, trade: KeyedEvent[Any] | None, quote: KeyedEvent[Any] | None) -> None:
        self.record("pairs", subject, trade, quote)

    @pairs.on_late
    def too_late(self, subject: Subject, event: KeyedEvent[Any]) -> None:
        self.record("late", subject, event)


def found(records: list[Any], what: str) -> list[Any]:
    return [record[1:] for record in records if record[0] == what]


@pytest.mark.on_spark("restart")
@pytest.mark.rule(20)
def test_each_kind_over_restarts_and_crashes(test_run: MakeRun) -> None:
    cheap, dear = Quote(1.5, ("bid",)), Quote(9.5)
    run = test_run(job(All(), "trades", "quotes", watermark_delay=10))
    run.add_record(event(2, cheap), "quotes").add_records([event(4, "A"), event(1, "B")], "trades").restart()
    run.add_record(event(5, dear), "quotes").add_record(event(9, "C"), "trades").crash(1)
    run.add_record(event(4, "D", ("k", 1)), "trades").restart().add_watermark(at(40))
    result = run.run()
    assert found(result.records("results"), "latest") == [
        ("k", (4, "A"), (2, cheap)),
        ("k", (1, "B"), (2, cheap)),
        ("k", (9, "C"), (5, dear)),
        (("k", 1), (4, "D"), None),
    ]
    assert found(result.records("results"), "as_of") == [
        ("k", (1, "B"), None),
        ("k", (4, "A"), (2, cheap)),
        (("k", 1), (4, "D"), None),
        ("k", (9, "C"), None),
    ]
    assert found(result.records("results"), "soon") == [("k", (1, "B"), (2, cheap)), ("k", (4, "A"), (5, dear))]
    assert found(result.records("results"), "pairs") == [
        ("k", (1, "B"), (2, cheap)),
        ("k", (4, "A"), (5, dear)),
        (("k", 1), (4, "D"), None),
        ("k", (9, "C"), None),
    ]
    assert result.state("latest", "k") == {"trades": [], "quotes": [event(5, dear)]}
    assert (result.keys(), result.counters) == (["k"], {})
    assert run.add_watermark(at(80)).run().keys() == []


@pytest.mark.rule(13)
def test_an_event_at_the_watermark_takes_part_and_one_before_it_is_late(test_run: MakeRun) -> None:
    run = test_run(job(All(), "trades", "quotes", watermark_delay=1000))
    run.add_record(event(20, "A"), "trades").add_watermark(at(20)).add_record(event(20, "at"), "quotes")
    run.add_record(event(13.999999, "before"), "quotes").add_watermark(at(30))
    result = run.run()
    for what in ("as_of", "soon", "pairs"):
        assert found(result.records("results"), what) == [("k", (20, "A"), (20, "at"))]
    assert found(result.records("results"), "late") == [("k", (13.999999, "before"))]
    assert [late.by for late in result.records("late_events")] == ["soon"]
    assert result.counters == {"as_of.late": 1, "soon.late": 1, "pairs.late": 1}


class Fails(All):
    """A subclass defines a callback anew; it fails for one trade."""

    def priced(self, subject: Subject, trade: KeyedEvent[Any], quote: KeyedEvent[Any] | None) -> None:
        super().priced(subject, trade, quote)
        if trade.value == "A":
            raise Mistake("this one")


@pytest.mark.rule(19)
def test_a_failing_match_becomes_a_letter_and_the_join_goes_on(test_run: MakeRun) -> None:
    run = test_run(job(Fails(), "trades", "quotes", on_error="dead_letter"))
    run.add_records([event(1, "A"), event(1, "B"), event(2, "C")], "trades").add_watermark(at(200))
    result = run.run()
    assert found(result.records("results"), "as_of") == [("k", (1, "B"), None), ("k", (2, "C"), None)]
    (letter,) = result.dead_letters
    assert (letter.callback, letter.error, letter.timestamp) == ("priced", "Mistake: this one", at(1.000001))
    assert result.keys() == []


class Rules(Joined):
    """Makes a join for each rule that trades name."""

    def __init__(self) -> None:
        self.joins: dict[str, AsOfJoin] = {}

    def join(self, name: str) -> AsOfJoin:
        if name not in self.joins:
            tolerance = timedelta(seconds=int(name.partition("-")[2]))
            self.joins[name] = AsOfJoin(
                left="trades", right="quotes", tolerance=tolerance, name=name, on_match=self.matched
            )
        return self.joins[name]

    def on_event(self, subject: Subject, event: KeyedEvent[str]) -> None:
        self.join(event.value).add(subject, event)

    def matched(self, subject: Subject, trade: KeyedEvent[str], quote: KeyedEvent[str] | None) -> None:
        self.record("matched", subject, trade, quote)

    def on_recover_window(self, name: str, subject: Subject) -> None:
        self.join(name)


def test_joins_made_at_run_time_answer_after_a_restart(test_run: MakeRun) -> None:
    run = test_run(job(Rules(), "trades", "quotes", watermark_delay=100))
    run.add_records([event(5, "within-3"), event(5, "within-5")], "trades").restart()
    run.add_records([event(1, "within-3"), event(1, "within-5")], "quotes").restart().add_watermark(at(20))
    result = run.run()
    assert found(result.records("results"), "matched") == [
        ("k", (5, "within-3"), None),
        ("k", (5, "within-5"), (1, "within-5")),
    ]
    assert result.keys() == []


def test_an_event_of_another_source_stops_the_run(test_run: MakeRun) -> None:
    run = test_run(job(All(), "trades", "quotes", "orders")).add_record(event(1), "orders")
    message = (
        "the join 'latest' received an event from the source 'orders', but accepts only events from 'trades' .* and "
        "'quotes'"
    )
    with pytest.raises(CallbackError, match=message):
        run.run()
