"""Tests of `views.py`."""

import json
from collections import Counter
from datetime import datetime, timezone
from pathlib import Path

import pytest
from views import MINUTE, ViewSum, job

from amadou import truncate
from amadou_runtime import TestRun

SAMPLES = sorted(Path(__file__).with_name("views").glob("*.jsonl"))


def test_sums_the_views_of_each_minute() -> None:
    run = TestRun(job)
    for second in ("01:00", "01:30", "01:59", "02:10", "03:01"):
        run.add_record(b'{"channel_id": "news", "timestamp": "2025-01-01T00:%sZ"}' % second.encode())
    run.add_watermark()

    assert run.run().records("sums") == [
        ViewSum("news", datetime(2025, 1, 1, 0, 1, tzinfo=timezone.utc), 3),
        ViewSum("news", datetime(2025, 1, 1, 0, 2, tzinfo=timezone.utc), 1),
    ]


@pytest.mark.parametrize("cut", [1, 7, 10_000])
def test_sums_the_sample_files_however_they_are_cut_into_batches(cut: int) -> None:
    run = TestRun(job)
    for file in SAMPLES:
        records = file.read_bytes().splitlines()
        for start in range(0, len(records), cut):
            run.add_records(records[start : start + cut])
        run.end_batch()
    run.add_watermark(datetime(2026, 1, 1, tzinfo=timezone.utc))

    views = [json.loads(line) for file in SAMPLES for line in file.read_text().splitlines()]
    expected = Counter(
        (view["channel_id"], truncate(datetime.fromisoformat(view["timestamp"]), MINUTE)) for view in views
    )
    sums = run.run().records("sums")
    assert len(sums) == len(expected)
    assert {(record.channel_id, record.timestamp): record.sum for record in sums} == expected


def test_a_view_that_arrives_after_the_sum_of_its_minute_does_not_change_the_sums() -> None:
    run = TestRun(job)
    for second in ("00:06", "00:12", "05:30"):
        run.add_record(b'{"channel_id": "news", "timestamp": "2025-01-01T00:%sZ"}' % second.encode())
    run.end_batch().add_record(b'{"channel_id": "news", "timestamp": "2025-01-01T00:00:18Z"}')
    result = run.run(flush=True)

    assert [(record.timestamp.minute, record.sum) for record in result.records("sums")] == [(0, 2), (5, 1)]
    assert result.keys() == []
