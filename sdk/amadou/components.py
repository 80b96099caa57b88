"""What windows, joins and other components are made of, and vectorised handlers.

A component is state of a handler with behaviour of its own: see `Component`. The windows and joins in `amadou_plugins`
use only these names and those of `amadou`.
"""

from amadou._components.component import Component, ComponentCallbacks, Invoke
from amadou._components.component_state import ComponentState, KeyGroupState, Plain
from amadou._handler.event import in_key_order
from amadou._handler.event_columns import EventColumns
from amadou._handler.handler import check_ran
from amadou._handler.vectorized import VectorizedHandler
from amadou._state.copying import copied, copied_if_possible

__all__ = [
    "Component",
    "ComponentCallbacks",
    "ComponentState",
    "EventColumns",
    "Invoke",
    "KeyGroupState",
    "Plain",
    "VectorizedHandler",
    "check_ran",
    "copied",
    "copied_if_possible",
    "in_key_order",
]
