import json

import pytest

from amadou.plugins import SinkBatch
from amadou_plugins.connectors import ConsoleSink


def test_the_console_sink_prints_values_with_their_port_on_commit(capsys: pytest.CaptureFixture[str]) -> None:
    sink = ConsoleSink()
    codec = sink.codec(dict)
    batch = SinkBatch("run", "job", "sums", 0, codec)
    writer = sink.open(batch, "00000")
    writer.write([codec.encode({"a": 1}), codec.encode({"b": "ü"})])
    part = writer.finish()
    assert capsys.readouterr().out == ""
    sink.commit(batch, [part])
    assert capsys.readouterr().out == 'sums: {"a":1}\nsums: {"b":"ü"}\n'


def test_the_console_sink_escapes_what_a_terminal_may_obey(capsys: pytest.CaptureFixture[str]) -> None:
    sink, text = ConsoleSink(), "\x1b[2J\x9b31m\u202e\x7f\U000e0001 ü"
    batch = SinkBatch("run", "job", "words", 0, sink.codec(str))
    writer = sink.open(batch, "00000")
    writer.write([batch.codec.encode(text)])
    sink.commit(batch, [writer.finish()])
    line = capsys.readouterr().out.removesuffix("\n")
    assert line.isprintable()
    assert json.loads(line.removeprefix("words: ")) == text


def test_the_console_sink_prints_nothing_for_a_batch_without_values(capsys: pytest.CaptureFixture[str]) -> None:
    sink = ConsoleSink()
    sink.commit(SinkBatch("run", "job", "sums", 0, sink.codec(int)), [])
    assert capsys.readouterr().out == ""


def test_the_guarantee_of_the_console_sink_is_at_least_once() -> None:
    assert ConsoleSink.guarantee == "at-least-once"
