"""Rule 13 of `semantics.md`: late events."""

from tests.conformance.conftest import MakeRun
from tests.conformance.handlers import LateReporter, at, event, job


def test_rule_13_an_event_before_its_batchs_watermark_is_delivered_as_late(test_run: MakeRun) -> None:
    run = test_run(job(LateReporter())).add_record(event(9, "first")).add_watermark(at(10))
    run.add_records([event(9, "behind"), event(10, "at"), event(11, "ahead"), event(0, "far behind")])
    result = run.run()
    assert result.records("late") == [
        ("first", False),
        ("behind", True),
        ("at", False),
        ("ahead", False),
        ("far behind", True),
    ]


def test_rule_13_lateness_is_told_to_the_microsecond(test_run: MakeRun) -> None:
    run = test_run(job(LateReporter())).add_record(event(9, "first")).add_watermark(at(10.001))
    run.add_record(event(10.000999, "by one")).add_record(event(10.001, "not"))
    assert run.run().records("late")[1:] == [("by one", True), ("not", False)]


def test_rule_13_an_event_is_not_late_for_what_came_in_its_own_batch(test_run: MakeRun) -> None:
    run = test_run(job(LateReporter())).add_records([event(100, "newest"), event(1, "older")])
    assert run.run().records("late") == [("newest", False), ("older", False)]
