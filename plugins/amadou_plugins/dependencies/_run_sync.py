from collections.abc import Coroutine
from typing import Any, Final, TypeVar, cast

from amadou_plugins.dependencies._errors import DependencyError

T = TypeVar("T")
_WAITS: Final = "the coroutine waits for something: await the coroutine, or use callbacks and checks that do not wait"


def run_sync(coroutine: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine that does not wait for anything, such as `check_pulse` with synchronous callbacks.

    This function works with or without a running event loop, so a handler can call it wherever the job runs, even in a
    notebook.

    :returns: result of the coroutine
    :raises DependencyError: the coroutine waits for something
    """
    try:
        coroutine.send(None)
    except StopIteration as done:
        return cast("T", done.value)
    except RuntimeError as error:
        if str(error) == "no running event loop":  # raised by a coroutine that tries to wait
            raise DependencyError(_WAITS) from error
        raise
    coroutine.close()
    raise DependencyError(_WAITS)
