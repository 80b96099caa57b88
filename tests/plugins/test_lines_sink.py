import tempfile
from datetime import datetime, timezone
from enum import Enum
from pathlib import Path
from typing import Any

import orjson
import pytest
from attrs import frozen
from hypothesis import example, given, settings
from hypothesis import strategies as st

from amadou import DeadLetter, Handler, Job, KeyedEvent, LateEvent, MemorySource, SinkSpec, Subject
from amadou.errors import EncodeError, SinkError
from amadou.plugins import Codec, SinkBatch
from amadou_plugins.connectors import LinesSink, LinesSource
from amadou_runtime import run
from amadou_runtime.jobs.named_connectors import with_connectors

START = datetime(2025, 1, 1, tzinfo=timezone.utc)


@frozen
class View:
    channel: str
    note: str


class Colour(str, Enum):
    RED = "red"


class Echo(Handler):
    seen = SinkSpec(Any)

    def key_event(self, record: Any) -> KeyedEvent:
        return KeyedEvent("a", START, record)

    def on_event(self, subject: Subject, event: KeyedEvent) -> None:
        self.seen.collect(subject, event.value)


@pytest.mark.parametrize(
    ("value", "line"),
    [
        ('say "é"\t', 'say "é"\t'.encode()),
        ("", b""),
        (b"\xff\x00", b"\xff\x00"),
        (Colour.RED, b"red"),
        (-3, b"-3"),
        (None, b"null"),
        (START, b'"2025-01-01T00:00:00Z"'),
        ({"a": "line\nbreak"}, b'{"a":"line\\nbreak"}'),
        (View("a", "b\r"), b'{"channel":"a","note":"b\\r"}'),
    ],
)
def test_lines_sink_writes_texts_and_bytes_unchanged_and_other_values_as_json(value: Any, line: bytes) -> None:
    codec = LinesSink("out").codec(type(value))
    assert codec.encode(value) == line
    assert codec.decode(line) == line


@pytest.mark.parametrize(
    ("type_", "value", "why"),
    [
        (str, "line\nbreak", "it contains a line ending: use JsonLinesSink for such values"),
        (str, "line\r", "it contains a line ending"),
        (bytes, b"line\nbreak", "it contains a line ending"),
        (str, "\ud800", "surrogates not allowed"),
        (int, "3", "cannot store '3'"),
        (View, "a", "cannot store 'a'"),
        (Any, object(), "object is not JSON serializable"),
    ],
)
def test_lines_sink_refuses_values_that_are_not_a_single_line(type_: Any, value: Any, why: str) -> None:
    with pytest.raises(EncodeError, match=why):
        LinesSink("out").codec(type_).encode(value)


def written(directory: Any, *values: Any, type_: Any = Any, codec: Any = None) -> list[Path]:
    """Write a batch in two parts, of which the first has all values. Return the files."""
    sink = LinesSink(directory)
    batch = SinkBatch("run1", "views", "sums", 7, codec or sink.codec(type_))
    sink.check("sums", type_)
    parts = []
    for part, of_part in (("00000", values), ("00001", ())):
        writer = sink.open(batch, part)
        writer.write([batch.codec.encode(value) for value in of_part])
        parts.append(writer.finish())
    sink.commit(batch, [part for part in parts if part is not None])
    return sorted(Path(str(sink.path)).iterdir())


def test_lines_sink_writes_a_file_with_a_line_for_each_value_of_a_part(tmp_path: Path) -> None:
    (file,) = written(tmp_path, "a", b"b", 3)
    assert file.name == "sums-run1-000000007-00000.txt"
    assert file.read_bytes() == b"a\nb\n3\n"


TEXTS = st.text(st.characters(exclude_characters="\r\n", codec="utf-8"))
BYTES = st.binary().map(lambda line: b"".join(line.splitlines()))


@settings(deadline=None)
@given(st.lists(TEXTS | BYTES))
@example(["\ufeffa", "\ufeffb"])
def test_lines_source_reads_the_files_of_lines_sink(values: list[str | bytes]) -> None:
    with tempfile.TemporaryDirectory() as directory:
        written(directory, *values)
        lines = list(LinesSource(directory).records())
    assert lines == [value.encode() if isinstance(value, str) else value for value in values]


class PassThrough(Codec[Any]):
    def encode(self, value: Any) -> Any:
        return value

    def decode(self, encoded: Any) -> Any:
        return encoded


def test_lines_sink_writes_values_of_a_port_with_a_codec_as_lines(tmp_path: Path) -> None:
    (file,) = written(tmp_path, "ü", b"\xff", ["a\n", 1], codec=PassThrough())
    assert file.read_bytes() == b'\xc3\xbc\n\xff\n["a\\n",1]\n'
    message = (
        r"LinesSink cannot write a value that the codec of port 'sums' returned: "
        r"cannot store 'a\\nb' .*it contains a line ending: use JsonLinesSink"
    )
    writer = LinesSink(tmp_path).open(SinkBatch("run1", "views", "sums", 7, PassThrough()), "00000")
    with pytest.raises(SinkError, match=message):
        writer.write(["a\nb"])
    writer.abort()


def test_a_run_writes_values_and_dead_letters_with_lines_sink(tmp_path: Path) -> None:
    sinks = {"seen": LinesSink(tmp_path / "seen"), "dead_letters": LinesSink(tmp_path / "dead_letters")}
    run(Job("echo", Echo(), {"in": MemorySource(["a", "b\n", "c"])}, sinks, on_error="dead_letter"), engine="embedded")
    assert list(LinesSource(tmp_path / "seen").records()) == [b"a", b"c"]
    (line,) = LinesSource(tmp_path / "dead_letters").records()
    letter = orjson.loads(line)
    assert list(letter) == list(DeadLetter.__annotations__)
    assert "use JsonLinesSink for such values" in letter["error"]


def test_lines_sink_writes_late_events_as_json(tmp_path: Path) -> None:
    event = LateEvent("echo", "in", "a", START, "late", START)
    (file,) = written(tmp_path, event, type_=LateEvent)
    assert orjson.loads(file.read_bytes())["value"] == "late"


def test_lines_sink_can_be_named_on_the_command_line() -> None:
    job = Job("echo", Echo(), {"in": MemorySource()}, {"seen": LinesSink("in")})
    assert with_connectors(job, {}, {"seen": ["lines:out/"]}).sinks["seen"] == LinesSink("out/")


def test_errors_of_lines_sink_name_the_sink(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(SinkError, match="is not a directory: give LinesSink a different path"):
        LinesSink(tmp_path / "file").check("sums", int)
