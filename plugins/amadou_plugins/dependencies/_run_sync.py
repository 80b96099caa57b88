from collections.abc import Coroutine
from typing import Any, Final, TypeVar, cast

from amadou_plugins.dependencies._errors import DependencyError

T = TypeVar("T")
_WAITS: Final = "the coroutine waits for something: await it, or give it callbacks and checks that do not wait"


def run_sync(coroutine: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine that waits for nothing, such as `check_pulse` with callbacks that are not async.

    There need be no event loop, and there may be one: a handler can call it wherever its job runs, in a notebook, too.

    :returns: what the coroutine does
    :raises DependencyError: it waits for something
    """
    try:
        coroutine.send(None)
    except StopIteration as done:
        return cast("T", done.value)
    except RuntimeError as error:
        if str(error) == "no running event loop":  # what waits asks for one first
            raise DependencyError(_WAITS) from error
        raise
    coroutine.close()
    raise DependencyError(_WAITS)
