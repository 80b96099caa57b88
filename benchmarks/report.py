"""Rounds in which peers take turns, and reports of their runs: progress lines, table, JSON file and plot."""

import argparse
import json
from collections.abc import Callable, Iterable
from pathlib import Path
from statistics import mean, median
from typing import Any

from attrs import asdict, evolve, frozen
from events import Tally
from peers import Batch
from rich.console import Console
from rich.table import Table
from sessions import fastest_settings, label_of

BASE = "spark-sql"
TITLE = "Tumbling window: counts by key and minute, from JSON lines to JSON lines"
FOOTNOTE = """\
s a batch: Spark's triggerExecution of a measured batch with data, plus that of no-data batches before the next
batch with data; the median over all rounds. CPU µs: CPU time per event of the JVM and all Python processes during the
measured batches, in microseconds; the median over the rounds. idle: mean seconds of a no-data batch, at the end or in
between. to spark-sql: throughput as a multiple of Spark SQL's. cost: seconds per event as a multiple of the same peer's
at its lowest key count. Both ratios are medians over the rounds. settings: the faster of Java's C1 compiler and its
default compiler (C2), and the faster of Spark with and without whole-stage code generation."""


@frozen
class Run:
    """One run of one peer at one key count.

    :param seconds: seconds of each measured batch, including no-data batches before the next batch with data
    :param cpu: seconds of CPU time of each measured batch, including no-data batches before the next batch with data
    :param counts: number of events in each measured batch
    :param idle_seconds: seconds of each no-data batch, at the end or in between
    :param idle_between: number of no-data batches between batches with data
    :param round: number of the round; 0 in a trial of settings
    :param settings: short names of the settings that are fastest for the peer
    """

    peer: str
    keys: int
    events: int
    warmup: int
    seconds: list[float]
    cpu: list[float]
    counts: list[int]
    idle_seconds: list[float]
    idle_between: int
    batches: list[Batch]
    output: Tally
    expected: Tally
    round: int = 0
    settings: str = ""

    @classmethod
    def of(
        cls,
        peer: str,
        keys: int,
        events: int,
        warmup: int,
        batches: list[Batch],
        output: Tally,
        expected: Tally,
    ) -> "Run":
        """Create a run from its batches as reported by Spark."""
        measured = with_data(batches)[warmup:]
        busy = [number for number, batch in enumerate(batches) if batch.events]
        between = batches[busy[0] : busy[-1]]
        return cls(
            peer,
            keys,
            events,
            warmup,
            [batch.seconds for batch in measured],
            [batch.cpu for batch in measured],
            [batch.events for batch in measured],
            [batch.seconds for batch in batches if not batch.events],
            sum(not batch.events for batch in between),
            batches,
            output,
            expected,
        )

    @property
    def median_seconds(self) -> float:
        return median(self.seconds)

    @property
    def rates(self) -> list[float]:
        """Events per second in each measured batch."""
        return [count / seconds for count, seconds in zip(self.counts, self.seconds, strict=True)]

    @property
    def rate(self) -> float:
        """Events per second."""
        return median(self.rates)

    @property
    def cpu_micros(self) -> float:
        """Microseconds of CPU time per event."""
        return 1e6 * sum(self.cpu) / sum(self.counts)

    @property
    def agrees(self) -> bool:
        return self.output == self.expected

    def progress_line(self) -> str:
        each = " ".join(f"{seconds:.2f}" for seconds in self.seconds)
        return (
            f"{f'round {self.round}' if self.round else 'trial':<7}  {self.keys:>9,} keys  {self.peer:<9}  "
            f"{self.median_seconds:6.2f} s  {self.rate:>9,.0f} events/s  {self.cpu_micros:6.2f} CPU µs  "
            f"({each}; idle {_idle([self])})  {self.settings}"
            + ("" if self.agrees else f"  [red]wrote {self.output}, expected {self.expected}[/red]")
        )


def with_data(batches: list[Batch]) -> list[Batch]:
    """Return the batches with data. Each has the time of the no-data batches before the next batch with data, too."""
    charged: list[Batch] = []
    pending: list[Batch] = []
    for batch in batches:
        if not batch.events:
            pending.append(batch)
            continue
        for idle in pending if charged else ():
            last = charged[-1]
            charged[-1] = evolve(last, seconds=last.seconds + idle.seconds, cpu=last.cpu + idle.cpu)
        pending = []
        charged.append(batch)
    return charged


