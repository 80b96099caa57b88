"""Draws charts as SVG."""

from collections.abc import Mapping, Sequence
from itertools import groupby

from markupsafe import Markup

from amadou_plugins.console._series import Series
from amadou_plugins.console._text import shown_figure

_WIDTH, _HEIGHT = 240, 48


def svg_chart(series: Series, points: Sequence[tuple[float, float | None]]) -> Markup:
    """Return a chart of points of time and value; where there is no value, the line has a gap."""
    values = [value for _, value in points if value is not None]
    if not values:
        return Markup('<p class="none">No figures in the last hour</p>')
    top = max(values) or 1.0
    begin, end = points[0][0], points[-1][0]

    def place(time: float, value: float) -> str:
        return f"{(time - begin) / (end - begin) * _WIDTH:.1f},{_HEIGHT - value / top * (_HEIGHT - 2) - 1:.1f}"

    lines = [
        " ".join(place(time, value) for time, value in part if value is not None)
        for has_value, part in groupby(points, key=lambda point: point[1] is not None)
        if has_value
    ]
    label = f"{series.title} in the last hour: at most {shown_figure(max(values), series.unit)}"
    drawn = Markup("").join(Markup('<polyline points="{}"/>').format(line) for line in lines)
    return Markup(
        '<svg class="chart" viewBox="0 0 {} {}" preserveAspectRatio="none" role="img" aria-label="{}">{}</svg>'
    ).format(_WIDTH, _HEIGHT, label, drawn)


def svg_parts(parts: Mapping[str, float]) -> Markup:
    """Return a bar that is divided into parts.

    :param parts: the size of each part, by name
    """
    total = sum(parts.values())
    if not total:
        return Markup("")
    bar, left = Markup(""), 0.0
    for seconds in parts.values():
        width = seconds / total * _WIDTH
        bar += Markup('<rect x="{:.2f}" width="{:.2f}" height="12"/>').format(left, width)
        left += width
    label = ", ".join(f"{name} {seconds / total:.0%}" for name, seconds in parts.items())
    return Markup(
        '<svg class="bar parts" viewBox="0 0 {} 12" preserveAspectRatio="none" role="img" aria-label="{}">{}</svg>'
    ).format(_WIDTH, label, bar)
