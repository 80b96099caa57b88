"""Draws charts of one line of text."""

from collections.abc import Sequence

import attrs
from rich.console import Console, ConsoleOptions, RenderResult
from rich.measure import Measurement
from rich.text import Text

_BARS = "▁▂▃▄▅▆▇█"


def sparkline(values: Sequence[float | None], width: int) -> str:
    """Return a chart with a bar for each value, and a space where there is no value. If there are more values than
    characters, a bar shows the highest of its values.

    :param width: maximum number of characters
    """
    number = len(values)
    width = min(width, number)
    parts = [values[at * number // width : (at + 1) * number // width] for at in range(width)]
    highest = [max((value for value in part if value is not None), default=None) for part in parts]
    top = max((value for value in highest if value is not None), default=0.0)
    return "".join(" " if value is None else _bar(value, top) for value in highest)


def _bar(value: float, top: float) -> str:
    level = int(value / top * len(_BARS)) if value > 0 else 0
    return _BARS[min(level, len(_BARS) - 1)]


@attrs.frozen
class Sparkline:
    """A `sparkline` that is as wide as its place allows."""

    values: Sequence[float | None]

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        yield Text(sparkline(self.values, options.max_width), "cyan", no_wrap=True)

    def __rich_measure__(self, console: Console, options: ConsoleOptions) -> Measurement:
        return Measurement(1, max(len(self.values), 1))
