import pytest

from amadou import SinkBatch
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


def test_the_console_sink_prints_nothing_for_a_batch_without_values(capsys: pytest.CaptureFixture[str]) -> None:
    sink = ConsoleSink()
    sink.commit(SinkBatch("run", "job", "sums", 0, sink.codec(int)), [])
    assert capsys.readouterr().out == ""


def test_the_guarantee_of_the_console_sink_is_at_least_once() -> None:
    assert ConsoleSink.guarantee == "at-least-once"
