"""The command `amadou window-node`."""

import typer

WINDOW_NODE_EXAMPLE = """Example:

echo '{"type": "assign", "msg_id": 1, "window_size_ms": 60000, "events": [{"id": 1, "timestamp":
"2024-01-15T10:00:10Z"}]}' | amadou window-node"""


def window_node() -> None:
    """Serve tumbling windows: read messages as JSON lines from standard input, and write replies to standard output.

    The message types are assign, process_window, close and list. The windows exist only while the process runs.
    """
    from amadou_plugins.window_node import MessageWindows, Node, serve
    from amadou_runtime.embedded.local_runner import LocalRunner

    try:
        serve(Node(LocalRunner("window-node", MessageWindows())), 0, 1)
    except BrokenPipeError:
        raise typer.Exit(1) from None
    except OSError as error:
        typer.echo(f"window-node: standard input or output cannot be used: {error.strerror}", err=True)
        raise typer.Exit(1) from None
    except KeyboardInterrupt:
        raise typer.Exit(130) from None
