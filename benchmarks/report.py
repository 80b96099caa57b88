"""Reports of the runs: progress lines, table, JSON file and plot."""

import json
from pathlib import Path
from statistics import mean, median
from typing import Any

from attrs import asdict, frozen
from events import Tally
from peers import Batch
from rich.console import Console
from rich.table import Table

BASE = "spark-sql"
TITLE = "Tumbling window: counts by key and minute, from JSON lines to JSON lines"
FOOTNOTE = """\
s a batch: Spark's triggerExecution of a measured batch with data, plus that of no-data batches before the next
batch with data; the median over all rounds. idle: mean seconds of a no-data batch, at the end or in between. to
spark-sql: throughput as a multiple of Spark SQL's. cost: seconds per event as a multiple of the same peer's at its
lowest key count. Both ratios are medians over the rounds."""


@frozen
class Run:
    """One run of one peer at one key count.

    :param seconds: seconds of each measured batch, including no-data batches before the next batch with data
    :param idle_seconds: seconds of each no-data batch, at the end or in between
    :param idle_between: number of no-data batches between batches with data
    """

    peer: str
    keys: int
    events: int
    round: int
    warmup: int
    seconds: list[float]
    idle_seconds: list[float]
    idle_between: int
    batches: list[Batch]
    output: Tally
    expected: Tally

    @classmethod
    def of(
        cls,
        peer: str,
        keys: int,
        events: int,
        round_: int,
        warmup: int,
        batches: list[Batch],
        output: Tally,
        expected: Tally,
    ) -> "Run":
        """Create a run from its batches as reported by Spark."""
        charged: list[float] = []
        pending: list[float] = []
        idle_between = 0
        for batch in batches:
            if not batch.events:
                pending.append(batch.seconds)
                continue
            if charged:
                charged[-1] += sum(pending)
                idle_between += len(pending)
            pending = []
            charged.append(batch.seconds)
        idle = [batch.seconds for batch in batches if not batch.events]
        return cls(peer, keys, events, round_, warmup, charged[warmup:], idle, idle_between, batches, output, expected)

    @property
    def median_seconds(self) -> float:
        return median(self.seconds)

    @property
    def rate(self) -> float:
        """Events per second."""
        return self.events / self.median_seconds

    @property
    def agrees(self) -> bool:
        return self.output == self.expected

    def progress_line(self) -> str:
        each = " ".join(f"{seconds:.2f}" for seconds in self.seconds)
        return (
            f"round {self.round}  {self.keys:>9,} keys  {self.peer:<9}  {self.median_seconds:6.2f} s  "
            f"{self.rate:>9,.0f} events/s  ({each}; idle {_idle([self])})"
            + ("" if self.agrees else f"  [red]wrote {self.output}, expected {self.expected}[/red]")
        )


def summary(runs: list[Run], base: str = BASE) -> list[dict[str, Any]]:
    """Return one row for each key count and peer."""
    rows = []
    for keys in dict.fromkeys(run.keys for run in runs):
        for peer in dict.fromkeys(run.peer for run in runs if run.keys == keys):
            chosen = [run for run in runs if (run.keys, run.peer) == (keys, peer)]
            seconds = [each for run in chosen for each in run.seconds]
            fewest = min(run.keys for run in runs if run.peer == peer)
            rows.append(
                {
                    "keys": keys,
                    "peer": peer,
                    "events": chosen[0].events,
                    "batches": len(seconds),
                    "median": median(seconds),
                    "min": min(seconds),
                    "max": max(seconds),
                    "events_per_second": chosen[0].events / median(seconds),
                    f"throughput_to_{base}": _ratio(chosen, runs, base, keys),
                    "cost_to_fewest_keys": _inverse(_ratio(chosen, runs, peer, fewest)),
                    "without_data": _mean_idle(chosen),
                    "without_data_between": sum(run.idle_between for run in chosen),
                }
            )
    return rows