def in_turns(
    console: Console,
    options: argparse.Namespace,
    peers: Iterable[str],
    run: Callable[[str, int, dict[str, str]], Run],
    reason_to_skip: Callable[[str, int, int], str | None] = lambda peer, keys, round_: None,
    trial_keys: Callable[[str, int], int] = lambda peer, keys: keys,
) -> list[Run]:
    """Run each peer with each number of keys in turn, round by round, so a machine that slows down affects all peers.

    Before its first run with a number of keys, each peer is run with different settings, which is not measured.

    :param run: runs a peer with a number of keys and with settings, in a session of its own
    :param reason_to_skip: returns the reason to skip a peer with a number of keys in a round, or `None`
    :param trial_keys: returns the number of keys with which a peer's settings are tried
    """
    runs = []
    chosen: dict[tuple[str, int], dict[str, str]] = {}

    def run_with(peer: str, keys: int, settings: dict[str, str], round_: int = 0) -> Run:
        done = evolve(run(peer, keys, settings), round=round_, settings=label_of(settings))
        console.print(done.progress_line(), soft_wrap=True)
        return done

    for round_ in range(1, options.rounds + 1):
        for keys in options.keys:
            for peer in peers:
                if reason := reason_to_skip(peer, keys, round_):
                    console.print(f"round {round_}  {keys:>9,} keys  {peer:<9}  skipped: {reason}")
                    continue
                trial = peer, trial_keys(peer, keys)
                if trial not in chosen:
                    chosen[trial] = fastest_settings(
                        dict(options.conf), lambda settings, trial=trial: run_with(*trial, settings).median_seconds
                    )
                runs.append(run_with(peer, keys, chosen[trial], round_))
    return runs


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
                    "events_per_second": median(rate for run in chosen for rate in run.rates),
                    "cpu_micros": median(run.cpu_micros for run in chosen),
                    f"throughput_to_{base}": _ratio(chosen, runs, base, keys),
                    "cost_to_fewest_keys": _inverse(_ratio(chosen, runs, peer, fewest)),
                    "without_data": _mean_idle(chosen),
                    "without_data_between": sum(run.idle_between for run in chosen),
                    "settings": chosen[0].settings,
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
        "CPU µs",
        f"to {base}",
        "cost",
        "idle",
        "settings",
    ]
    for title in titles:
        shown.add_column(title, justify="left" if title in ("peer", "settings") else "right", no_wrap=True)
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
            micros(row["cpu_micros"]),
            _times(row[f"throughput_to_{base}"]),
            _times(row["cost_to_fewest_keys"]),
            "-" if row["without_data"] is None else f"{row['without_data']:.2f}",
            row["settings"],
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
    """Draw events per second and CPU time per event by key count, with a bar for each peer."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    rows = summary(runs)
    counts = list(dict.fromkeys(row["keys"] for row in rows))
    peers = list(dict.fromkeys(row["peer"] for row in rows))
    drawn = {"events_per_second": ("events per second", 0), "cpu_micros": ("CPU time per event, µs", 2)}
    figure, all_axes = pyplot.subplots(len(drawn), figsize=(9, 9), layout="constrained")
    width = 0.8 / len(peers)
    for axes, (name, (label, digits)) in zip(all_axes, drawn.items(), strict=True):
        for place, peer in enumerate(peers):
            mine = [row for row in rows if row["peer"] == peer]
            left = [counts.index(row["keys"]) + (place - (len(peers) - 1) / 2) * width for row in mine]
            bars = axes.bar(left, [row[name] for row in mine], width * 0.95, label=peer)
            axes.bar_label(bars, [f"{row[name]:,.{digits}f}" for row in mine], fontsize=8, padding=2)
        figures = [row[name] for row in rows]
        if max(figures) > 20 * min(figures) > 0:
            axes.set_yscale("log")
        axes.margins(y=0.12)
        axes.set_xticks(range(len(counts)), [f"{count:,} keys" for count in counts])
        axes.set_ylabel(label)
    all_axes[0].set_title("Tumbling window: counts by key and minute\n" + heading, fontsize=7)
    all_axes[0].legend()
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


def micros(figure: float) -> str:
    """Return microseconds as text. They are zero if the CPU time was not measured."""
    return f"{figure:.2f}" if figure else "-"


def _times(ratio: float | None) -> str:
    return "-" if ratio is None else f"{ratio:.2f} x"
