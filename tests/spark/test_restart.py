"""A run that fails or is killed in a batch, and is started again, ends as if it had not."""

import json
import os
import random
import signal
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest
import tests.spark.slow_views as slow_views
from attrs import evolve
from tests.spark.programs import Program, program

from amadou import KeyedEvent, Subject
from amadou.errors import CallbackError
from amadou_runtime import run

pytestmark = pytest.mark.spark

JOB = Path(slow_views.__file__)
EXAMPLE = Path(__file__).parents[2] / "examples" / "tumbling_window"


@pytest.fixture
def views(tmp_path: Path) -> Path:
    """Four files of views, one for each batch; the third has the event at which a run ends."""
    directory = tmp_path / "views"
    directory.mkdir()
    drawn = random.Random(7)
    begin = datetime(2025, 1, 1, tzinfo=timezone.utc)
    for number in range(4):
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


@pytest.fixture
def params(views: Path, tmp_path: Path) -> dict[str, str]:
    return {"VIEWS": str(views), "SUMS": str(tmp_path / "sums"), "HERE": str(tmp_path / "here")}


class FailingViews(slow_views.SlowViews):
    """Fails at the event of the channel `stop`."""

    def on_event(self, subject: Subject, event: KeyedEvent) -> None:
        super().on_event(subject, event)
        if subject.key == "stop":
            raise ValueError("asked to fail")


def run_to_end(checkpoint: Path, params: dict[str, str], **job: Any) -> None:
    run(evolve(slow_views.job, **job), trigger="available-now", checkpoint=str(checkpoint), params=params)


def test_a_run_that_failed_in_the_middle_of_a_batch_ends_with_the_same_output_files(
    params: dict[str, str], spark: Any, tmp_path: Path
) -> None:
    (tmp_path / "here").touch()  # so the job does not wait
    with pytest.raises(CallbackError, match="asked to fail"):
        run_to_end(tmp_path / "checkpoint", params, handler=FailingViews())
    before = lines_of(tmp_path / "sums")
    run_to_end(tmp_path / "checkpoint", params)
    assert_is_as_if_undisturbed(tmp_path, params, before)


@pytest.mark.qualify  # tests/spark/test_kills.py kills runs, too
def test_a_run_killed_in_the_middle_of_a_batch_ends_with_the_same_output_files(
    params: dict[str, str], spark: Any, tmp_path: Path
) -> None:
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
    assert_is_as_if_undisturbed(tmp_path, params, before)


def assert_is_as_if_undisturbed(place: Path, params: dict[str, str], before: list[str]) -> None:
    """Compare the output files with those of an undisturbed run.

    :param before: the lines that were written when the run was disturbed
    """
    undisturbed = place / "undisturbed"
    run_to_end(place / "other", {**params, "SUMS": str(undisturbed)})
    expected = lines_of(undisturbed)
    assert len(expected) > 100
    assert 0 < len(before) < len(expected), "the run ended neither before the first batch nor after the last"
    assert lines_of(place / "sums") == expected
    assert contents(place / "sums") == contents(undisturbed)


def lines_of(directory: Path) -> list[str]:
    """Every line of output, sorted: a duplicate would be there twice."""
    return sorted(line for path in directory.glob("*.jsonl") for line in path.read_text().splitlines())


def contents(directory: Path) -> dict[str, str]:
    """The output files by batch and part; a run's name is its own."""
    return {path.name.split("-", 2)[2]: path.read_text() for path in directory.glob("*.jsonl")}