def table(runs: list[Run], title: str = TITLE, base: str = BASE) -> Table:
    """Return the table that the benchmark prints at the end."""
    shown = Table(title=title)
    titles = [
        "keys",
        "peer",
        "events/batch",
        "batches",
        "s a batch",
        "min",
        "max",
        "events/s",
        f"to {base}",
        "cost",
        "idle",
    ]
    for title in titles:
        shown.add_column(title, justify="left" if title == "peer" else "right", no_wrap=True)
    previous = None
    for row in summary(runs, base):
        if previous not in (None, row["keys"]):
            shown.add_section()
        previous = row["keys"]
        shown.add_row(
            f"{row['keys']:,}",
            row["peer"],
            f"{row['events']:,}",
            str(row["batches"]),
            *(f"{row[name]:.2f}" for name in ("median", "min", "max")),
            f"{row['events_per_second']:,.0f}",
            _times(row[f"throughput_to_{base}"]),
            _times(row["cost_to_fewest_keys"]),
            "-" if row["without_data"] is None else f"{row['without_data']:.2f}",
        )
    return shown


def print_agreement(console: Console, runs: list[Run]) -> bool:
    """Print for each key count which peers wrote wrong results, if any.

    :returns: `True` if all results are correct
    """
    for keys in dict.fromkeys(run.keys for run in runs):
        chosen = [run for run in runs if run.keys == keys]
        wrong = sorted({run.peer for run in chosen if not run.agrees})
        first = [next(run for run in chosen if run.peer == peer) for peer in dict.fromkeys(run.peer for run in chosen)]
        given = "; ".join(f"{run.peer} {run.output.rows:,} rows, sum {run.output.sum:,}" for run in first)
        verdict = f"[red]WRONG: {', '.join(wrong)}[/red]" if wrong else "as expected"
        console.print(f"results with {keys:,} keys: {verdict} ({given})", soft_wrap=True)
    return all(run.agrees for run in runs)


def write_json(file: Path, machine: dict[str, str], settings: dict[str, Any], runs: list[Run]) -> None:
    """Write the table and all batches to a JSON file."""
    content = {"machine": machine, "settings": settings, "table": summary(runs), "runs": [asdict(run) for run in runs]}
    file.write_text(json.dumps(content, indent=2) + "\n")


def draw(file: Path, heading: str, runs: list[Run]) -> None:
    """Draw events per second by key count, with a bar for each peer."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    rows = summary(runs)
    counts = list(dict.fromkeys(row["keys"] for row in rows))
    peers = list(dict.fromkeys(row["peer"] for row in rows))
    figure, axes = pyplot.subplots(figsize=(9, 5), layout="constrained")
    width = 0.8 / len(peers)
    for place, peer in enumerate(peers):
        mine = [row for row in rows if row["peer"] == peer]
        left = [counts.index(row["keys"]) + (place - (len(peers) - 1) / 2) * width for row in mine]
        bars = axes.bar(left, [row["events_per_second"] for row in mine], width * 0.95, label=peer)
        axes.bar_label(bars, [f"{row['events_per_second']:,.0f}" for row in mine], fontsize=8, padding=2)
    rates = [row["events_per_second"] for row in rows]
    if max(rates) > 20 * min(rates):
        axes.set_yscale("log")
    axes.margins(y=0.12)
    axes.set_xticks(range(len(counts)), [f"{count:,} keys" for count in counts])
    axes.set_ylabel("events per second")
    axes.set_title("Tumbling window: counts by key and minute\n" + heading, fontsize=7)
    axes.legend()
    figure.savefig(file, dpi=150)
    pyplot.close(figure)


def _ratio(chosen: list[Run], runs: list[Run], peer: str, keys: int) -> float | None:
    """Return the ratio of the throughput to that of another peer in the same round, as the median over the rounds."""
    others = {run.round: run.rate for run in runs if (run.peer, run.keys) == (peer, keys)}
    ratios = [run.rate / others[run.round] for run in chosen if run.round in others]
    return median(ratios) if ratios else None


def _inverse(ratio: float | None) -> float | None:
    return None if ratio is None else 1 / ratio


def _mean_idle(runs: list[Run]) -> float | None:
    seconds = [each for run in runs for each in run.idle_seconds]
    return mean(seconds) if seconds else None


def _idle(runs: list[Run]) -> str:
    seconds = _mean_idle(runs)
    return "-" if seconds is None else f"{seconds:.2f}"


def _times(ratio: float | None) -> str:
    return "-" if ratio is None else f"{ratio:.2f} x"
