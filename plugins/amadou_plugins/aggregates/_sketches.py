import importlib
from typing import Any

from amadou_plugins.aggregates._errors import AggregateError


def sketches(aggregate: str, library: str) -> Any:
    """Import a sketch library for an aggregate that needs the library, and return the library's module."""
    try:
        return importlib.import_module(library)
    except ImportError as error:
        raise AggregateError(
            aggregate, f"needs the library {library}, which is not installed: run pip install 'amadou[sketches]'"
        ) from error
