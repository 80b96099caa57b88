"""Reads messages, one per line, and answers all messages that have arrived without waiting for more messages."""

import gc
import os
import sys
from collections.abc import Iterator

from amadou_plugins.window_node._envelope import MOST_BYTES
from amadou_plugins.window_node._node import Node

_CHUNK = 2**20
_MOST_LINES = 10_000
"""Maximum number of lines to answer as one batch. A chunk of messages has fewer lines, but a chunk of line feeds has a
million.
"""


def serve(node: Node, source: int, target: int) -> None:
    """Answer the lines that arrive on a file descriptor, until the input ends.

    :param source: descriptor to read messages from
    :param target: descriptor to write replies to
    :raises BrokenPipeError: the reader of the replies has closed the pipe
    """
    for descriptor in (source, target):
        _widen(descriptor)
        os.set_blocking(descriptor, True)
    gc.freeze()  # the objects created so far are permanent, so the garbage collector can skip them
    for lines in arriving(source):
        for first in range(0, len(lines), _MOST_LINES):
            gc.disable()  # all objects of a batch live until the batch ends
            left = memoryview(b"".join(node.answer(lines[first : first + _MOST_LINES])))
            gc.enable()
            while left:
                left = left[os.write(target, left) :]


def arriving(source: int, *, read_size: int = _CHUNK, longest: int = MOST_BYTES) -> Iterator[list[bytes]]:
    """Yield lists of complete lines as they arrive on a file descriptor. If the input ends without a newline, yield the
    last line, too.

    If a line is longer than `longest`, its end may be cut off, but the part that remains is still too long.

    :param read_size: number of bytes to read at once
    :param longest: maximum number of bytes in a line
    """
    begun: list[bytes] = []
    length = 0
    while chunk := os.read(source, read_size):
        first, *lines = chunk.split(b"\n")
        if length <= longest:
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
    """Enlarge a pipe's buffer so that the process at the other end can continue during a batch."""
    if sys.platform == "linux":
        import fcntl
        from contextlib import suppress

        with suppress(OSError):  # not a pipe, or a larger buffer is not allowed
            fcntl.fcntl(descriptor, fcntl.F_SETPIPE_SZ, _CHUNK)
