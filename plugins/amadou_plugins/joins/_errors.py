from amadou.errors import AmadouError, error_class


@error_class
class JoinSourceError(AmadouError):
    """A join received an event that is neither from its left source nor from its right source.

    :param join: the join's name
    :param source: the event's source; `None` if the event was added outside `on_event`
    :param expected: names of the left and the right source
    """

    join: str
    source: str | None
    expected: tuple[str, str]

    def _message(self) -> str:
        left, right = self.expected
        only = f"accepts only events from {left!r} (left) and {right!r} (right)"
        why = f"an event from the source {self.source!r}, but {only}"
        advice = "add only events from these two sources, or correct left= and right="
        if self.source is None:
            why, advice = "an event outside on_event", "add events only in on_event"
        return f"the join {self.join!r} received {why}: {advice}"
