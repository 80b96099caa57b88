"""The window node: a process that puts events into tumbling windows as messages on its standard input ask for it.

The way of a line: `serve` takes what has arrived, `_envelope` opens each message, `_requests` reads and checks what it
asks for, `Node` has a runner process the requests together, `_handler` keeps the windows, `_answers` makes replies of
what the handler collected. `docs/window-node.md` describes the messages; the command is the runtime's.
"""

from amadou_plugins.window_node._errors import MessageError
from amadou_plugins.window_node._handler import MessageWindows
from amadou_plugins.window_node._node import Node, Runner
from amadou_plugins.window_node._pipe import serve

__all__ = ["MessageError", "MessageWindows", "Node", "Runner", "serve"]
