"""Running a handler inside another program, with the operator core."""

from typing import Any, Final

from amadou import Handler, Job, Key, MemorySink, MemorySource, SinkSpec
from amadou.engine import declared_specs
from amadou_runtime.core.events import Chunk
from amadou_runtime.core.key_group import KeyGroup
from amadou_runtime.core.keying import Keying
from amadou_runtime.core.operator import Operator
from amadou_runtime.core.ports import port_codec

_SOURCE: Final = "records"
_GROUPS: Final = 64
"""Number of key groups: a batch loads and stores those that it touches, and each of them costs some time by itself."""


class LocalRunner:
    """Runs a handler in the caller's process, with its state in memory: for programs that answer requests, such as
    `amadou window-node`. There is no watermark, so no timer fires.

    :param name: the name in errors
    :param handler: the handler
    """

    def __init__(self, name: str, handler: Handler) -> None:
        ports = [spec.name for spec in declared_specs(handler).values() if isinstance(spec, SinkSpec)]
        job = Job(name, handler, {_SOURCE: MemorySource()}, {port: MemorySink() for port in ports})
        self._operator = Operator(job)
        self._keying = Keying(job, _SOURCE, handler.key_event, _GROUPS)
        self._codecs = {port: port_codec(job, port) for port in job.ports}
        self._groups: dict[int, bytes | None] = {}
        """The stored state of each key group."""
        self._operator.open()

    def process(self, record: Any) -> dict[str, list[Any]]:
        """Process a record as a batch.

        :param record: the record for the handler's `key_event`
        :returns: the collected values, by port
        :raises CallbackError: a callback failed; state is as before
        """
        groups: dict[int, bytes | None] = {}
        outputs: dict[str, list[Any]] = {port: [] for port in self._codecs}
        for group, events in self._keying.pack([record], 0).events.items():
            processed = self._operator.process(self._groups.get(group), [Chunk(_SOURCE, b"", events)], None)
            groups[group] = processed.state
            for port, encoded_values in processed.outputs.items():
                outputs[port] += map(self._codecs[port].decode, encoded_values)
        self._groups |= groups
        return outputs

    def keys(self) -> list[Key]:
        """Return the keys that have state."""
        return [key for stored in self._groups.values() for key in KeyGroup(stored).keys()]  # noqa: SIM118

    def close(self) -> None:
        """Let the handler clean up."""
        self._operator.close()
