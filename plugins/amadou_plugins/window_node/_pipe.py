"""Lines in and out: all that have arrived at a time; no line waits for another."""

import gc
import os
import sys
from collections.abc import Iterator

from amadou_plugins.window_node._envelope import MOST_BYTES
from amadou_plugins.window_node._node import Node

_CHUNK = 2**20


def serve(node: Node, source: int, target: int) -> None:
    """Answer the lines of a file descriptor until it ends.

    :param source: descriptor of the messages
    :param target: descriptor for the replies
    :raises BrokenPipeError: nobody reads the replies any more
    """
    for descriptor in (source, target):
        _widen(descriptor)
        os.set_blocking(descriptor, True)
    gc.freeze()  # the objects made so far stay; the collector can skip them
    for lines in arriving(source):
        gc.disable()  # a batch's objects all live until its end
        left = memoryview(b"".join(node.answer(lines)))
        gc.enable()
        while left:
            left = left[os.write(target, left) :]


def arriving(source: int) -> Iterator[list[bytes]]:
    """Yield the complete lines of a file descriptor as they arrive; at the end also a line without a newline.

    Of a line longer than `MOST_BYTES`, only enough is kept to show that it is too long.
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
    """Enlarge a pipe's buffer, so that the process at its other end can go on during a batch."""
    if sys.platform == "linux":
        import fcntl
        from contextlib import suppress

        with suppress(OSError):  # not a pipe, or a larger buffer is not allowed
            fcntl.fcntl(descriptor, fcntl.F_SETPIPE_SZ, _CHUNK)
