"""What all subjects of a key group share while a batch is processed."""

from collections.abc import Callable, Collection
from typing import Any, Protocol

from amadou._event import Key, KeyedEvent
from amadou._state_table import StateTable
from amadou._timers import Timers
from amadou.event_time import from_micros


class Port:
    """What has been collected into one port, encoded, and how values get there.

    :param codec: the port's `Codec`; may have `encode_rows`, which encodes many tuples of the type's fields in one call
    """

    __slots__ = ("encode", "encode_rows", "encoded_values")

    def __init__(self, codec: Any) -> None:
        self.encode: Callable[[Any], Any] = codec.encode
        self.encode_rows: Callable[[list[tuple[Any, ...]]], list[Any]] | None = getattr(codec, "encode_rows", None)
        self.encoded_values: list[Any] = []


class Keeper(Protocol):
    """Knows what components stored, also those that were made at run time."""

    def take(self, component: Any, key: Key) -> None:
        """Let a component have what is stored under its name.

        :param key: the key in hand
        :raises StateDecodeError: it cannot read it
        """

    def noun_of(self, name: str) -> str:
        """What messages call the component that stored something under a name."""


class Batch:
    """What all subjects of one key group share while a batch is processed.

    :param handler: the handler
    :param columns: state by spec name
    :param touched: the keys that have events or due timers
    :param components: the components that are known, by name
    :param job: the job's name
    :param keeper: lets components have what is stored under their names; anything without it
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
        """How many events were dropped because they came too late."""
        self.last_dropped: KeyedEvent[Any] | None = None
        self.firing_micros: int | None = None
        """The time of the timers in hand, in microseconds; `None` while there are none."""
        self.fired: list[str] | None = None
        """The components of the key in hand that were woken at that time, the one in hand last, if there is one."""
        self.stored: set[str] = set()
        """The components that stored something since the callback in hand began, while timers fire."""
        self.fed_by: dict[Key, dict[str, frozenset[str]]] = {}
        """The components that gave something to others at a flush, also by way of others, by key and taker."""
        self.is_replay = False
        """Whether callbacks are played again that failed in earlier batches."""
        self.has_timer_callback = has_timer_callback
        self.ports = ports
        self.watermark_micros = watermark_micros
        self.watermark = None if watermark_micros is None else from_micros(watermark_micros)
        self.tables = tables
        self.timers = timers
        self.touched = touched
