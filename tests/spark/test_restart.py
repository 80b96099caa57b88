"""A run that is killed and started again ends as if it had not been."""

import json
import os
import random
import signal
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest
import tests.spark.slow_views as slow_views
from tests.spark.programs import Program, program

from amadou_runtime import run

pytestmark = pytest.mark.spark

JOB = Path(slow_views.__file__)
EXAMPLE = Path(__file__).parents[2] / "examples" / "tumbling_window"


@pytest.fixture
def views(tmp_path: Path) -> Path:
    """Six files of views, one for each batch; the third has the event at which the job waits."""
    directory = tmp_path / "views"
    directory.mkdir()
    drawn = random.Random(7)
    begin = datetime(2025, 1, 1, tzinfo=timezone.utc)
    for number in range(6):
        lines = [
            {
                "channel_id": f"channel-{drawn.randrange(20)}",
                "timestamp": (begin + timedelta(seconds=second)).isoformat(),
            }
            for second in range(number * 120, number * 120 + 120)
        ]
        if number == 2:
            lines.insert(60, {"channel_id": "stop", "timestamp": (begin + timedelta(seconds=300)).isoformat()})
        path = directory / f"{number}.jsonl"
        path.write_text("".join(json.dumps(line) + "\n" for line in lines))
        os.utime(path, (1_700_000_000 + number, 1_700_000_000 + number))
    return directory


def test_a_run_killed_in_the_middle_of_a_batch_ends_with_the_same_output_files(
    views: Path, spark: Any, tmp_path: Path
) -> None:
    params = {"VIEWS": str(views), "SUMS": str(tmp_path / "sums"), "HERE": str(tmp_path / "here")}
    options = [word for name, value in params.items() for word in ("-p", f"{name}={value}")]

    def started() -> Any:
        return program(JOB, tmp_path, "--once", *options, PYTHONPATH=str(EXAMPLE))

    running: Program
    with started() as running:
        running.wait_for((tmp_path / "here").exists)
        running.stop(signal.SIGKILL)
    before = lines_of(tmp_path / "sums")
    with started() as running:
        running.finish()

    undisturbed = tmp_path / "undisturbed"  # "here" exists, so the job does not wait
    run(
        slow_views.job,
        trigger="available-now",
        checkpoint=str(tmp_path / "other"),
        params={**params, "SUMS": str(undisturbed)},
    )
    expected = lines_of(undisturbed)
    assert len(expected) > 100
    assert 0 < len(before) < len(expected), "the kill came neither before the first batch nor after the last"
    assert lines_of(tmp_path / "sums") == expected
    assert contents(tmp_path / "sums") == contents(undisturbed)


def lines_of(directory: Path) -> list[str]:
    """Every line of output, sorted: a duplicate would be there twice."""
    return sorted(line for path in directory.glob("*.jsonl") for line in path.read_text().splitlines())


def contents(directory: Path) -> dict[str, str]:
    """The output files by batch and part; a run's name is its own."""
    return {path.name.split("-", 2)[2]: path.read_text() for path in directory.glob("*.jsonl")}
