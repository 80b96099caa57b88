from amadou import AmadouError


class JoinSourceError(AmadouError):
    """A join received an event that is neither from its left source nor from its right source.

    :param join: the join's name
    :param source: the event's source; `None` if the event was added outside `on_event`
    :param expected: names of the left and the right source
    """

    def __init__(self, join: str, source: str | None, expected: tuple[str, str]) -> None:
        self.join = join
        self.source = source
        self.expected = expected
        left, right = expected
        why = f"an event from the source {source!r}, but accepts only events from {left!r} (left) and {right!r} (right)"
        advice = "add only events from these two sources, or correct left= and right="
        if source is None:
            why, advice = "an event outside on_event", "add events only in on_event"
        super().__init__(f"the join {join!r} received {why}: {advice}")
