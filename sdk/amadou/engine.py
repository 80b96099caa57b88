"""SDK classes and functions for engines. An engine is a runtime that calls handlers, such as `amadou_runtime`.

Handlers, components and connectors use only `amadou` and its other public modules.

- The current batch: `Batch`, `batch_of`, `Port`, `StateTable`, `Timers`; `KeylessSubject` for callbacks without a key.
- Calling a handler: `callbacks_of` prevents callbacks from changing the handler's attributes; `known_components`
  records new components.
- Encoding: `pack` and `unpack` define the format of all data that is stored or sent between processes.
- Checking: `check_key`, `declared_specs`, `params_of`.
"""

from amadou._components.component import known_components
from amadou._components.construction import resolved_annotations
from amadou._connectors.secret import HIDDEN, names_secret, redacted
from amadou._engine.batch import Batch, BeforeEnd, FeedingPort, Port, fed_output
from amadou._engine.time import clock_time
from amadou._engine.timers import Timers
from amadou._handler.event import check_key, keyed_events
from amadou._handler.handler import callbacks_of
from amadou._handler.letters import DEAD_LETTERS, LATE_EVENTS
from amadou._handler.port import declared_specs
from amadou._handler.reference import ON_CHANGE, is_watching
from amadou._handler.subject import KeylessSubject, batch_of
from amadou._jobs.checks.settings import MOST_KEY_GROUPS
from amadou._jobs.params import params_of
from amadou._jobs.stage import FedSource
from amadou._plugins.markers import PROJECT
from amadou._plugins.report import shown_bytes, shown_watermark, sum_counts
from amadou._state.encoding import (
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
from amadou._state.in_place import Watch
from amadou._state.spec import MISSING
from amadou._state.state_table import StateTable

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
