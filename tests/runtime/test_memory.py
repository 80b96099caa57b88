"""Files of an executor in which windows in memory lie between two batches."""

import os
from pathlib import Path

import pytest

from amadou.errors import RunError
from amadou_runtime.spark.memory import Memory


@pytest.fixture
def memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Memory:
    monkeypatch.setenv("SPARK_LOCAL_DIRS", f"{tmp_path},{tmp_path / 'other'}")
    return Memory("run")


def files(directory: Path) -> list[str]:
    return sorted(name.rpartition("-")[0] for name in os.listdir(directory / "amadou-run"))


def test_the_last_two_batches_stay_until_nothing_is_left(memory: Memory, tmp_path: Path) -> None:
    token = None
    for batch in range(5):
        before, token = token, memory.write(1, batch, {7: bytes([batch])}, token)
        assert token is not None
        assert memory.read(1, token) == {7: bytes([batch])}
        assert before is None or memory.read(1, before) == {7: bytes([batch - 1])}
    memory.write(12, 0, {1: b"another range"}, None)
    assert files(tmp_path) == ["1-3", "1-4", "12-0"]
    assert memory.write(1, 5, {}, token) is None
    assert files(tmp_path) == ["1-4", "12-0"], "the batch may be played again"
    memory.write(1, 9, {7: b"new"}, None)
    assert files(tmp_path) == ["1-9", "12-0"]


def test_attempts_at_one_batch_are_told_apart(memory: Memory) -> None:
    first = memory.write(1, 0, {7: b"first"}, None)
    attempts = [memory.write(1, 1, {7: told}, first) for told in (b"one", b"two")]
    assert [memory.read(1, token)[7] for token in (first, *attempts)] == [b"first", b"one", b"two"]  # type: ignore[arg-type]
    memory.write(1, 2, {7: b"third"}, attempts[1])
    assert memory.read(1, attempts[0]) == {}  # type: ignore[arg-type]


def test_another_run_or_executor_finds_nothing(memory: Memory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    token = memory.write(1, 0, {7: b"some"}, None)
    assert token is not None
    assert Memory("other").read(1, token) == {}
    monkeypatch.setenv("SPARK_LOCAL_DIRS", str(tmp_path / "other"))
    assert Memory("run").read(1, token) == {}


def test_a_directory_that_cannot_be_written_is_told(memory: Memory, tmp_path: Path) -> None:
    (tmp_path / "amadou-run").write_text("in the way")
    with pytest.raises(RunError, match="give the windows storage='persistent'"):
        memory.write(1, 0, {7: b"some"}, None)
