"""A checkpoint is rescaled by calls that are killed or fail between any two changes of files."""

import json
import os
import shutil
from collections.abc import Callable
from contextlib import suppress
from itertools import pairwise
from math import inf
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Literal, TypeVar, get_args

import pytest

from amadou.errors import AmadouError, CheckpointError, SavepointError
from amadou_runtime.runs.files import Files, LocalFiles
from amadou_runtime.spark.checkpoint import CheckpointMetadata, keep
from amadou_runtime.spark.savepoints import rescaling
from amadou_runtime.spark.savepoints.rescaling import rescale
from amadou_runtime.spark.streams import planned_offsets

_Result = TypeVar("_Result")
Fault = Literal["killed", "error", "outage"]
Content = frozenset[tuple[str, str]]
"""Paths and texts of files. The lease has no text, as its text differs each time."""
KEYS = range(6)
BEFORE, AFTER = 2, 1
"""Numbers of key groups, each of which has a file for its keys."""
SAVEPOINT = "savepoint/keys.json"


class FailingFiles(LocalFiles):
    """Local files that move and are removed one by one, as those of object stores. Empty directories do not exist.

    :ivar before_change: function to call before each change of a file
    """

    before_change: Callable[[], None] = staticmethod(lambda: None)

    def fail_at(self, change: float, fault: Fault = "error") -> None:
        """Let the change with a number fail, counted from now on: alone, or with all later calls in an outage."""
        self._left, self._fault = change, fault

    @property
    def has_failed(self) -> bool:
        return self._left < 0

    def exists(self, name: str) -> bool:
        return bool(self._try("read", lambda: self._found(name)))

    def names(self, directory: str) -> list[str]:
        paths = self._try("read", lambda: self._found(directory))
        return sorted({path.relative_to(self.directory / directory).parts[0] for path in paths})

    def move(self, name: str, to: str) -> None:
        """Copy two files, remove the originals, and so on, as ``s3a`` does with larger numbers."""
        source, target = self.directory / name, self.directory / to
        paths = self._found(name)
        for first in range(0, len(paths), 2):
            page = paths[first : first + 2]
            for path in page:
                self._copy(path, target / path.relative_to(source))
            for path in page:
                self._try("written", path.unlink)

    def remove(self, name: str) -> None:
        for path in self._found(name):
            self._try("written", path.unlink)

    def _found(self, name: str) -> list[Path]:
        path = self.directory / name
        if path.is_file():
            return [path]
        return sorted(Path(where, file) for where, _, paths in os.walk(path) for file in paths)

    def _copy(self, path: Path, to: Path) -> None:
        def copy() -> None:
            to.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(path, to)

        self._try("written", copy)

    def _try(self, what: str, do: Callable[[], _Result]) -> _Result:
        if self.has_failed and self._fault == "outage":
            raise CheckpointError(self.checkpoint, "outage")
        if what == "written" and not self.has_failed:
            self.before_change()
            self._left -= 1
            if self.has_failed:
                raise KeyboardInterrupt if self._fault == "killed" else CheckpointError(self.checkpoint, self._fault)
        return super()._try(what, do)

    @property
    def content(self) -> Content:
        paths = [(str(path.relative_to(self.directory)), path.read_text()) for path in self._found("")]
        return frozenset((name, "" if name == "run.json" else text) for name, text in paths)

    @content.setter
    def content(self, content: Content) -> None:
        for name, text in content - self.content:
            self.write(name, text)
        for name, _ in self.content - content:
            self.remove(name)


def write_state(files: Files, groups: int, keys: list[int]) -> None:
    for group in range(groups):
        files.write(f"state/0/{group}/{groups}.delta", json.dumps([key for key in keys if key % groups == group]))
    files.write("commits/0", 'v1\n{"nextBatchWatermarkMs":0}')
    files.write("offsets/0", 'v2\n{}\nin:{"offset": 7}')
    files.write("clock/0", str(groups))


