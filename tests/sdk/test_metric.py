from datetime import datetime, timedelta, timezone
from typing import Any

import attrs
import pytest

from amadou.plugins import BatchReport, Counts, Metric, RunSummary

NOON = datetime(2025, 1, 1, 12, tzinfo=timezone.utc)


@pytest.mark.parametrize(
    ("wrong", "why"),
    [
        ({"name": "late events"}, "late events"),
        ({"name": "9lives"}, "9lives"),
        (
            {"name": "events_total"},
            "the metric name 'events_total' ends in _total, which Prometheus adds to counters: remove _total",
        ),
        ({"kind": "histogram"}, "histogram"),
        ({"label": "the port"}, "the port"),
        ({"label": "job"}, "the label 'job' is reserved for the name of the job: use a different label"),
    ],
)
def test_names_kinds_and_labels_that_prometheus_does_not_allow_are_refused(wrong: dict[str, Any], why: str) -> None:
    usual: dict[str, Any] = {"name": "events", "help": "Events.", "kind": "counter", "read": lambda batch: 1}
    Metric(**usual)
    with pytest.raises(ValueError, match=why):
        Metric(**{**usual, **wrong})


@pytest.mark.parametrize(("behind", "lag"), [(None, None), (3, timedelta(seconds=3)), (-2, timedelta(seconds=-2))])
def test_the_lag_is_the_time_from_the_watermark_to_the_clock(behind: int | None, lag: timedelta | None) -> None:
    watermark = None if behind is None else NOON - timedelta(seconds=behind)
    assert BatchReport(0, Counts(), watermark, 0.5, NOON).lag == lag


def test_the_counts_of_consecutive_batches_are_added_except_pending_timers() -> None:
    first = Counts(records={"a": 1, "b": 2}, timers_set=3, timers_pending=3, outputs={"dead_letters": 1})
    both = first.then(Counts(records={"b": 5}, timers_set=1, timers_pending=2, outputs={"dead_letters": 2, "out": 1}))
    assert both.records == {"a": 1, "b": 7}
    assert (both.timers_set, both.timers_pending, both.dead_letters) == (4, 2, 3)


def test_the_size_of_state_is_that_of_the_last_batch_and_the_bytes_written_are_added() -> None:
    current: dict[str, Any] = {"keys": 1, "state_entries": 2, "state_bytes": 3, "state_view_bytes": 4}
    work: dict[str, Any] = {
        "state_bytes_written": 5,
        "state_bytes_cleaned": 6,
        "state_view_hits": 7,
        "state_view_rebuilds": 8,
    }
    batch = Counts(**current, **work)
    doubled = {name: 2 * count for name, count in work.items()}
    assert batch.then(batch) == Counts(**current, **doubled)
    assert batch.then(Counts()) == Counts(**work)


@pytest.mark.parametrize(
    ("size", "shown"),
    [
        (1, "1 B"),
        (1023, "1023 B"),
        (1024, "1.0 KiB"),
        (5 << 30, "5.0 GiB"),
        (3 << 40, "3.0 TiB"),
        (2 << 50, "2048.0 TiB"),
    ],
)
def test_a_summary_shows_the_size_of_state(size: int, shown: str) -> None:
    assert f"; keys: 7; state: {shown}; watermark: " in str(RunSummary("job", 1, Counts(keys=7, state_bytes=size)))


def test_a_summary_without_state_does_not_show_its_size() -> None:
    assert "; keys: 0; watermark: " in str(RunSummary("job"))


def test_the_counts_of_the_parts_of_a_batch_are_added() -> None:
    one = Counts(records={"a": 1}, events=2, late=1, keys=4, timers_pending=5, state_bytes=6, held={"a": 7})
    two = Counts(records={"b": 1}, events=3, outputs={"out": 2}, keys=1, timers_pending=1, state_bytes=1, held={"a": 1})
    assert Counts.total([one, two, Counts()]) == Counts(
        records={"a": 1, "b": 1},
        events=5,
        late=1,
        outputs={"out": 2},
        keys=5,
        timers_pending=6,
        state_bytes=7,
        held={"a": 8},
    )
    assert Counts.total([]) == Counts()


def test_every_count_of_the_parts_of_a_batch_is_added() -> None:
    empty = attrs.asdict(Counts())
    part = Counts(**{name: {"a": 1} if isinstance(none, dict) else 1 for name, none in empty.items()})
    both = {name: {"a": 2} if isinstance(none, dict) else 2 for name, none in empty.items()}
    assert attrs.asdict(Counts.total([part, part])) == both
