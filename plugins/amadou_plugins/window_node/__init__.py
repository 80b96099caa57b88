"""The window node: a process that manages tumbling windows, as requested by messages on standard input.

`serve` reads lines from standard input, `_envelope` parses each line as a message, and `_requests` checks the request
in the message. `Node` passes the requests in batches to a runner. The runner's handler (`_handler`) stores the windows.
`_answers` converts the values that the handler collected into replies. `docs/window-node.md` describes the messages.
The command `amadou window-node` is part of the runtime.
"""

from amadou_plugins.window_node._errors import MessageError
from amadou_plugins.window_node._handler import MessageWindows
from amadou_plugins.window_node._node import Node, Runner
from amadou_plugins.window_node._pipe import serve

__all__ = ["MessageError", "MessageWindows", "Node", "Runner", "serve"]
