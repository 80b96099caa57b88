"""Samples of dead letters and late events for reports."""

from datetime import datetime, timezone

from amadou import Secret
from amadou.plugins import DeadLetterReport, LateEventReport
from amadou_runtime.core.samples import Samples

NOW = datetime(2025, 1, 1, tzinfo=timezone.utc)


def test_samples_hide_secrets_in_data_but_not_in_names() -> None:
    Secret("orders")
    letter = DeadLetterReport(
        *("orders", "no orders", "Traceback: orders", "'orders'", "orders", "'orders'", NOW, "orders", NOW),
        {"orders": "{'orders': 1}"},
        [(NOW, "orders")],
        None,
        "orders",
    )
    event = LateEventReport("diverted", "orders", "'orders'", NOW, "'orders'", NOW, "orders", "orders")
    shown = Samples([letter], [event]).without_secrets()
    (found,), (late,) = shown.dead_letters, shown.late_events
    assert (found.callback, found.source, found.stage) == ("orders",) * 3
    assert (found.error, found.traceback, found.shown, found.key) == ("no ***", "Traceback: ***", "'***'", "'***'")
    assert (found.tag, found.state, [*found.timers]) == ("***", {"orders": "{'***': 1}"}, [(NOW, "***")])
    assert (late.outcome, late.source, late.by, late.stage) == ("diverted", "orders", "orders", "orders")
    assert (late.key, late.value) == ("'***'", "'***'")
