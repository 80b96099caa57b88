import pytest

from amadou import SinkBatch
from amadou_plugins.connectors import ConsoleSink


def test_values_are_printed_with_their_port_on_commit(capsys: pytest.CaptureFixture[str]) -> None:
    sink = ConsoleSink()
    codec = sink.codec(dict)
    batch = SinkBatch("run", "job", "sums", 0, codec)
    writer = sink.open(batch, "00000")
    writer.write([codec.encode({"a": 1}), codec.encode({"b": "ü"})])
    part = writer.finish()
    assert capsys.readouterr().out == ""
    sink.commit(batch, [part])
    assert capsys.readouterr().out == 'sums: {"a":1}\nsums: {"b":"ü"}\n'


def test_a_batch_without_values_prints_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    sink = ConsoleSink()
    sink.commit(SinkBatch("run", "job", "sums", 0, sink.codec(int)), [])
    assert capsys.readouterr().out == ""


def test_a_replay_prints_again_and_the_sink_says_so() -> None:
    assert ConsoleSink.guarantee == "at-least-once"
