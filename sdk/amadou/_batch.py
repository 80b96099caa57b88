"""The data that all subjects of a key group share while a batch is processed."""

from collections.abc import Callable, Collection
from typing import Any, Protocol

from amadou._event import Key, KeyedEvent
from amadou._state_table import StateTable
from amadou._timers import Timers
from amadou.event_time import from_micros


class Port:
    """The encoded values collected into one port, and the functions that encode them.

    :param codec: the port's `Codec`; may have `encode_rows`, which encodes many tuples of the type's fields in one call
    """

    __slots__ = ("encode", "encode_rows", "encoded_values")

    def __init__(self, codec: Any) -> None:
        self.encode: Callable[[Any], Any] = codec.encode
        self.encode_rows: Callable[[list[tuple[Any, ...]]], list[Any]] | None = getattr(codec, "encode_rows", None)
        self.encoded_values: list[Any] = []


class Keeper(Protocol):
    """Knows the stored state of components, including those that were made at run time."""

    def take(self, component: Any, key: Key) -> None:
        """Let a component use the state that is stored under its name.

        :param key: the current key
        :raises StateDecodeError: the component cannot read the state
        """

    def noun_of(self, name: str) -> str:
        """Return the noun in messages for the component that stored state under a name."""


class Batch:
    """The data that all subjects of one key group share while a batch is processed.

    :param handler: the handler
    :param tables: state by spec name
    :param touched: the keys that have events or due timers
    :param components: the known components, by name
    :param job: the job's name
    :param keeper: checks components against the state stored under their names; without it any component may use it
    """

    __slots__ = (
        "components",
        "counts",
        "dropped",
        "fed_by",
        "fired",
        "firing_micros",
        "handler",
        "has_timer_callback",
        "is_replay",
        "job",
        "keeper",
        "last_dropped",
        "ports",
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
        """Number of events dropped because they came too late."""
        self.last_dropped: KeyedEvent[Any] | None = None
        self.firing_micros: int | None = None
        """The time of the timers that fire now, in microseconds; `None` while none do."""
        self.fired: list[str] | None = None
        """The current key's components that fired at that time; the last one is the component that fires now, if any.
        """
        self.stored: set[str] = set()
        """The components that stored state since the current callback began, while timers fire."""
        self.fed_by: dict[Key, dict[str, frozenset[str]]] = {}
        """The components that fed others at a flush, directly or through others, by key and receiver."""
        self.is_replay = False
        """`True` while callbacks that failed in earlier batches are replayed."""
        self.has_timer_callback = has_timer_callback
        self.ports = ports
        self.watermark_micros = watermark_micros
        self.watermark = None if watermark_micros is None else from_micros(watermark_micros)
        self.tables = tables
        self.timers = timers
        self.touched = touched
