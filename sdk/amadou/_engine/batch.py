"""The data that all subjects of a key group share while a batch is processed."""

from collections.abc import Callable, Collection, Mapping, Set
from datetime import datetime
from typing import Any, Final, Literal, Protocol

import attrs

from amadou._engine.timers import Timers
from amadou._handler.event import Key, KeyedEvent
from amadou._plugins.letter_report import LateEventReport
from amadou._state.state_table import StateTable
from amadou.event_time import from_micros
from amadou.text import shown_value

_MOST_LATE: Final = 3
"""Maximum number of late events that a batch of a key group reports."""
_SHOWN: Final = 2_000


class Port:
    """The encoded values that were collected into a port, and the functions that encode values for this port.

    :param codec: the port's `Codec`. If the codec defines `encode_rows`, this method encodes many values in one call;
        each value is passed as a tuple of its fields
    """

    __slots__ = ("encode", "encode_rows", "encoded_values")

    def __init__(self, codec: Any) -> None:
        self.encode: Callable[[Any], Any] = codec.encode
        self.encode_rows: Callable[[list[tuple[Any, ...]]], list[Any]] | None = getattr(codec, "encode_rows", None)
        self.encoded_values: list[Any] = []

    def collect(self, key: Key | None, timestamp: datetime, value: Any) -> None:
        """Encode a value, and add it.

        :param key: the key of the callback that collects the value; `None` if it has no key
        :param timestamp: the time of this callback's event or timer
        """
        self.encoded_values.append(self.encode(value))


class FeedingPort(Port):
    """A port that feeds other stages. Its values are collected with their origin: as lists of the callback's key, the
    callback's time and the encoded value.

    :param codec: the codec for the values that are passed to other stages
    :param written: the port with the values for the port's sinks; `None` if the port does not have a sink
    """

    __slots__ = ("written",)

    def __init__(self, codec: Any, written: Port | None) -> None:
        super().__init__(codec)
        self.encode_rows = None
        self.written = written

    def collect(self, key: Key | None, timestamp: datetime, value: Any) -> None:
        if self.written is not None:
            self.written.collect(key, timestamp, value)
        self.encoded_values.append([key, timestamp, self.encode(value)])


def fed_output(port: str) -> str:
    """Return the name under which the values of a port for other stages are among the outputs of a batch."""
    return f"{port} →"


class Keeper(Protocol):
    """Checks that components, including components created at run time, can read the stored state."""

    def take(self, component: Any, key: Key) -> None:
        """Check that a component can read the state stored under its name, and let the component use this state.

        :param key: the current key
        :raises StateDecodeError: the component cannot read the state
        """

    def noun_of(self, name: str) -> str:
        """Return the noun for messages about the component that stored state under a name, such as `window`."""


@attrs.frozen
class BeforeEnd:
    """How far a stage was before its watermark reached the maximum timestamp, such as in a flush.

    :param watermark: its watermark in microseconds; `None` if it had none
    :param newest: the newest event time of the job's sources, in microseconds; `None` if it is not known
    """

    watermark: int | None
    newest: int | None


