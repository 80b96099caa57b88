"""Shows a run's progress: on a terminal as a line that is updated in place, otherwise as a new line at intervals."""

import sys
import time
from collections.abc import Callable
from datetime import timedelta
from types import TracebackType
from typing import Any, TextIO

from amadou.engine import shown_bytes, shown_watermark
from amadou_runtime.command.printable import printable
from amadou_runtime.runs.progress import Progress

_FRAMES = "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏"


class ProgressDisplay:
    """Context manager that shows the progress of a run: pass it to `run(…, on_progress=…)`.

    :param stream: stream to write to; by default standard error
    :param every: minimum interval between lines if the stream is not a terminal
    :param log: function to call with the progress at these intervals, instead of writing to the stream
    """

    def __init__(
        self,
        stream: TextIO | None = None,
        *,
        every: timedelta = timedelta(seconds=5),
        log: Callable[[Progress], None] | None = None,
    ) -> None:
        self._stream = sys.stderr if stream is None else stream
        self._every = every.total_seconds()
        self._write = log or self._print
        self._is_live = log is None and self._stream.isatty()
        self._last: Progress | None = None
        self._logged = 0.0
        self._live: Any = None

    def __enter__(self) -> "ProgressDisplay":
        if self._is_live:
            from rich.console import Console
            from rich.live import Live

            console = Console(file=self._stream)
            self._live = Live(
                console=console,
                get_renderable=self._live_line,
                refresh_per_second=8,
                transient=True,
                redirect_stdout=False,
            )
            self._live.start()
        return self

    def __call__(self, progress: Progress) -> None:
        """Show the run's current progress."""
        self._last = progress
        if self._live is None and progress.seconds - self._logged >= self._every:
            self._log(progress)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._live is not None:
            self._live.stop()
            self._live = None
        elif self._last is not None and self._last.seconds != self._logged:
            self._log(self._last)

    def _log(self, progress: Progress) -> None:
        self._logged = progress.seconds
        self._write(progress)

    def _print(self, progress: Progress) -> None:
        print(printable(f"{progress.job}: {progress_line(progress)}"), file=self._stream, flush=True)

    def _live_line(self) -> Any:
        from rich.text import Text

        frame = _FRAMES[int(time.monotonic() * 8) % len(_FRAMES)]
        text = "starting …" if self._last is None else printable(progress_line(self._last))
        return Text(f"{frame} {text}", no_wrap=True, overflow="ellipsis")


def progress_line(progress: Progress) -> str:
    """Return a run's progress as one line, with the most important values first: narrow terminals cut off the end."""
    minutes, seconds = divmod(int(progress.seconds), 60)
    hours, minutes = divmod(minutes, 60)
    counts, held = progress.counts, sum(progress.counts.held.values())
    elapsed = f"{hours}:{minutes:02}:{seconds:02}" if hours else f"{minutes}:{seconds:02}"
    return " · ".join(
        (
            elapsed,
            f"{progress.batches:,} batches",
            f"{progress.events_per_second:,.0f} events/s",
            f"watermark {shown_watermark(progress.watermark)}",
            *([f"state {shown_bytes(counts.state_bytes)} for {counts.keys:,} keys"] if counts.state_bytes else []),
            f"{counts.late:,} late" + (f" ({counts.dropped:,} dropped)" if counts.dropped else ""),
            f"{counts.timers_pending:,} timers pending",
            *([f"{held:,} held"] if held else []),
            *([f"{progress.lag:,} records behind"] if progress.lag else []),
            *_held_back(progress),
        )
    )


def _held_back(progress: Progress) -> list[str]:
    """Return a list with text about the source or partition that holds the watermark back; empty for a single partition
    that has delivered events.
    """
    partition = progress.held_back_by
    if partition is not None and partition.newest is None and not partition.lag:
        return [f"watermark waits for the first event of {partition.name}"]
    if partition is None or len(progress.partitions) < 2:
        return []
    return [f"watermark held back by {partition.name} (newest event: {shown_watermark(partition.newest)})"]
