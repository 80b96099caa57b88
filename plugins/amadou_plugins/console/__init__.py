"""The console: web pages and a JSON API that show what a run does. `Console` is a plugin."""

from amadou_plugins.console._console import Console

__all__ = ["Console"]
