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
    """Calls a function with the values of each batch that has any, in the process that started the run. At-least-once:
    a replayed batch is passed again, with the same `batch.run` and `batch.number`. A function that remembers these two
    makes the sink exactly-once.

    The function stays in that process, so it may hold objects that cannot be sent to workers, such as a connection.

    :param function: ``function(values, batch)``, or its name, ``module:function``. It gets the list of values, of the
        port's type, and their `SinkBatch`. It must not be async, and its result is ignored. If it fails, the run ends;
        a restarted run begins with this batch
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
    """Stand in for the function in workers."""
