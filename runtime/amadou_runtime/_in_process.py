"""A handler inside a program of one's own, played by the operator core."""

from typing import Any, Final

from amadou import Handler, Job, Key, MemorySink, MemorySource, SinkSpec
from amadou_runtime._events import Chunk
from amadou_runtime._group import KeyGroup
from amadou_runtime._keying import Keying
from amadou_runtime._operator import Operator
from amadou_runtime._ports import port_codec

_SOURCE: Final = "records"
_GROUPS: Final = 64
"""How many key groups there are: a batch loads and stores those that it touches, and each costs some time by itself."""


class InProcess:
    """A handler inside a program of one's own, with its state in this process: for programs that answer what they are
    asked, such as `amadou window-node`. There is no watermark, so that no timer fires.

    :param name: names it in errors
    :param handler: the handler
    """

    def __init__(self, name: str, handler: Handler) -> None:
        ports = [spec.name for spec in vars(type(handler)).values() if isinstance(spec, SinkSpec)]
        job = Job(name, handler, {_SOURCE: MemorySource()}, {port: MemorySink() for port in ports})
        self._operator = Operator(job)
        self._keying = Keying(job, _SOURCE, handler.key_event, _GROUPS)
        self._codecs = {port: port_codec(job, port) for port in job.ports}
        self._states: dict[int, bytes | None] = {}
        self._operator.open()

    def play(self, record: Any) -> dict[str, list[Any]]:
        """Play a record as a batch.

        :param record: what the handler's `key_event` takes
        :returns: what was collected, by port
        :raises CallbackError: a callback failed; state is as before
        """
        states: dict[int, bytes | None] = {}
        outputs: dict[str, list[Any]] = {port: [] for port in self._codecs}
        for group, events in self._keying.pack([record], 0).events.items():
            played = self._operator.process(self._states.get(group), [Chunk(_SOURCE, b"", events)], None)
            states[group] = played.state
            for port, wires in played.outputs.items():
                outputs[port] += map(self._codecs[port].decode, wires)
        self._states |= states
        return outputs

    def keys(self) -> list[Key]:
        """The keys that have state."""
        return [key for state in self._states.values() for key in KeyGroup(state).keys()]  # noqa: SIM118
