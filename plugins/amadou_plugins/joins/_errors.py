from amadou import AmadouError


class JoinSourceError(AmadouError):
    """A join received an event from a source that is neither its left nor its right source.

    :param join: the join's name
    :param source: the event's source; `None` if the event was added outside `on_event`
    :param expected: names of the left and the right source
    """

    def __init__(self, join: str, source: str | None, expected: tuple[str, str]) -> None:
        self.join = join
        self.source = source
        self.expected = expected
        given = "an event outside on_event" if source is None else f"an event from the source {source!r}"
        left, right = expected
        super().__init__(
            f"the join {join!r} received {given}, but accepts only events from {left!r} (left) and {right!r} (right): "
            "add only events from these two sources, in on_event, or correct the names in left= and right="
        )
