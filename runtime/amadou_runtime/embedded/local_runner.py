"""Runs a handler inside another program."""

from typing import Any, Final

from amadou import Handler, Job, Key, MemorySink, MemorySource, SinkSpec
from amadou.engine import declared_specs
from amadou_runtime.core.events import Chunk
from amadou_runtime.core.key_group import KeyGroup
from amadou_runtime.core.keying import Keying
from amadou_runtime.core.operator import GroupBatch, Operator
from amadou_runtime.core.ports import port_codec

_SOURCE: Final = "records"
_GROUPS: Final = 64
"""Number of key groups. Each batch loads and stores only the key groups of its events, at a fixed cost per group."""


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
        self._keying = Keying(job, _SOURCE, handler.key_event, _GROUPS)
        self._codecs = {port: port_codec(job, port) for port in job.ports}
        self._groups: dict[int, bytes | None] = {}
        """The stored form of each key group."""
        self._operator.open()

    def process(self, record: Any) -> dict[str, list[Any]]:
        """Process one record as a batch.

        :param record: the record to pass to the handler's `key_event`
        :returns: the values that the handler collected, by port
        :raises CallbackError: a callback failed; the state is unchanged
        """
        groups: dict[int, bytes | None] = {}
        outputs: dict[str, list[Any]] = {port: [] for port in self._codecs}
        for group, events in self._keying.pack([record], 0).events.items():
            processed = self._operator.process(GroupBatch(self._groups.get(group), [Chunk(_SOURCE, b"", events)], None))
            groups[group] = processed.state
            for port, encoded_values in processed.outputs.items():
                outputs[port] += map(self._codecs[port].decode, encoded_values)
        self._groups |= groups
        return outputs

    def keys(self) -> list[Key]:
        """Return the keys that have state or timers."""
        return [key for stored in self._groups.values() for key in KeyGroup(stored).keys()]  # noqa: SIM118

    def close(self) -> None:
        """Call the handler's `close`."""
        self._operator.close()
