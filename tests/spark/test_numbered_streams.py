"""Checkpoints that identify streams by number, as Spark 4.0 and 4.1 do. Newer versions continue them."""

import json
from pathlib import Path
from typing import Any

import attrs
import pytest
from tests.conformance.handlers import at

from amadou import Handler, Job, KeyedEvent, SinkSpec, Subject, ValueSpec
from amadou.errors import CheckpointError
from amadou.plugins import Source
from amadou.spark_versions import names_sources
from amadou_plugins.connectors import JsonLinesSink, LinesSource, MemorySource
from amadou_runtime import run
from amadou_runtime.spark import streams
from amadou_runtime.spark.savepoints.rescaling import rescale

pytestmark = [pytest.mark.spark, pytest.mark.needs_spark(4)]


class Counting(Handler):
    count = ValueSpec(int, default=0)
    seen = SinkSpec(list)

    def key_event(self, record: bytes) -> KeyedEvent[str]:
        return KeyedEvent("all", at(1), record.decode())

    def on_event(self, subject: Subject, event: KeyedEvent[str]) -> None:
        self.count.state_for(subject).value += 1
        self.seen.collect(subject, [event.value, self.count.state_for(subject).value])


@pytest.fixture
def numbered(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """Makes new checkpoints number their streams, until the patch is undone."""
    monkeypatch.setattr(streams, "names_sources", lambda: False)
    return monkeypatch


def job(directory: Path, **more: Source) -> Job:
    sources: dict[str, Source] = {name: LinesSource(str(directory / name)) for name in ("left", "right")}
    return Job("numbered", Counting(), {**sources, **more}, {"seen": JsonLinesSink(str(directory / "out"))})


def bring(directory: Path, **texts: str) -> None:
    for name, text in texts.items():
        (directory / name).mkdir(exist_ok=True)
        (directory / name / text).write_text(f"{text}\n")


def seen(directory: Path) -> list[Any]:
    lines = [line for path in (directory / "out").glob("*.jsonl") for line in path.read_text().splitlines()]
    return sorted((json.loads(line) for line in lines), key=lambda each: each[1])


def test_a_newer_version_continues_a_checkpoint_with_numbers(
    spark: Any, tmp_path: Path, numbered: pytest.MonkeyPatch
) -> None:
    state = str(tmp_path / "state")
    bring(tmp_path, left="a", right="b")
    run(job(tmp_path), checkpoint=state, trigger="available-now")
    numbered.undo()
    bring(tmp_path, left="c")
    rescale(spark, state, partitions=3)
    run(job(tmp_path), checkpoint=state, trigger="available-now")
    assert [count for _, count in seen(tmp_path)] == [1, 2, 3]
    assert seen(tmp_path)[2:] == [["c", 3]]
    assert (tmp_path / "state" / "offsets" / "0").read_text().startswith("v1")


@pytest.mark.qualify
def test_runs_continue_on_each_version_and_after_rescaling(
    spark: Any, tmp_path: Path, numbered: pytest.MonkeyPatch
) -> None:
    state, saved = str(tmp_path / "state"), str(tmp_path / "saved")

    def go_on(**settings: Any) -> list[Any]:
        run(job(tmp_path), trigger="available-now", **settings)
        return [text for text, _ in seen(tmp_path)]

    bring(tmp_path, left="a", right="b")
    assert sorted(go_on(checkpoint=state)) == ["a", "b"]
    bring(tmp_path, right="c")
    assert go_on(checkpoint=state)[2:] == ["c"]
    bring(tmp_path, right="d")
    rescale(spark, state, partitions=3)
    assert go_on(checkpoint=state)[3:] == ["d"]
    numbered.undo()
    bring(tmp_path, left="e")
    assert go_on(checkpoint=state, to_savepoint=saved)[4:] == ["e"]
    assert (tmp_path / "state" / "offsets" / "0").read_text().startswith("v1")
    rescale(spark, state, partitions=2)
    bring(tmp_path, left="f")
    assert go_on(checkpoint=state)[5:] == ["f"]
    bring(tmp_path, right="g")
    assert go_on(checkpoint=str(tmp_path / "named"), from_savepoint=saved)[6:] in (["f", "g"], ["g", "f"])
    assert [count for _, count in seen(tmp_path)] == [1, 2, 3, 4, 5, 6, 6, 7]
    version = "v2" if names_sources() else "v1"
    assert (tmp_path / "named" / "offsets" / "1").read_text().startswith(version)


@pytest.mark.qualify
def test_a_savepoint_of_another_version_begins_a_checkpoint(
    spark: Any, tmp_path: Path, numbered: pytest.MonkeyPatch
) -> None:
    """Also if the savepoint has a source that the job no longer has."""
    bring(tmp_path, left="a", right="b", former="c")
    more = LinesSource(str(tmp_path / "former"))
    saved = str(tmp_path / "saved")
    numbered.undo()
    run(job(tmp_path, former=more), to_savepoint=saved, trigger="available-now")
    numbered.setattr(streams, "names_sources", lambda: False)
    bring(tmp_path, left="d")
    run(job(tmp_path), checkpoint=str(tmp_path / "state"), from_savepoint=saved, trigger="available-now")
    assert seen(tmp_path)[3:] == [["d", 4]]


def test_other_sources_need_a_new_checkpoint(spark: Any, tmp_path: Path, numbered: pytest.MonkeyPatch) -> None:
    bring(tmp_path, left="a", right="b")
    run(job(tmp_path), checkpoint=str(tmp_path / "state"), trigger="available-now")
    more = attrs.evolve(job(tmp_path), sources={**job(tmp_path).sources, "third": MemorySource()})
    with pytest.raises(CheckpointError, match=r"cannot add or remove sources \(third\): take a savepoint"):
        run(more, checkpoint=str(tmp_path / "state"), trigger="available-now")


@pytest.mark.needs_spark(4, 2)
def test_an_older_version_cannot_continue_a_checkpoint_with_names(
    spark: Any, tmp_path: Path, numbered: pytest.MonkeyPatch
) -> None:
    bring(tmp_path, left="a", right="b")
    numbered.undo()
    run(job(tmp_path), checkpoint=str(tmp_path / "state"), trigger="available-now")
    numbered.setattr(streams, "names_sources", lambda: False)
    with pytest.raises(CheckpointError, match=r"made by Spark 4.2 or newer. To use an older version, take a savepoint"):
        run(job(tmp_path), checkpoint=str(tmp_path / "state"), trigger="available-now")
