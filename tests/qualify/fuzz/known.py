"""What is left out of scripts: faults that are known, and what the documentation leaves open.

A script is left out where what it gives would depend on one of these, unless it is switched on (`--with NAME`): the
model then follows the rule, and a fault shows as a difference.
"""

from collections.abc import Set

import attrs


@attrs.frozen
class Known:
    """What is left out.

    :param is_fault: `False` if the documentation does not say what is right
    """

    name: str
    is_fault: bool
    reason: str


class LeftOut(Exception):  # noqa: N818 - it ends a script, and is no error
    """The script meets something that is left out."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.name = name


ALL = {
    known.name: known
    for known in (
        Known(
            "lost-at-once",
            False,
            "whether a test run that continues from a snapshot or savepoint, or after a restart, shows in-memory "
            "windows before its first batch",
        ),
    )
}


class Rules:
    """Which of these are switched on.

    :raises ValueError: a name is unknown
    """

    def __init__(self, on: Set[str] = frozenset()) -> None:
        unknown = sorted(on - ALL.keys())
        if unknown:
            raise ValueError(f"unknown: {', '.join(unknown)}; use names of {', '.join(ALL)}")
        self.on = frozenset(on)

    def meets(self, name: str) -> None:
        """A script depends on something that is left out.

        :raises LeftOut: it is not switched on
        """
        assert name in ALL, name
        if name not in self.on:
            raise LeftOut(name)
