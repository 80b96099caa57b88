"""SDK classes and functions for engines. An engine is a runtime that calls handlers, such as `amadou_runtime`.

Handlers, components and connectors use only `amadou` and its other public modules.

- The current batch: `Batch`, `batch_of`, `Port`, `StateTable`, `Timers`; `KeylessSubject` for callbacks without a key.
- Calling a handler: `callbacks_of` prevents callbacks from changing the handler's attributes; `known_components`
  records new components.
- Encoding: `pack` and `unpack` define the format of all data that is stored or sent between processes.
- Checking: `check_key`, `declared_specs`, `params_of`.
"""

from amadou._batch import Batch, BeforeEnd, FeedingPort, Port, fed_output
from amadou._component import known_components
from amadou._construction import resolved_annotations
from amadou._encoding import (
    Envelope,
    StoredObject,
    know_types,
    pack,
    type_reference,
    unpack,
    unpack_all,
    unpack_stored,
    unpack_times,
)
from amadou._event import check_key, keyed_events
from amadou._handler import callbacks_of
from amadou._in_place import Watch
from amadou._job import MOST_KEY_GROUPS
from amadou._letters import DEAD_LETTERS, LATE_EVENTS
from amadou._markers import PROJECT
from amadou._params import params_of
from amadou._port import declared_specs
from amadou._reference import ON_CHANGE, is_watching
from amadou._report import shown_bytes, shown_watermark, sum_counts
from amadou._secret import HIDDEN, names_secret, redacted
from amadou._spec import MISSING
from amadou._stage import FedSource
from amadou._state_table import StateTable
from amadou._subject import KeylessSubject, batch_of
from amadou._time import clock_time
from amadou._timers import Timers

__all__ = [
    "DEAD_LETTERS",
    "HIDDEN",
    "LATE_EVENTS",
    "MISSING",
    "MOST_KEY_GROUPS",
    "ON_CHANGE",
    "PROJECT",
    "Batch",
    "BeforeEnd",
    "Envelope",
    "FedSource",
    "FeedingPort",
    "KeylessSubject",
    "Port",
    "StateTable",
    "StoredObject",
    "Timers",
    "Watch",
    "batch_of",
    "callbacks_of",
    "check_key",
    "clock_time",
    "declared_specs",
    "fed_output",
    "is_watching",
    "keyed_events",
    "know_types",
    "known_components",
    "names_secret",
    "pack",
    "params_of",
    "redacted",
    "resolved_annotations",
    "shown_bytes",
    "shown_watermark",
    "sum_counts",
    "type_reference",
    "unpack",
    "unpack_all",
    "unpack_stored",
    "unpack_times",
]
