"""Makes text from data safe for a terminal."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.console import Console
    from rich.text import Text

_REPLACEMENT = "\N{REPLACEMENT CHARACTER}"


def printable(text: str) -> str:
    """Return a string with each character replaced that cannot be printed, such as control characters: a terminal obeys
    these, and others change the order in which the text is read.
    """
    if text.isprintable():
        return text
    return "".join(each if each.isprintable() else _REPLACEMENT for each in text)


def printable_lines(text: str) -> str:
    """Return lines of text, each as `printable` returns it."""
    return "\n".join(map(printable, text.expandtabs().split("\n")))


def plain_console(**settings: Any) -> "Console":
    """Return a console that prints text as it is, except for what cannot be printed."""
    from rich.console import Console  # importing rich is slow

    class PlainConsole(Console):
        def render_str(self, text: str, **more: Any) -> "Text":
            return super().render_str(printable_lines(text), **more)

    return PlainConsole(markup=False, highlight=False, **settings)
