"""Sinks of real runs: a port may have several."""

import json
from pathlib import Path

import attrs
import pytest
from tests.conformance.handlers import Recorder, event, job

from amadou import MemorySink, MemorySource
from amadou_plugins.connectors import JsonLinesSink
from amadou_runtime import run


@pytest.mark.on_spark("commit")
@pytest.mark.rule(34)
def test_each_sink_of_a_port_receives_every_value(engine: str, tmp_path: Path) -> None:
    memory = MemorySink()
    sinks = [JsonLinesSink(tmp_path / "one"), memory, JsonLinesSink(tmp_path / "two")]
    source = MemorySource([event(1, "a"), event(2, "b")])
    run(attrs.evolve(job(Recorder()), sources={"events": source}, sinks={"seen": sinks}), engine=engine)

    assert [record[4] for record in memory.records] == ["a", "b"]
    for directory in ("one", "two"):
        lines = [line for file in (tmp_path / directory).glob("*.jsonl") for line in file.read_text().splitlines()]
        assert sorted(json.loads(line)[4] for line in lines) == ["a", "b"]
