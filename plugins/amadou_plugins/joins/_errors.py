from amadou import AmadouError


class JoinSourceError(AmadouError):
    """A join got an event of a source that is neither of its two.

    :param join: the join's name
    :param source: the event's source, `None` outside of `on_event`
    :param expected: the left and the right source
    """

    def __init__(self, join: str, source: str | None, expected: tuple[str, str]) -> None:
        self.join = join
        self.source = source
        self.expected = expected
        given = "an event outside of on_event" if source is None else f"an event of the source {source!r}"
        left, right = expected
        super().__init__(
            f"the join {join!r} was given {given}: it takes those of {left!r} (left) and {right!r} (right). Give it no "
            "others, or name the sources as the job does"
        )