def state_of(files: Files) -> tuple[int, list[int]]:
    """Return the number of key groups and the keys of a complete checkpoint."""
    groups = json.loads(files.read("amadou.json") or "")["key_groups"]
    assert sorted(files.names("state/0")) == [str(group) for group in range(groups)]
    keys: list[int] = []
    for group in range(groups):
        assert files.names(f"state/0/{group}") == [f"{groups}.delta"]
        keys += json.loads(files.read(f"state/0/{group}/{groups}.delta") or "")
    assert files.read("clock/0") == str(groups)
    assert files.exists("commits/0")
    assert planned_offsets(files, 0) == {"in": '{"offset": 7}'}
    return groups, sorted(keys)


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FailingFiles:
    """A checkpoint. Savepoints have its keys, and checkpoints are made from them without Spark."""
    files = FailingFiles(str(tmp_path / "state"), tmp_path / "state")
    files.fail_at(inf)
    write_state(files, BEFORE, list(KEYS))
    keep(files, CheckpointMetadata("job", "0a", BEFORE, BEFORE, "groups", {}, ["in"]))

    def write_savepoint(*_: Any) -> None:
        files.write(SAVEPOINT, json.dumps(state_of(files)[1]))

    def open_savepoint(_: Any, directory: str) -> Any:
        text = files.read(SAVEPOINT)
        if text is None:
            raise SavepointError(directory, "it is missing")
        return SimpleNamespace(stages=json.loads(text), verify=lambda: None)

    def write_checkpoint(_: Any, files: Files, keys: Any, after: CheckpointMetadata, *__: Any) -> None:
        write_state(files, after.key_groups, keys)

    for stub in (write_savepoint, open_savepoint, write_checkpoint):
        monkeypatch.setattr(rescaling, stub.__name__, stub)
    monkeypatch.setattr(rescaling, "own_session", lambda *_: None)
    monkeypatch.setattr(rescaling, "checkpoint_files", lambda *_: files)
    return files


def call(files: FailingFiles, change: float = inf, fault: Fault = "error") -> bool:
    """Rescale the checkpoint. Return `True` if a change failed.

    :param change: number of the change of a file that fails
    """
    files.fail_at(change, fault)
    savepoint = str((files.directory / SAVEPOINT).parent)
    with suppress(KeyboardInterrupt, AmadouError):
        rescale(None, files.checkpoint, key_groups=AFTER, partitions=1, savepoint=savepoint)
    has_failed = files.has_failed
    files.fail_at(inf)
    if not files.exists("rescale.json"):
        assert state_of(files)[1] == list(KEYS)
    return has_failed


def interrupted_calls(files: FailingFiles, begun: set[Content]) -> set[Content]:
    """Rescale checkpoints with each change of a file failing in turn. Return the different results. A change that has
    failed with the same files before and after it is left out: how the call ends depends on nothing else.
    """
    failed: set[tuple[Content, Content]] = set()
    results: set[Content] = set()
    for content in begun:
        files.content = content
        steps: list[Content] = []
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(files, "before_change", lambda steps=steps: steps.append(files.content))
            assert not call(files)
        for number, change in enumerate(pairwise([*steps, files.content])):
            if change in failed:
                continue
            failed.add(change)
            for fault in get_args(Fault):
                files.content = content
                assert call(files, number, fault)
                files.remove("run.json")
                results.add(files.content)
    return results


def test_rescaling_loses_no_state_if_two_calls_are_interrupted_at_any_point(
    files: FailingFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: Any) -> None:
        raise CheckpointError(files.checkpoint, "refused")

    once = interrupted_calls(files, {files.content})
    for left in interrupted_calls(files, once):
        files.content = left
        assert not call(files)
        assert state_of(files)[0] == AFTER
        files.content = left
        with monkeypatch.context() as patch:
            patch.setattr(rescaling, "write_checkpoint", refuse)
            call(files)
        assert state_of(files)[0] in (BEFORE, AFTER)
        assert not any(files.exists(name) for name in ("before-rescale", "rescale.json", SAVEPOINT))
