"""Loads user functions, which can be passed directly or by name."""

import importlib
import inspect
from collections.abc import Callable
from contextlib import suppress
from operator import attrgetter
from typing import Any

import attrs

from amadou import Param
from amadou.errors import AmadouError


@attrs.frozen(repr=False)
class Function:
    """A user function. Error messages show the function's name.

    :param call: the function itself
    """

    call: Callable[..., Any]

    def __repr__(self) -> str:
        name = getattr(self.call, "__qualname__", None)
        module = getattr(self.call, "__module__", None)
        return repr(self.call) if name is None else name if module is None else f"{module}.{name}"


def loaded_function(given: Any, needs: str, error: type[AmadouError]) -> Any:
    """Check that a function accepts two arguments, and return the function as a `Function`. Return a `Param` unchanged:
    its value is checked later.

    :param given: a function, or the function's name as ``module:function``
    :param needs: beginning of the error messages, such as "FunctionSink needs function(values, batch)"
    :param error: class of the error to raise
    :raises AmadouError: the function cannot be loaded, is not callable, or does not accept two arguments
    """
    if isinstance(given, Function | Param):
        return given
    function = Function(_imported(given, error) if isinstance(given, str) else given)
    if not callable(function.call):
        raise error(f"{needs}, not {function}")
    signature = _signature(function.call)
    try:
        if signature is not None:
            signature.bind(None, None)
    except TypeError:
        raise error(f"{needs}, but {function} takes {signature}") from None
    return function


def _signature(function: Callable[..., Any]) -> inspect.Signature | None:
    with suppress(ValueError, TypeError):  # some functions written in C have no signature
        return inspect.signature(function, follow_wrapped=False)
    return None


def _imported(named: str, error: type[AmadouError]) -> Any:
    module, _, name = named.partition(":")
    if not module or not name:
        raise error(f"{named!r} is not the name of a function: use the form module:function")
    try:
        return attrgetter(name)(importlib.import_module(module))
    except Exception as cause:  # importing runs the module's code, which can raise any error
        raise error(f"the function {named} cannot be loaded: {type(cause).__name__}: {cause}") from cause