class Batch:
    """The data that all subjects of one key group share while a batch is processed.

    :param handler: the handler
    :param tables: the state tables, by spec name
    :param touched: the keys that the batch processes, such as keys with events or due timers
    :param components: the known components, by name
    :param job: the job's name
    :param keeper: checks that components can read the state stored under their names; `None` for no check
    """

    __slots__ = (
        "at_watermark",
        "before_end",
        "chained",
        "chains",
        "components",
        "counts",
        "dropped",
        "dropped_events",
        "fed_by",
        "fired",
        "firing_micros",
        "handler",
        "has_timer_callback",
        "is_replay",
        "job",
        "keeper",
        "late_events",
        "lookup_errors",
        "lookups",
        "needed_by",
        "outputs",
        "ports",
        "references",
        "since",
        "stored",
        "tables",
        "timers",
        "touched",
        "watermark",
        "watermark_micros",
    )

    def __init__(
        self,
        handler: Any,
        has_timer_callback: bool,
        ports: dict[str, Port],
        watermark_micros: int | None,
        tables: dict[str, StateTable],
        timers: Timers,
        touched: Collection[Key],
        components: dict[str, Any] | None = None,
        job: str = "",
        keeper: Keeper | None = None,
    ) -> None:
        self.handler = handler
        self.keeper = keeper
        self.components = {} if components is None else components
        self.job = job
        self.counts: dict[str, int] = {}
        self.dropped = 0
        """Number of events dropped because they arrived too late."""
        self.dropped_events: dict[int, KeyedEvent[Any]] = {}
        """Events that this call of `on_event` has dropped, by identity."""
        self.late_events: list[LateEventReport] = []
        """A few of the late events that were dropped or diverted."""
        self.lookups: dict[str, dict[Any, Any]] = {}
        """The answers of lookups, by lookup and key. An answer that could not be fetched is an exception."""
        self.lookup_errors: dict[str, str] = {}
        """By lookup, the error of its function `key` on an event."""
        self.needed_by: Mapping[str, Mapping[Any, Set[Key]]] | None = None
        """In test runs, by lookup and key of an answer: the keys of the events that need it. Otherwise `None`."""
        self.references: Mapping[str, Any] = {}
        """The references by name; see `ReferenceSpec`. A reference has the methods of a mapping from keys to packed
        values."""
        self.firing_micros: int | None = None
        """The time of the timers that are firing, in microseconds; `None` if no timer is firing."""
        self.at_watermark = False
        """`True` while callbacks run whose time is `last_watermark`, such as `on_reference_changed`."""
        self.since = watermark_micros
        """A time in microseconds: no callback that is still to come in the batch has an earlier time. `None` before the
        first watermark."""
        self.before_end: BeforeEnd | None = None
        """How far the job was before a flush; `None` if the watermark is not at the maximum timestamp."""
        self.chained: list[int] = []
        """Times of timers that the current timer callback has set and that are due in this batch, in microseconds."""
        self.chains: dict[Key, int] = {}
        """For each key, the number of timers that its timer callbacks have set for this batch."""
        self.fired: list[str] | None = None
        """Names of the current key's components whose timers have fired at `firing_micros`. The last component is
        firing now. `None` if no component is firing.
        """
        self.stored: set[str] = set()
        """Names of the components that have stored state in the current callback; used while timers fire."""
        self.fed_by: dict[Key, dict[str, frozenset[str]]] = {}
        """For each key, the components that received values from other components during a flush. The name of each
        receiver is mapped to the names of the components that fed the receiver, directly or through others.
        """
        self.is_replay = False
        """`True` while dead letters are replayed."""
        self.has_timer_callback = has_timer_callback
        self.ports = ports
        """The ports into which values are collected, by name."""
        self.outputs: dict[str, Port] = {}
        """The ports with the results of the batch, by output: those with the values for sinks by name, and those with
        the values for other stages by `fed_output`."""
        for name, port in ports.items():
            if not isinstance(port, FeedingPort):
                self.outputs[name] = port
                continue
            if port.written is not None:
                self.outputs[name] = port.written
            self.outputs[fed_output(name)] = port
        self.watermark_micros = watermark_micros
        self.watermark = None if watermark_micros is None else from_micros(watermark_micros)
        self.tables = tables
        self.timers = timers
        self.touched = touched

    @property
    def last_watermark(self) -> int | None:
        """The watermark in microseconds, but in a flush the one before it; `None` if there is none."""
        return self.watermark_micros if self.before_end is None else self.before_end.watermark

    def report_late(
        self, outcome: Literal["dropped", "diverted"], source: str, event: tuple[Key, datetime, Any], by: str = ""
    ) -> None:
        """Add an event to `late_events`, unless there are enough; see `LateEventReport`."""
        if len(self.late_events) >= _MOST_LATE or self.watermark is None:
            return
        key, timestamp, value = event
        self.late_events.append(
            LateEventReport(
                outcome, source, shown_value(key, _SHOWN), timestamp, shown_value(value, _SHOWN), self.watermark, by
            )
        )
