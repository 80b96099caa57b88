"""A run begins with the batch that was due when the last run ended, as Spark would plan it."""

import json
from pathlib import Path

import pytest

from amadou_runtime.runs.files import LocalFiles
from amadou_runtime.spark.timeouts import plan_due_batch


@pytest.mark.parametrize(("reached", "is_due"), [(5_000, True), (4_000, False)])
def test_a_batch_is_planned_if_the_last_one_has_raised_the_watermark(
    reached: int, is_due: bool, tmp_path: Path
) -> None:
    files = LocalFiles(str(tmp_path), tmp_path)
    files.write("offsets/7", "v1\n" + json.dumps({"batchWatermarkMs": 4_000, "conf": {}}) + '\n{"source": 1}')
    files.write("commits/7", "v1\n" + json.dumps({"nextBatchWatermarkMs": reached}))
    plan_due_batch(files, 7)
    planned = files.read("offsets/8")
    assert (planned is not None) == is_due
    if planned is not None:
        version, metadata, source = planned.splitlines()
        assert (version, source) == ("v1", '{"source": 1}')
        assert json.loads(metadata)["batchWatermarkMs"] == reached
        assert json.loads(metadata)["conf"] == {}


@pytest.mark.parametrize("last", [None, 7])
def test_no_batch_is_planned_before_one_was_completed(last: int | None, tmp_path: Path) -> None:
    plan_due_batch(LocalFiles(str(tmp_path), tmp_path), last)
    assert not (tmp_path / "offsets").exists()
