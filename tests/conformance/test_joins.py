"""Joins of each kind, late events, dead letters and restarts. See also `tests/plugins/test_joins.py`."""

from datetime import datetime, timedelta
from typing import Any

import pytest
from attrs import frozen
from tests.conformance.conftest import MakeRun
from tests.conformance.handlers import SECOND, START, EventHandler, Mistake, at, event, job

from amadou import KeyedEvent, SinkSpec, Subject, ValueSpec
from amadou.errors import CallbackError
from amadou_plugins.joins import AsOfJoin, IntervalJoin, LatestJoin


@frozen
class Quote:
    price: float
    tags: tuple[str, ...] = ()


class Joined(EventHandler):
    """Collects results: the name of the join, the key, and second and value of each side."""

    results = SinkSpec(tuple)

    def record(self, what: str, subject: Subject, *sides: KeyedEvent[Any] | None) -> None:
        values = [None if side is None else ((side.timestamp - START) / SECOND, side.value) for side in sides]
        self.results.collect(subject, (what, subject.key, *values))


class JoinsOfEachKind(Joined):
    """Has a join of each kind."""

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


def joined(records: list[Any], what: str) -> list[Any]:
    return [record[1:] for record in records if record[0] == what]


@pytest.mark.rule(20)
def test_joins_of_each_kind_survive_restarts_and_crashes(test_run: MakeRun) -> None:
    cheap, dear = Quote(1.5, ("bid",)), Quote(9.5)
    run = test_run(job(JoinsOfEachKind(), "trades", "quotes", watermark_delay=10))
    run.add_record(event(2, cheap), "quotes").add_records([event(4, "A"), event(1, "B")], "trades").restart()
    run.add_record(event(5, dear), "quotes").add_record(event(9, "C"), "trades").crash(1)
    run.add_record(event(4, "D", ("k", 1)), "trades").restart().add_watermark(at(40))
    result = run.run()
    assert joined(result.records("results"), "latest") == [
        ("k", (4, "A"), (2, cheap)),
        ("k", (1, "B"), (2, cheap)),
        ("k", (9, "C"), (5, dear)),
        (("k", 1), (4, "D"), None),
    ]
    assert joined(result.records("results"), "as_of") == [
        ("k", (1, "B"), None),
        ("k", (4, "A"), (2, cheap)),
        (("k", 1), (4, "D"), None),
        ("k", (9, "C"), None),
    ]
    assert joined(result.records("results"), "soon") == [("k", (1, "B"), (2, cheap)), ("k", (4, "A"), (5, dear))]
    assert joined(result.records("results"), "pairs") == [
        ("k", (1, "B"), (2, cheap)),
        ("k", (4, "A"), (5, dear)),
        (("k", 1), (4, "D"), None),
        ("k", (9, "C"), None),
    ]
    assert result.state("latest", "k") == {"trades": [], "quotes": [event(5, dear)]}
    assert (result.keys(), result.counters) == (["k"], {})
    assert run.add_watermark(at(80)).run().keys() == []


@pytest.mark.rule(13)
def test_an_event_at_the_watermark_is_joined_and_an_earlier_event_is_late(test_run: MakeRun) -> None:
    run = test_run(job(JoinsOfEachKind(), "trades", "quotes", watermark_delay=1000))
    run.add_record(event(20, "A"), "trades").add_watermark(at(20)).add_record(event(20, "at"), "quotes")
    run.add_record(event(13.999999, "before"), "quotes").add_watermark(at(30))
    result = run.run()
    for what in ("as_of", "soon", "pairs"):
        assert joined(result.records("results"), what) == [("k", (20, "A"), (20, "at"))]
    assert joined(result.records("results"), "late") == [("k", (13.999999, "before"))]
    assert [late.by for late in result.records("late_events")] == ["soon"]
    assert result.counters == {"as_of.late": 1, "soon.late": 1, "pairs.late": 1}


