"""Combines multiple sinks of a port into one."""

from collections.abc import Sequence
from contextlib import ExitStack
from typing import Any

import attrs

from amadou.plugins import Codec, Sink, SinkBatch, SinkWriter


class SeveralSinks(Sink):
    """Writes a port's values to each of the port's sinks. Each sink has its own parts and, unless the port has a codec,
    its own codec.

    Each batch is committed to the sinks one by one. After a crash between two commits, the batch is reprocessed and
    committed to all sinks again, so each sink's own guarantee still holds.

    :param sinks: the sinks
    """

    def __init__(self, sinks: Sequence[Sink]) -> None:
        self._sinks = tuple(sinks)

    def codec(self, type_: Any) -> Codec[Any]:
        return _SeveralCodecs([sink.codec(type_) for sink in self._sinks])

    def open(self, batch: SinkBatch, part: str) -> SinkWriter:
        with ExitStack() as undo:
            writers = []
            for sink, own in self._batches(batch):
                writers.append(sink.open(own, part))
                undo.callback(writers[-1].abort)
            undo.pop_all()
        return _SeveralWriters(writers, isinstance(batch.codec, _SeveralCodecs))

    def commit(self, batch: SinkBatch, parts: Sequence[Any]) -> None:
        for number, (sink, own) in enumerate(self._batches(batch)):
            sink.commit(own, [part[number] for part in parts if part[number] is not None])

    def _batches(self, batch: SinkBatch) -> list[tuple[Sink, SinkBatch]]:
        """Return pairs of a sink and the batch with the sink's codec. If the port has a codec, all sinks use that
        codec.
        """
        own = batch.codec
        codecs = own.codecs if isinstance(own, _SeveralCodecs) else [own] * len(self._sinks)
        return [(sink, attrs.evolve(batch, codec=codec)) for sink, codec in zip(self._sinks, codecs, strict=True)]


class _SeveralCodecs:
    """Encodes each value once per sink, with the sink's codec."""

    def __init__(self, codecs: Sequence[Codec[Any]]) -> None:
        self.codecs = codecs
        if all(hasattr(codec, "encode_rows") for codec in codecs):
            self.encode_rows = self._encode_rows

    def encode(self, value: Any) -> list[Any]:
        return [codec.encode(value) for codec in self.codecs]

    def decode(self, encoded: Any) -> Any:
        return self.codecs[0].decode(encoded[0])

    def _encode_rows(self, rows: list[tuple[Any, ...]]) -> list[list[Any]]:
        encoded = [codec.encode_rows(rows) for codec in self.codecs]  # type: ignore[attr-defined]
        return [list(of_value) for of_value in zip(*encoded, strict=True)]


class _SeveralWriters(SinkWriter):
    """Writes values to multiple writers.

    :param encodes_separately: `True` if values are encoded separately for each writer
    """

    def __init__(self, writers: Sequence[SinkWriter], encodes_separately: bool) -> None:
        self._writers = writers
        self._encodes_separately = encodes_separately

    def write(self, encoded_values: Sequence[Any]) -> None:
        for number, writer in enumerate(self._writers):
            writer.write(
                [encoded[number] for encoded in encoded_values] if self._encodes_separately else encoded_values
            )

    def finish(self) -> Any:
        finished = [writer.finish() for writer in self._writers]
        return None if all(message is None for message in finished) else finished

    def abort(self) -> None:
        with ExitStack() as stack:
            for writer in self._writers:
                stack.callback(writer.abort)
