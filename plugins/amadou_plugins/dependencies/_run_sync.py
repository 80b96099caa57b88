from collections.abc import Coroutine
from typing import Any, Final, TypeVar, cast

from amadou_plugins.dependencies._errors import DependencyError

T = TypeVar("T")
_WAITS: Final = "the coroutine waits for something: await it, or give it callbacks and checks that do not wait"


def run_sync(coroutine: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine that waits for nothing, such as `check_pulse` with callbacks that are not async.

    It works with or without a running event loop: a handler can call it wherever its job runs, in a notebook, too.

    :returns: result of the coroutine
    :raises DependencyError: the coroutine waits for something
    """
    try:
        coroutine.send(None)
    except StopIteration as done:
        return cast("T", done.value)
    except RuntimeError as error:
        if str(error) == "no running event loop":  # a coroutine that waits asks for a loop first
            raise DependencyError(_WAITS) from error
        raise
    coroutine.close()
    raise DependencyError(_WAITS)
