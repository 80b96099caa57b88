"""A dead letter can always be written: its sink writes values that it cannot encode as text."""

import json
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest

from amadou import Handler, Job, KeyedEvent, MemorySink, MemorySource, SinkSpec, Subject, ValueSpec
from amadou._handler.letters import DEAD_LETTERS, LATE_EVENTS
from amadou.errors import CallbackError
from amadou.event_time import from_micros
from amadou.plugins import Sink
from amadou_plugins.connectors import JsonLinesSink
from amadou_runtime import run
from amadou_runtime.embedded.engine import Embedded

NOON = datetime(2025, 1, 1, 12, tzinfo=timezone.utc)
LONG = 2**80


class Unreadable:
    def __repr__(self) -> str:
        raise ValueError("no words")

    def __str__(self) -> str:
        raise ValueError("no words")


class Silent(Exception):  # noqa: N818 - its name is seen in messages
    def __str__(self) -> str:
        raise ValueError("no words")


class Failing(Handler):
    stored = ValueSpec(Any)  # type: ignore[arg-type]
    seen = SinkSpec(str)

    def key_event(self, record: Any) -> Any:
        if type(record) is Unreadable:
            raise ValueError("half \ud83d")
        return record

    def on_event(self, subject: Subject, event: KeyedEvent[Any]) -> None:
        if event.value == "keep":
            self.stored.state_for(subject).value = {LONG: {(1, LONG)}}
            return
        self.seen.collect(subject, "seen")
        raise Silent


def job(dead_letters: Sink, **settings: Any) -> Job:
    records = [
        Unreadable(),
        KeyedEvent(LONG, NOON, "keep"),
        KeyedEvent(LONG, NOON, {"at": {frozenset({LONG})}}),
        KeyedEvent((LONG, b"\xff"), NOON, "fails"),
    ]
    sinks = {"seen": MemorySink(), DEAD_LETTERS: dead_letters, **settings.pop("sinks", {})}
    return Job("odd", Failing(), {"records": MemorySource(records)}, sinks, on_error="dead_letter", **settings)


@pytest.mark.rule(31)
def test_dead_letters_of_records_that_cannot_be_encoded_are_written_with_text(tmp_path: Path) -> None:
    run(job(JsonLinesSink(str(tmp_path))), engine="embedded")
    lines = [json.loads(line) for file in tmp_path.glob("*.jsonl") for line in file.read_text().splitlines()]
    assert [line["error"] for line in lines] == [
        "ValueError: half \\ud83d",
        "Silent: <its message failed: ValueError>",
        "Silent: <its message failed: ValueError>",
    ]
    assert [line["key"] for line in lines] == [None, str(LONG), repr((LONG, b"\xff"))]
    assert lines[0]["record"] == lines[0]["shown"] == "<Unreadable, whose repr failed: ValueError>"
    assert lines[1]["state"] == {"stored": repr({LONG: {(1, LONG)}})}


@pytest.mark.rule(31)
def test_a_late_event_that_its_sink_cannot_encode_becomes_a_dead_letter(tmp_path: Path) -> None:
    late = KeyedEvent(LONG, NOON - timedelta(hours=1), "late")
    sinks = {LATE_EVENTS: JsonLinesSink(str(tmp_path / "late"))}
    engine = Embedded(job(MemorySink(), sinks=sinks, late_events="divert"))
    watermark = int(NOON.timestamp()) * 1_000_000
    batch = engine.process(
        {"records": [("", [late, late._replace(key="a"), KeyedEvent("b", NOON, "keep")])]}, watermark, 0
    )
    assert (batch.tally.counts.late, len(batch.tally.outputs[LATE_EVENTS])) == (2, 1)
    (encoded,) = batch.tally.outputs[DEAD_LETTERS]
    letter = MemorySink().codec(job(MemorySink()).ports[DEAD_LETTERS].type).decode(encoded)
    assert (letter.callback, letter.record, letter.timestamp) == (LATE_EVENTS, late, late.timestamp)
    assert (letter.key, letter.watermark) == (LONG, from_micros(watermark))

    without = Job("odd", Failing(), {"records": MemorySource()}, {"seen": MemorySink(), **sinks}, late_events="divert")
    with pytest.raises(CallbackError, match=rf"late_events failed(.|\n)*{LONG}"):
        Embedded(without).process({"records": [("", [late])]}, watermark, 0)
