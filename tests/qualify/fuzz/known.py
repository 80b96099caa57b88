"""What is left out of scripts: faults that are known, and what the documentation leaves open.

A script is left out where what it gives would depend on one of these, unless it is switched on (`--with NAME`): the
model then follows the rule, and a fault shows as a difference. A name in `GENERATED` is a feature that the generator
does not use at all unless it is switched on; the others are noticed by the model.
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
            "older-write",
            True,
            "a write with an older time makes state older: it expires although it was written within its ttl "
            "(16 a against 16 b and c)",
        ),
        Known(
            "reference-ttl",
            True,
            "on_reference_changed that reads state with a ttl removes what timers of the same batch still see (16 c)",
        ),
        Known(
            "window-ttl",
            True,
            "a ttl shorter than what closing needs drops windows and unmatched events without a count, and depends on "
            "how the input is cut (21)",
        ),
        Known(
            "idle-beside-port",
            True,
            "beside a port, a source that is idle for exactly its idle_timeout holds the watermark back (3 b, 36 c)",
        ),
        Known("port-reference", True, "a port that feeds a reference holds the watermark back (37 c)"),
        Known(
            "watermark-of-reference",
            True,
            "add_watermark in a stage with a port and a reference takes the reference for a source of events (37 c)",
        ),
        Known(
            "reference-sends",
            False,
            "the time of a value that on_reference_changed collects for another stage, and whether it can be late "
            "(36 a and b speak of events and timers)",
        ),
        Known("divert-first", True, "a window with max_active that diverts an event before the first watermark fails"),
        Known(
            "count-early",
            True,
            "of overlapping count windows only the oldest emits early results, and none if an event closes one "
            "(docstring of CountWindow: a window emits a result after every n of its events)",
        ),
        Known(
            "count-age",
            False,
            "whether the ttl of a count window goes by events before it was empty: they count within a batch, and not "
            "after it (windows.md: ttl)",
        ),
        Known(
            "early-split",
            True,
            "an early result of the event that begins the session after a split at max_duration is that of the session "
            "before (windows.md: early)",
        ),
        Known(
            "vectorized-lost",
            True,
            "the columnar path does not count in-memory windows that a restart has lost: a test run of windowed with "
            'storage="memory" fails with a VectorizedPathError',
        ),
        Known("letter-state", False, "whether a dead letter shows state that has expired for its callback (19 b)"),
        Known("filtered-idle", True, "records that key_event filters out, in a stage with an idle_timeout (3 b)"),
    )
}
GENERATED = frozenset(
    [
        "early-split",
        "reference-ttl",
        "window-ttl",
        "idle-beside-port",
        "port-reference",
        "reference-sends",
        "filtered-idle",
    ]
)


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