@pytest.mark.parametrize("first", ["trades", "quotes"])
@pytest.mark.parametrize("settings", [{}, {"idle_timeout": 60}])
@pytest.mark.rule(2)
def test_the_events_of_a_source_that_begins_a_batch_later_are_joined(
    test_run: MakeRun, first: str, settings: Any
) -> None:
    run = test_run(job(JoinsOfEachKind(), "trades", "quotes", **settings))
    for source in (first, "quotes" if first == "trades" else "trades"):
        run.add_records([event(second, source) for second in (1, 3, 5)], source).end_batch()
    result = run.run(flush=True)
    pairs = [("k", (second, "trades"), (second, "quotes")) for second in (1, 3, 5)]
    for what in ("as_of", "soon", "pairs"):
        assert joined(result.records("results"), what) == pairs
    assert result.late == []


class FailingMatch(JoinsOfEachKind):
    """Overrides a callback, which fails for one trade."""

    def priced(self, subject: Subject, trade: KeyedEvent[Any], quote: KeyedEvent[Any] | None) -> None:
        super().priced(subject, trade, quote)
        if trade.value == "A":
            raise Mistake("this one")


@pytest.mark.rule(19)
def test_a_failing_on_match_is_a_dead_letter_and_other_events_are_joined(test_run: MakeRun) -> None:
    run = test_run(job(FailingMatch(), "trades", "quotes", on_error="dead_letter"))
    run.add_records([event(1, "A"), event(1, "B"), event(2, "C")], "trades").add_watermark(at(200))
    result = run.run()
    assert joined(result.records("results"), "as_of") == [("k", (1, "B"), None), ("k", (2, "C"), None)]
    (dead_letter,) = result.dead_letters
    assert (dead_letter.callback, dead_letter.error, dead_letter.timestamp) == (
        "priced",
        "Mistake: this one",
        at(1.000001),
    )
    assert result.keys() == []


class CountsMatches(EventHandler):
    """Counts trades, sets a timer for each, and fails for one."""

    count = ValueSpec(int, default=0)
    priced = AsOfJoin(left="trades", right="quotes", tolerance=timedelta(seconds=3))

    def on_event(self, subject: Subject, event: KeyedEvent[Any]) -> None:
        self.priced.add(subject, event)

    @priced.on_match
    def counted(self, subject: Subject, trade: KeyedEvent[Any], quote: KeyedEvent[Any] | None) -> None:
        subject.set_timer(at(1_000), trade.value)
        self.count.state_for(subject).value += 1
        if trade.value == "A":
            raise Mistake("this one")

    def on_timer_expired(self, subject: Subject, timestamp: datetime) -> None: ...


@pytest.mark.rule(19)
def test_a_dead_letter_shows_what_earlier_matches_at_the_same_time_have_stored(test_run: MakeRun) -> None:
    run = test_run(job(CountsMatches(), "trades", "quotes", on_error="dead_letter"))
    run.add_records([event(1, "B"), event(1, "A"), event(1, "C")], "trades").add_watermark(at(200))
    result = run.run()
    (dead_letter,) = result.dead_letters
    assert (dead_letter.state["count"], dead_letter.timers) == (1, [(at(1_000), "B")])
    assert result.state("count", "k") == 2


class JoinsByRule(Joined):
    """Creates a join for each rule in an event's value."""

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


def test_joins_created_at_run_time_emit_results_after_a_restart(test_run: MakeRun) -> None:
    run = test_run(job(JoinsByRule(), "trades", "quotes", watermark_delay=100))
    run.add_records([event(5, "within-3"), event(5, "within-5")], "trades").restart()
    run.add_records([event(1, "within-3"), event(1, "within-5")], "quotes").restart().add_watermark(at(20))
    result = run.run()
    assert joined(result.records("results"), "matched") == [
        ("k", (5, "within-3"), None),
        ("k", (5, "within-5"), (1, "within-5")),
    ]
    assert result.keys() == []


def test_adding_an_event_of_another_source_to_a_join_is_an_error(test_run: MakeRun) -> None:
    run = test_run(job(JoinsOfEachKind(), "trades", "quotes", "orders")).add_record(event(1), "orders")
    message = (
        "the join 'latest' received an event from the source 'orders', but accepts only events from 'trades' .* and "
        "'quotes'"
    )
    with pytest.raises(CallbackError, match=message):
        run.run()
