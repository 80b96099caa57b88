"""Runs a handler inside another program."""

from typing import Any, Final

from amadou import Handler, Job, Key, MemorySink, MemorySource, SinkSpec
from amadou.engine import declared_specs
from amadou_runtime.core.batch_driver import BatchDriver
from amadou_runtime.core.events import Chunk
from amadou_runtime.core.keying import Keying
from amadou_runtime.core.operator import Operator
from amadou_runtime.jobs.ports import port_codec
from amadou_runtime.store.memory import EmbeddedState

_SOURCE: Final = "records"


class LocalRunner:
    """Runs a handler in the caller's process, with the state in memory. Use it in programs that answer requests, such
    as `amadou window-node`. There is no watermark, so timers never fire.

    :param name: the job's name in error messages
    :param handler: the handler
    """

    def __init__(self, name: str, handler: Handler) -> None:
        ports = [spec.name for spec in declared_specs(handler).values() if isinstance(spec, SinkSpec)]
        job = Job(name, handler, {_SOURCE: MemorySource()}, {port: MemorySink() for port in ports})
        self._operator = Operator(job)
        self._keying = Keying(job, _SOURCE, handler.key_event, 1)
        self._codecs = {port: port_codec(job, port) for port in job.ports}
        self._state = EmbeddedState()
        self._operator.open()

    def process(self, record: Any) -> dict[str, list[Any]]:
        """Process one record as a batch.

        :param record: the record to pass to the handler's `key_event`
        :returns: the values that the handler collected, by port
        :raises CallbackError: a callback failed; the state is unchanged
        """
        chunks = [(0, Chunk(_SOURCE, b"", events)) for events in self._keying.pack([record], 0).events.values()]
        result = BatchDriver(self._operator, self._state.load("")).process_groups(chunks, None)[0]
        self._state.store()
        return {port: list(map(codec.decode, result.outputs.get(port, ()))) for port, codec in self._codecs.items()}

    def keys(self) -> list[Key]:
        """Return the keys that have state or timers."""
        return self._state.whole().keys()

    def close(self) -> None:
        """Call the handler's `close`."""
        self._operator.close()
