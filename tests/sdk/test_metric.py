from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from amadou import BatchReport, Counts, Metric

NOON = datetime(2025, 1, 1, 12, tzinfo=UTC)


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ({"name": "late events"}, "late events"),
        ({"name": "9lives"}, "9lives"),
        ({"name": "events_total"}, "'events_total' goes without _total, which Prometheus adds to counters"),
        ({"kind": "histogram"}, "histogram"),
        ({"label": "the port"}, "the port"),
        ({"label": "job"}, "the label 'job' is the name of the job that is run"),
    ],
)
def test_a_metric_that_prometheus_would_refuse_is_refused(given: dict[str, Any], why: str) -> None:
    usual: dict[str, Any] = {"name": "events", "help": "Events.", "kind": "counter", "read": lambda batch: 1}
    Metric(**usual)
    with pytest.raises(ValueError, match=why):
        Metric(**{**usual, **given})


@pytest.mark.parametrize(("behind", "lag"), [(None, None), (3, timedelta(seconds=3)), (-2, timedelta(seconds=-2))])
def test_the_lag_is_what_the_watermark_was_behind_the_clock(behind: int | None, lag: timedelta | None) -> None:
    watermark = None if behind is None else NOON - timedelta(seconds=behind)
    assert BatchReport(0, Counts(), watermark, 0.5, NOON).lag == lag


def test_counts_add_up() -> None:
    first = Counts(records={"a": 1, "b": 2}, timers_set=3, timers_pending=3, outputs={"dead_letters": 1})
    both = first.then(Counts(records={"b": 5}, timers_set=1, timers_pending=2, outputs={"dead_letters": 2, "out": 1}))
    assert both.records == {"a": 1, "b": 7}
    assert (both.timers_set, both.timers_pending, both.dead_letters) == (4, 2, 3)
