"""Tests of `top_pages.py`: comparisons with a plain Python script, with various batch sizes and on Spark."""

import json
import os
import random
import subprocess
import sys
from collections.abc import Iterable
from datetime import datetime, timedelta, timezone
from pathlib import Path

import attrs
import pytest
from top_pages import PageViews, Rank, job
from top_pages_oracle import ranks

from amadou_runtime import TestRun

HERE = Path(__file__).parent
LINES = (HERE / "access.log").read_bytes().splitlines()
NOON = datetime(2025, 3, 1, 12, tzinfo=timezone.utc)


def request(minutes: float, page: str, method: str = "GET", status: int = 200) -> bytes:
    time = NOON + timedelta(minutes=minutes)
    return f'- - - [{time:%d/%b/%Y:%H:%M:%S %z}] "{method} {page} HTTP/1.0" {status} 17'.encode()


def random_requests(seed: int) -> list[bytes]:
    """Return requests for 40 pages within ten minutes, in the order of their times."""
    drawn = random.Random(seed)
    times = sorted(10 * drawn.random() for _ in range(250))
    return [request(time, f"/{round(40 * drawn.random() ** 2)}", status=drawn.choice((200, 404))) for time in times]


def ranked(*lines: bytes) -> list[tuple[int, str, int]]:
    """Process the lines in one batch. Return the ranks, pages and views."""
    result = TestRun(job).add_records(lines).run(flush=True)
    return [(each.rank, each.page, each.views) for each in result.records("top")]


def as_tuples(top: Iterable[Rank]) -> list[tuple[object, ...]]:
    return sorted(map(attrs.astuple, top))


def test_pages_are_ranked_by_views_and_then_by_name() -> None:
    lines = [request(0, page) for page in ("/b", "/c", "/a", "/c")]
    assert ranked(*lines) == [(1, "/c", 2), (2, "/a", 1), (3, "/b", 1)]


def test_a_minute_has_ten_ranks() -> None:
    assert len(ranked(*(request(0, f"/{number}") for number in range(12)))) == 10


def test_each_minute_is_ranked_separately_even_in_the_same_batch() -> None:
    assert ranked(request(0, "/a"), request(0.5, "/b"), request(1, "/c")) == [(1, "/a", 1), (2, "/b", 1), (1, "/c", 1)]


def test_images_failures_and_other_methods_do_not_count() -> None:
    lines = [request(0, "/a.GIF"), request(0, "/a", status=404), request(0, "/a", "POST"), b"no request"]
    assert ranked(*lines, request(0, "/a?x=1"), request(0, "/a", status=304)) == [(1, "/a", 2)]


def test_a_minute_is_ranked_once_the_watermark_has_passed_its_end() -> None:
    run = TestRun(job).add_records([request(0, "/a"), request(1, "/b")]).add_watermark(NOON + timedelta(minutes=1))
    result = run.run()
    assert result.records("views") == [PageViews("/a", NOON, 1)]
    assert result.records("top") == []
    result = run.add_watermark(NOON + timedelta(seconds=61)).run()
    assert result.records("top") == [Rank(NOON, 1, "/a", 1)]
    assert result.stage("top").keys() == []


@pytest.mark.parametrize("lines", [LINES, random_requests(1), random_requests(2)], ids=["sample", "1", "2"])
@pytest.mark.parametrize("size", [1, 7, 100, 10_000])
def test_the_ranks_are_those_of_plain_python_in_any_batches(lines: list[bytes], size: int) -> None:
    run = TestRun(job)
    for start in range(0, len(lines), size):
        run.add_records(lines[start : start + size]).end_batch()
    assert as_tuples(run.run(flush=True).records("top")) == sorted(ranks(lines))


@pytest.mark.qualify
@pytest.mark.spark
def test_a_run_on_spark_writes_the_ranks_of_plain_python(tmp_path: Path) -> None:
    lines = LINES + random_requests(3)
    (tmp_path / "access.log").write_bytes(b"".join(line + b"\n" for line in lines))
    command = [sys.executable, str(HERE / "top_pages.py"), "--master", "local[2]", "--once", "--flush"]
    command += ["-p", "LOG=access.log", "-p", "TOP=top", "--checkpoint", "checkpoint"]
    environment = {**os.environ, "PYSPARK_PYTHON": sys.executable}
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    written = [
        json.loads(line) for file in (tmp_path / "top").glob("*.jsonl") for line in file.read_text().splitlines()
    ]
    top = [Rank(**fields | {"minute": datetime.fromisoformat(fields["minute"])}) for fields in written]
    assert as_tuples(top) == sorted(ranks(lines))
