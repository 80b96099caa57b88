"""Functions as users give them: themselves, or by name."""

import importlib
from collections.abc import Callable
from operator import attrgetter
from typing import Any

from amadou.errors import AmadouError


def loaded_function(given: Any, error: Callable[[str], AmadouError]) -> Any:
    """The function that a text ``module:function`` names; what is no text stays as it is.

    :param error: makes the error that tells why there is none
    """
    if not isinstance(given, str):
        return given
    module, _, name = given.partition(":")
    if not module or not name:
        raise error(f"{given!r} names no function: write module:function")
    try:
        return attrgetter(name)(importlib.import_module(module))
    except Exception as cause:  # importing runs what stands in the module
        raise error(f"the function {given} cannot be loaded: {type(cause).__name__}: {cause}") from cause


def function_name(function: Any) -> str:
    """A function's name as its users know it."""
    name = getattr(function, "__qualname__", None)
    return repr(function) if name is None else f"{function.__module__}.{name}"
