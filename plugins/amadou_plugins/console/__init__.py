"""The console: web pages and a JSON API that show what a run does. `Console` is a plugin."""

from amadou_plugins.console._console import Console
from amadou_plugins.console._facts import RunFacts
from amadou_plugins.console._stored_run import StoredRun, serve

__all__ = ["Console", "RunFacts", "StoredRun", "serve"]
