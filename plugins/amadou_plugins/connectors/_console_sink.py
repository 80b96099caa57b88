import json
from collections.abc import Sequence
from typing import Any

import attrs

from amadou.plugins import BufferingWriter, Codec, Sink, SinkBatch, SinkWriter
from amadou_plugins.connectors._json import JsonCodec, json_lines


@attrs.frozen
class ConsoleSink(Sink):
    """Prints each value as ``port: {json}`` to the standard output of the process that started the run. At-least-once:
    the values of a reprocessed batch can be printed twice.
    """

    guarantee = "at-least-once"

    def codec(self, type_: Any) -> Codec[Any]:
        return JsonCodec(type_)

    def open(self, batch: SinkBatch, part: str) -> SinkWriter:
        return BufferingWriter()

    def commit(self, batch: SinkBatch, parts: Sequence[Any]) -> None:
        lines = [f"{batch.port}: {_printable(line.decode())}\n" for part in parts for line in json_lines(batch, part)]
        print("".join(lines), end="", flush=True)


def _printable(line: str) -> str:
    """Return a line of JSON with all characters escaped that a terminal might obey."""
    return line if line.isprintable() else "".join(c if c.isprintable() else json.dumps(c)[1:-1] for c in line)
