"""The content of replies, made from the values that the handler collected."""

from collections.abc import Iterable, Mapping
from typing import Any, Final, TypeAlias

from amadou_plugins.window_node._errors import MessageError
from amadou_plugins.window_node._handler import Added, Closed, Listed, Numbered, Refused
from amadou_plugins.window_node._requests import ListWindows, ProcessWindow
from amadou_plugins.window_node._window import Window, window

_SEVERAL: Final = {ProcessWindow: "window_result", ListWindows: "windows"}
"""The requests whose replies list any number of windows, and the types of these replies."""
Answer: TypeAlias = tuple[str, dict[str, Any]] | MessageError
"""The type of a reply and the rest of its body, or the error to reply with."""


def answers(requests: Iterable[Numbered], collected: Mapping[str, list[Any]]) -> dict[int, Answer]:
    """Return the answer to each request by its number.

    :param collected: the values of the handler's ports
    """
    made: dict[int, Answer] = {}
    several: dict[int, list[dict[str, Any]]] = {}
    """The windows of a reply that may list several."""
    for number, request in requests:
        kind = _SEVERAL.get(type(request))
        if kind is not None:
            several[number] = []
            made[number] = kind, {"windows": several[number]}
    for added in _in_order(collected["added"]):
        told = _window(added).told
        if not several:
            made |= dict.fromkeys(added.requests, ("assigned", told))
            continue
        results: dict[int, list[Any]] = {}
        for number, event in zip(added.requests, added.events, strict=True):
            if number in several:
                results.setdefault(number, []).append(event)
            else:
                made[number] = "assigned", told
        for number, events in results.items():
            several[number].append({"window_id": told["window_id"], "count": len(events), "events": events})
    for closed in collected["closed"]:
        made[closed.request] = "closed", {**_window(closed).told, "count": len(closed.events), "events": closed.events}
    for refused in collected["refused"]:
        made[refused.request] = _refusal(refused)
    for listed in _in_order(collected["listed"]):
        several[listed.request].append(
            {**_window(listed).told, "window_size_ms": listed.size, "count": listed.count},
        )
    return made


def _in_order(collected: list[Any]) -> list[Any]:
    return sorted(collected, key=lambda each: (each.start, each.size))


def _window(collected: Added | Closed | Listed) -> Window:
    return window(collected.start // collected.size, collected.size)


def _refusal(refused: Refused) -> MessageError:
    if refused.size is None and refused.sizes:
        sizes = ", ".join(map(str, sorted(refused.sizes)))
        told = f"several windows have this id: say window_size_ms, which may be {sizes}"
        return MessageError("ambiguous_window", told)
    size = "" if refused.size is None else f" and of {refused.size} ms"
    return MessageError("unknown_window", f"no window of this id{size} is open")
