"""Draws a run's figures for a terminal: `amadou top`."""

import sys
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

import attrs
from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.table import Table
from rich.text import Text

from amadou_plugins.console._text import shown_figure, shown_number, shown_seconds, shown_time
from amadou_runtime.command.printable import printable
from amadou_runtime.command.sparkline import Sparkline
from amadou_runtime.command.top_view import Overview, SourceProgress, StageProgress, View

_WIDE = 100
"""Width from which the figures have one more column."""
_ANY_WIDTH = 10_000
_LEAST_ERROR, _MOST_NOTE = 3, 3
"""Number of lines."""
_STATUS_STYLES = {"running": "green", "failed": "bold red"}


@attrs.frozen
class TopScreen:
    """A run's figures. They fit the width of their place; also the height, if it is limited.

    :param view: the run
    :param note: a message to show above the figures; empty to show none
    """

    view: View
    note: str = ""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        overview, width = self.view.overview, options.max_width
        note = _wrapped(self.note, "bold yellow", console, width)[:_MOST_NOTE]
        error = _wrapped(overview.error or "", "red", console, width)
        head = Group(_title(overview), _facts(overview), _places(overview), *note)
        figures = Group(*_figures(self.view, is_wide=width >= _WIDE))
        fixed = len(console.render_lines(Group(head, figures), options.update(height=None)))
        room = (options.height or sys.maxsize) - fixed
        error = error[: max(_LEAST_ERROR, room - _rows(overview.sources))]
        yield head
        yield from error
        yield figures
        if overview.sources:
            yield Text()
            yield from _sources(overview.sources, room - len(error) - _rows(()), console, width)


def _wrapped(text: str, style: str, console: Console, width: int) -> list[Text]:
    """Return the lines of a text that is not cut, but wrapped."""
    lines = (Text(printable(line), style) for line in text.expandtabs().splitlines())
    return [part for line in lines for part in line.wrap(console, width, overflow="fold") or [Text()]]


def _title(overview: Overview) -> Table:
    table = Table.grid(padding=(0, 2), expand=True)
    table.add_column(ratio=1, no_wrap=True)
    table.add_column(no_wrap=True)
    status = _cell(overview.status, _STATUS_STYLES.get(overview.status, "bold"))
    if overview.started is not None:
        status.append(f" since {shown_time(overview.started)} UTC", "not bold")
    table.add_row(_cell(overview.job, "bold"), status)
    return table


def _facts(overview: Overview) -> Text:
    return _line(
        {
            "Engine": overview.engine,
            "Trigger": overview.trigger or "back to back",
            "Batches": shown_number(overview.batches),
            "Events": shown_number(overview.totals.events),
        }
    )


def _places(overview: Overview) -> Text:
    last = overview.last_batch
    watermark = {} if last is None else {"Watermark": shown_time(last.watermark)}
    return _line({**watermark, "Checkpoint": overview.checkpoint or "none"})


def _line(facts: Mapping[str, str]) -> Text:
    parts = (Text.assemble((f"{name} ", "dim"), printable(value)) for name, value in facts.items())
    text = Text("   ").join(parts)
    text.no_wrap, text.overflow = True, "ellipsis"
    return text


def _cell(text: str, style: str = "") -> Text:
    return Text(printable(text), style)


def _figures(view: View, *, is_wide: bool) -> Iterator[Table | Text]:
    yield Text()
    last = view.overview.last_batch
    if last is None:
        yield Text("No batch has been completed.")
        return
    yield _charts(view, is_wide=is_wide)
    if last.stage_seconds:
        yield Text()
        yield _parts(last.stage_seconds)
    if view.overview.stages:
        yield Text()
        yield _stages(view.overview.stages)


def _charts(view: View, *, is_wide: bool) -> Table:
    numbers = ("Now", "At most")
    table = _table(("Figure", "Now", "Last hour", *(["At most"] if is_wide else [])), numbers)
    table.expand, table.columns[2].ratio = True, 1
    for name, chart in view.charts.items():
        now = _batch_time(view.overview) if name == "batch_seconds" else None
        most = max((value for value in chart.values if value is not None), default=None)
        row: list[RenderableType] = [
            _cell(chart.title),
            now or _cell(shown_figure(view.overview.figures.get(name), chart.unit)),
            Sparkline(chart.values),
            _cell(shown_figure(most, chart.unit)),
        ]
        table.add_row(*row[: len(table.columns)])
    return table


def _batch_time(overview: Overview) -> Text | None:
    """Return the batch time and the interval between batches; `None` if batches are back to back."""
    seconds, trigger = overview.figures.get("batch_seconds"), overview.trigger_seconds
    if trigger is None:
        return None
    style = "yellow" if seconds is not None and seconds > trigger else ""
    return _cell(f"{shown_seconds(seconds)} of {shown_seconds(trigger)}", style)


def _parts(stage_seconds: Mapping[str, float]) -> Table:
    table = _table(("Last batch", *stage_seconds), stage_seconds)
    table.add_row(_cell("over all tasks", "dim"), *(_cell(shown_seconds(each)) for each in stage_seconds.values()))
    return table


def _stages(stages: Iterable[StageProgress]) -> Table:
    numbers = ("Events", "Keys", "Timers pending")
    table = _table(("Stage", "Watermark", *numbers), numbers)
    for each in stages:
        figures = (shown_figure(each.events_per_second, "1/s"), shown_number(each.keys))
        row = (each.name, shown_time(each.watermark), *figures, shown_number(each.timers_pending))
        table.add_row(*map(_cell, row))
    return table


def _sources(sources: Sequence[SourceProgress], room: int, console: Console, width: int) -> Iterator[Table | Text]:
    """Yield a table of as many sources as there is room for: sources that need attention first, if not all fit."""
    table = _table(("Source", "Newest event", "Unread", "Age", "Held", "Watermark"), ("Unread", "Age", "Held"))
    shown = sources
    if len(sources) > room:
        shown = sorted(sources, key=lambda each: not (each.holds_back or each.down))[: max(room - 1, 1)]
    for each in shown:
        holds = "waits for its first event" if each.newest is None else "holds it back"
        notes = [*([holds] if each.holds_back else []), *(["down"] if each.down else [])]
        table.add_row(
            _cell(each.name),
            _cell(shown_time(each.newest)),
            _cell(shown_number(each.lag)),
            _cell(shown_seconds(each.age_seconds)),
            _cell(shown_number(each.held)),
            _cell(", ".join(notes)),
            style="yellow" if notes else "",
        )
    if console.measure(table, options=console.options.update(width=_ANY_WIDTH)).maximum > width:
        table.expand, table.columns[0].ratio = True, 1  # cut the names, not the other columns
    yield table
    if len(shown) < len(sources):
        yield _cell(f"… and {len(sources) - len(shown):,} more", "dim")


def _rows(sources: Sequence[SourceProgress]) -> int:
    """Return the number of lines of a table of sources."""
    return len(sources) + 2


def _table(titles: Iterable[str], numbers: Collection[str]) -> Table:
    """Return a table whose columns are cut, not wrapped.

    :param numbers: the titles of the columns that are aligned to the right
    """
    table = Table(box=None, header_style="dim", padding=(0, 2, 0, 0), pad_edge=False)
    for title in titles:
        table.add_column(_cell(title), justify="right" if title in numbers else "left", no_wrap=True)
    return table
