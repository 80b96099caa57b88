"""Reads requests from the bodies of messages, and checks the requests before any of them is processed."""

from collections.abc import Callable
from functools import partial
from typing import Any, Final, NamedTuple, TypeAlias

from amadou import from_millis
from amadou.errors import NaiveTimestampError
from amadou.event_time import from_text, to_millis
from amadou.text import shown_value
from amadou_plugins.window_node._errors import MessageError
from amadou_plugins.window_node._window import start_of, window

EventId: TypeAlias = int | str


# Named tuples rather than attrs classes, because one is created for every message.
class Assign(NamedTuple):
    """Add events to one window, and reply with this window.

    :param size: the window's size in milliseconds
    :param events: ids of the events, by the start of their window in milliseconds since 1970
    """

    size: int
    events: dict[int, list[EventId]]


# takes half as long as calling the class
_new_assign: Callable[[Any], Assign] = partial(tuple.__new__, Assign)


class ProcessWindow(NamedTuple):
    """Add events to their windows, and reply with the events that were added to each window. The parameters are the
    same as in `Assign`.
    """

    size: int
    events: dict[int, list[EventId]]


class Close(NamedTuple):
    """Remove a window, and reply with its events.

    :param start: start of the window, in milliseconds since 1970
    :param size: size of the window in milliseconds; `None` for the only window with this start
    """

    start: int
    size: int | None


class ListWindows(NamedTuple):
    """Reply with the open windows.

    :param starts: the times at which open windows can start, in milliseconds since 1970
    """

    starts: tuple[int, ...] = ()


Request: TypeAlias = Assign | ProcessWindow | Close | ListWindows


def read_request(body: Any) -> Request:
    """Return the request in the body of a message.

    :raises MessageError: a field is missing or invalid
    """
    if type(body) is not dict:
        raise MessageError("bad_message", f"the body of a message must be a JSON object, not {_shown(body)}")
    kind = body.get("type")
    reader = _READERS.get(kind) if type(kind) is str else None
    if reader is None:
        known = f"use one of {', '.join(_READERS)}"
        if kind is None:
            raise MessageError("missing_field", f"type is missing: {known}")
        raise MessageError("unknown_type", f"there is no message type {_shown(kind)}: {known}")
    return reader(body)


def _assign(body: dict[str, Any]) -> Assign:
    size = _size(body.get("window_size_ms"))
    events = _events(body.get("events"), size)
    if len(events) != 1:
        problem = "these belong to more than one: use process_window" if events else "events is empty: add an event"
        raise MessageError("bad_events", f"assign needs the events of one window, but {problem}")
    return _new_assign((size, events))


def _process_window(body: dict[str, Any]) -> ProcessWindow:
    size = _size(body.get("window_size_ms"))
    return ProcessWindow(size, _events(body.get("events"), size))


def _close(body: dict[str, Any]) -> Close:
    window_id, size = body.get("window_id"), body.get("window_size_ms")
    if window_id is None:
        raise MessageError("missing_field", "window_id is missing: pass the id of the window to close")
    start = start_of(window_id) if type(window_id) is str else None
    if start is None:
        raise MessageError("bad_window_id", f"window_id must look like window-1705312800000, not {_shown(window_id)}")
    return Close(start, None if size is None else _size(size))


def _list(body: dict[str, Any]) -> ListWindows:
    return ListWindows()


_READERS: Final[dict[str, Callable[[dict[str, Any]], Request]]] = {
    "assign": _assign,
    "process_window": _process_window,
    "close": _close,
    "list": _list,
}


def _size(value: Any) -> int:
    if type(value) is int and value > 0:
        return value
    size = _whole(value)
    if size is not None and size > 0:
        return size
    if value is None:
        raise MessageError("missing_field", "window_size_ms is missing: pass the window size in milliseconds")
    raise MessageError("bad_window_size", f"window_size_ms must be a positive integer, not {_shown(value)}")


def _events(events: Any, size: int) -> dict[int, list[EventId]]:
    """Return the ids of events, by the start of their window in milliseconds since 1970."""
    if type(events) is not list:
        if events is None:
            raise MessageError("missing_field", "events is missing: pass a list of objects with id and timestamp")
        raise MessageError("bad_events", f"events must be a list, not {_shown(events)}")
    found: dict[int, list[EventId]] = {}
    for event in events:
        if type(event) is not dict:
            raise MessageError("bad_events", f"an event must be an object with id and timestamp, not {_shown(event)}")
        event_id = event.get("id")
        if type(event_id) is not int and not (type(event_id) is str and (event_id.isascii() or _is_utf8(event_id))):
            if event_id is None:
                raise MessageError("missing_field", "an event has no id: pass a string or an integer")
            problem = f"an event's id must be a UTF-8 string or an integer of at most 64 bits, not {_shown(event_id)}"
            raise MessageError("bad_events", problem)
        start = window(_millis(event.get("timestamp")) // size, size).start
        ids = found.get(start)
        if ids is None:
            found[start] = [event_id]
        else:
            ids.append(event_id)
    return found


def _is_utf8(text: str) -> bool:
    """Return `True` if a string can be written as UTF-8: it must not contain lone surrogates."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _millis(timestamp: Any) -> int:
    """Return a timestamp in milliseconds since 1970, rounded down."""
    try:
        if type(timestamp) is str:
            return to_millis(from_text(timestamp))
        millis = _whole(timestamp)
        if millis is not None:
            from_millis(millis)
            return millis
    except NaiveTimestampError:
        problem = f"the timestamp {_shown(timestamp)} has no time zone: end it with Z or an offset such as +02:00"
        raise MessageError("bad_timestamp", problem) from None
    except (ValueError, OverflowError):
        pass  # reported below, like any other bad timestamp
    if timestamp is None:
        raise MessageError("missing_field", "an event has no timestamp: pass a string or milliseconds since 1970")
    problem = (
        "a timestamp must be a string such as 2024-01-15T10:00:10Z, or milliseconds since 1970, in the years 1 to 9999"
    )
    raise MessageError("bad_timestamp", f"{problem}, not {_shown(timestamp)}")


def _whole(value: Any) -> int | None:
    """Return a value as an `int` if it is an integer, even one written as a float, such as 5.0. Otherwise, return
    `None`. Large floats are rejected, because the JSON parser reads integers beyond 64 bits as floats.
    """
    if type(value) is float and value.is_integer() and abs(value) < 2**63:
        return int(value)
    return value if type(value) is int else None


def _shown(value: Any) -> str:
    """Return a value as a string for an error message."""
    if type(value) is list or type(value) is dict:
        return "a list" if type(value) is list else "an object"
    return shown_value(value, 80)
