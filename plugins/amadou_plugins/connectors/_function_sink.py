from collections.abc import Callable, Sequence
from typing import Any

import attrs

from amadou import Param
from amadou.components import check_ran
from amadou.errors import SinkError
from amadou.plugins import BufferingWriter, Sink, SinkBatch, SinkWriter
from amadou_plugins.connectors._function_source import Function, loaded_function


def _loaded(function: Callable[[list[Any], SinkBatch], Any] | str | Param) -> Any:
    return loaded_function(function, "FunctionSink needs function(values, batch)", SinkError)


@attrs.frozen
class FunctionSink(Sink):
    """Calls a function with the values of each batch, in the process that started the run. The function is not called
    for a batch without values. At-least-once: when a batch is reprocessed, the function receives its values again, with
    the same `batch.run`, `batch.port` and `batch.number`. The sink is exactly-once if the function stores the values,
    `batch.run`, `batch.port` and `batch.number` in one transaction, and skips batches that are already stored.

    amadou does not send the function to workers, so the function can use objects that cannot be pickled, such as a
    connection.

    :param function: ``function(values, batch)``, or the function's name as ``module:function``. `values` is a list of
        values of the port's type, and `batch` is the batch's `SinkBatch`. The function must not be async, and its
        result is ignored. If the function raises an error, the run fails; after a restart, the job resumes with the
        same batch
    :raises SinkError: the function cannot be loaded, is not callable, or does not accept two arguments
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
    """Placeholder for the user's function on workers, where the function is never called."""
