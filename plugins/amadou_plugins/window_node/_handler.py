"""The handler that implements the windows of a node. The handler's keys are the start times of windows."""

from collections.abc import Iterable
from functools import lru_cache
from itertools import chain
from typing import Any, TypeAlias

import attrs

from amadou import Handler, KeyedEvent, ListSpec, SinkSpec, Subject, from_millis
from amadou_plugins.window_node._requests import Assign, Close, ProcessWindow, Request

_ADDING = (Assign, ProcessWindow)
Numbered: TypeAlias = tuple[int, Request]
"""A request with its number. The values that the handler collects refer to requests by number."""


# Without an element type, a list is encoded as a whole rather than element by element.
@attrs.frozen
class Added:
    """Events were added to a window.

    :param requests: number of each event's request
    :param events: id of each event
    """

    start: int
    size: int
    requests: list  # type: ignore[type-arg]
    events: list  # type: ignore[type-arg]


@attrs.frozen
class Closed:
    """A window was closed."""

    request: int
    start: int
    size: int
    events: list  # type: ignore[type-arg]


@attrs.frozen
class Refused:
    """A window was not closed: no window matches the request, or more than one does.

    :param size: the requested size; `None` if the request has no size
    :param sizes: sizes of the windows with the requested start
    """

    request: int
    size: int | None
    sizes: list[int]


@attrs.frozen
class Listed:
    """An open window and its number of events."""

    request: int
    start: int
    size: int
    count: int


class MessageWindows(Handler):
    """Tumbling windows that messages open and close.

    A key is the start time of windows, in milliseconds since 1970. The key's state contains the windows that start at
    this time, one per size. A record contains the requests that arrived together. Consecutive requests for a start time
    become a single event if they add events to the same window.
    """

    sizes = ListSpec(int)
    added = SinkSpec(Added)
    closed = SinkSpec(Closed)
    refused = SinkSpec(Refused)
    listed = SinkSpec(Listed)

    def key_event(self, record: Iterable[Numbered]) -> list[KeyedEvent[list[Any]]]:
        keyed: list[KeyedEvent[list[Any]]] = []
        newest: dict[int, list[Any]] = {}
        for number, request in record:
            if isinstance(request, _ADDING):
                size = request.size
                for start, ids in request.events.items():
                    value = newest.get(start)
                    if value is None or value[0] != "add" or value[1] != size:
                        value = newest[start] = ["add", size, [], []]
                        keyed.append(KeyedEvent(start, from_millis(start), value))
                    if len(ids) == 1:
                        value[2].append(number)
                        value[3].append(ids[0])
                    else:
                        value[2] += [number] * len(ids)
                        value[3] += ids
            elif isinstance(request, Close):
                value = newest[request.start] = ["close", number, request.size]
                keyed.append(KeyedEvent(request.start, from_millis(request.start), value))
            else:
                for start in request.starts:
                    value = newest[start] = ["list", number]
                    keyed.append(KeyedEvent(start, from_millis(start), value))
        return keyed

    def on_event(self, subject: Subject, event: KeyedEvent[list[Any]]) -> None:
        match event.value:
            case ["add", size, requests, events]:
                self._add(subject, size, requests, events)
            case ["close", request, size]:
                self._close(subject, request, size)
            case ["list", request]:
                self._list(subject, request)

    def _add(self, subject: Subject, size: int, requests: list[int], events: list[Any]) -> None:
        kept = _events(size).state_for(subject)
        if not kept:
            self.sizes.state_for(subject).append(size)
        kept.append(events)
        self.added.collect(subject, Added(_start(subject), size, requests, events))

    def _close(self, subject: Subject, request: int, size: int | None) -> None:
        sizes = self.sizes.state_for(subject)
        if size is None and len(sizes) == 1:
            size = sizes[0]
        if size is None or size not in sizes:
            self.refused.collect(subject, Refused(request, size, list(sizes)))
            return
        sizes.remove(size)
        kept = _events(size).state_for(subject)
        self.closed.collect(subject, Closed(request, _start(subject), size, list(chain.from_iterable(kept))))
        kept.clear()

    def _list(self, subject: Subject, request: int) -> None:
        for size in self.sizes.state_for(subject):
            count = sum(map(len, _events(size).state_for(subject)))
            self.listed.collect(subject, Listed(request, _start(subject), size, count))


@lru_cache(1000)
def _events(size: int) -> ListSpec[list[Any]]:
    """Return the spec for the event ids in windows of one size. Each item is a list of ids that were added together."""
    return ListSpec(list, name=f"events of {size}")


def _start(subject: Subject) -> int:
    assert isinstance(subject.key, int)
    return subject.key
