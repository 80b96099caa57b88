"""Lines in and out: as many at a time as have arrived, and none that waits for another."""

import gc
import os
import sys
from collections.abc import Iterator

from amadou_plugins.window_node._envelope import MOST_BYTES
from amadou_plugins.window_node._node import Node

_CHUNK = 2**20


def serve(node: Node, source: int, target: int) -> None:
    """Answer the lines of a file descriptor until it ends.

    :param source: where messages come from
    :param target: where replies go
    :raises BrokenPipeError: nobody reads the replies any more
    """
    for descriptor in (source, target):
        _widen(descriptor)
        os.set_blocking(descriptor, True)
    gc.freeze()  # what was made so far stays, and need not be looked at again
    for lines in arriving(source):
        gc.disable()  # a batch's objects all live until its end
        left = memoryview(b"".join(node.answer(lines)))
        gc.enable()
        while left:
            left = left[os.write(target, left) :]


def arriving(source: int) -> Iterator[list[bytes]]:
    """The lines of a file descriptor, each time all that are complete; at the end what has no newline, too.

    Of a line that is longer than `MOST_BYTES` only so much is kept that it shows.
    """
    begun: list[bytes] = []
    length = 0
    while chunk := os.read(source, _CHUNK):
        first, *lines = chunk.split(b"\n")
        if length <= MOST_BYTES:
            begun.append(first)
            length += len(first)
        if lines:
            lines.insert(0, b"".join(begun))
            begun = [lines.pop()]
            length = len(begun[0])
            yield lines
    if length:
        yield [b"".join(begun)]


def _widen(descriptor: int) -> None:
    """Let a pipe hold more, so that the process at its other end goes on during a batch."""
    if sys.platform == "linux":
        import fcntl
        from contextlib import suppress

        with suppress(OSError):  # no pipe, or no more allowed
            fcntl.fcntl(descriptor, fcntl.F_SETPIPE_SZ, _CHUNK)
