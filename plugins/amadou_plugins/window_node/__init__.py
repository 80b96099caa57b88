"""The window node: a process that puts events into tumbling windows as messages on its standard input ask for it.

The path of a line: `serve` takes the lines that have arrived, `_envelope` opens each message, `_requests` reads and
checks its request, `Node` has a runner process the requests together, `_handler` keeps the windows, `_answers` turns
the values that the handler collected into replies. `docs/window-node.md` describes the messages; the command belongs to
the runtime.
"""

from amadou_plugins.window_node._errors import MessageError
from amadou_plugins.window_node._handler import MessageWindows
from amadou_plugins.window_node._node import Node, Runner
from amadou_plugins.window_node._pipe import serve

__all__ = ["MessageError", "MessageWindows", "Node", "Runner", "serve"]
