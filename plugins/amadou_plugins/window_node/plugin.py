"""Brings the command `amadou window-node` in."""

from typing import TYPE_CHECKING

from amadou import hookimpl

if TYPE_CHECKING:
    import typer

_EXAMPLE = """Example:

echo '{"type": "assign", "msg_id": 1, "window_size_ms": 60000, "events": [{"id": 1, "timestamp":
"2024-01-15T10:00:10Z"}]}' | amadou window-node"""


def window_node() -> None:
    """Put events into tumbling windows, as messages ask for it: JSON lines from standard input, and a reply to each on
    standard output, at once. Messages are assign, process_window, close and list. Windows last as long as the process.
    """
    import typer

    from amadou_plugins.window_node._handler import MessageWindows
    from amadou_plugins.window_node._node import Node
    from amadou_plugins.window_node._pipe import serve
    from amadou_runtime import LocalRunner

    try:
        serve(Node(LocalRunner("window-node", MessageWindows())), 0, 1)
    except BrokenPipeError:
        raise typer.Exit(1) from None
    except OSError as error:
        typer.echo(f"window-node: standard input or output cannot be used: {error.strerror}", err=True)
        raise typer.Exit(1) from None
    except KeyboardInterrupt:
        raise typer.Exit(130) from None


@hookimpl
def amadou_register_commands(app: "typer.Typer") -> None:
    app.command("window-node", epilog=_EXAMPLE)(window_node)
