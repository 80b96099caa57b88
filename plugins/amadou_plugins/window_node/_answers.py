"""Creates the bodies of replies from the values that the handler collected."""

from collections.abc import Iterable, Mapping
from typing import Any, Final, TypeAlias

from amadou_plugins.window_node._errors import MessageError
from amadou_plugins.window_node._handler import Added, Closed, Listed, Numbered, Refused
from amadou_plugins.window_node._requests import ListWindows, ProcessWindow
from amadou_plugins.window_node._window import Window, window

_SEVERAL: Final = {ProcessWindow: "window_result", ListWindows: "windows"}
"""Reply types of the requests whose replies list windows, by request type."""
Answer: TypeAlias = tuple[str, dict[str, Any]] | MessageError
"""A reply's type and the other fields of its body, or the error to reply with."""


def answers(requests: Iterable[Numbered], collected: Mapping[str, list[Any]]) -> dict[int, Answer]:
    """Return the answers to requests, by request number.

    :param collected: values that the handler collected, by port
    """
    made: dict[int, Answer] = {}
    several: dict[int, list[dict[str, Any]]] = {}
    """Windows to list in each reply that lists windows, by request number."""
    for number, request in requests:
        kind = _SEVERAL.get(type(request))
        if kind is not None:
            several[number] = []
            made[number] = kind, {"windows": several[number]}
    for added in _in_order(collected["added"]):
        fields = _window(added).fields
        if not several:
            made |= dict.fromkeys(added.requests, ("assigned", fields))
            continue
        results: dict[int, list[Any]] = {}
        for number, event in zip(added.requests, added.events, strict=True):
            if number in several:
                results.setdefault(number, []).append(event)
            else:
                made[number] = "assigned", fields
        for number, events in results.items():
            several[number].append({"window_id": fields["window_id"], "count": len(events), "events": events})
    for closed in collected["closed"]:
        made[closed.request] = (
            "closed",
            {**_window(closed).fields, "count": len(closed.events), "events": closed.events},
        )
    for refused in collected["refused"]:
        made[refused.request] = _refusal(refused)
    for listed in _in_order(collected["listed"]):
        several[listed.request].append(
            {**_window(listed).fields, "window_size_ms": listed.size, "count": listed.count},
        )
    return made


def _in_order(collected: list[Any]) -> list[Any]:
    return sorted(collected, key=lambda each: (each.start, each.size))


def _window(collected: Added | Closed | Listed) -> Window:
    return window(collected.start // collected.size, collected.size)


def _refusal(refused: Refused) -> MessageError:
    if refused.size is None and refused.sizes:
        sizes = ", ".join(map(str, sorted(refused.sizes)))
        problem = f"more than one window has this id: set window_size_ms to one of {sizes}"
        return MessageError("ambiguous_window", problem)
    size = "" if refused.size is None else f" and a size of {refused.size} ms"
    return MessageError("unknown_window", f"no window with this id{size} is open: send a list message to see open ones")
