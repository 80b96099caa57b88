from collections.abc import Callable, Sequence
from typing import Any

import attrs

from amadou import BufferingWriter, Param, Sink, SinkBatch, SinkWriter, check_ran
from amadou.errors import SinkError
from amadou_plugins.connectors._function_source import Function, loaded_function


def _loaded(function: Callable[[list[Any], SinkBatch], Any] | str | Param) -> Any:
    return loaded_function(function, "FunctionSink needs function(values, batch)", SinkError)


@attrs.frozen
class FunctionSink(Sink):
    """Calls a function with the values of each batch that has any, where the run was started. At-least-once: a batch
    that is played again is handed over again, with the same `batch.run` and `batch.number`. A function that
    remembers those makes it exactly-once.

    The function stays where the run was started, and may hold what cannot be sent to workers, such as a connection.

    :param function: ``function(values, batch)`` takes the list of values, which are of the port's type, and their
        `SinkBatch`; what it returns is not looked at, but it may not be async. Where it fails, the run ends, and begins
        with this batch when it is started again. Or the function's name, ``module:function``
    :raises SinkError: there is no such function, or it takes other arguments
    """

    guarantee = "at-least-once"

    function: Function | Param = attrs.field(converter=_loaded)

    def __reduce__(self) -> Any:
        return type(self), (self.function if isinstance(self.function, Param) else _left_behind,)

    def open(self, batch: SinkBatch, part: str) -> SinkWriter:
        return BufferingWriter()

    def commit(self, batch: SinkBatch, parts: Sequence[Any]) -> None:
        values = [batch.codec.decode(encoded) for part in parts for encoded in part]
        if not values:
            return
        assert isinstance(self.function, Function)
        try:
            check_ran(repr(self.function), self.function.call(values, batch))
        except Exception as error:
            what = f"{self.function} failed with the values of port {batch.port!r} in batch {batch.number}"
            raise SinkError(f"{what}: {type(error).__name__}: {error}") from error


def _left_behind(values: list[Any], batch: SinkBatch) -> None:
    """Stands for the function in workers."""
