"""Makes docs/trust.md from the figures of `scripts/qualify`."""

import sys
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from tests.qualify.command import parser_of
from tests.qualify.figures import ROOT, read

PAGE = ROOT / "docs" / "trust.md"
HEAD = """\
# What was tried

This page has measured figures only. `scripts/qualify` writes it, from `tests/qualify/figures.json`: what was tried, how
often, on which version, and what came of it. Run a part again with `scripts/qualify PART`; a failure prints the command
that repeats it. What was not tried is not on this page.
"""
DISTURBED = """\
## Runs that were disturbed

A run reads events from files or Kafka, counts them by name and minute, and writes the counts to files, Kafka or
PostgreSQL: with one stage or two, on the stores `groups` and `log`, with small and with large key groups. While it
runs, processes are killed and systems fail, at random times. In the end, every output is read back and compared with a
model, which a few lines of Python compute from the events.

**Lost** is a result that is missing, **twice** a result that is there more often than once, and **wrong** a result that
is not the model's. For a Kafka sink that is at-least-once, records with the same `amadou-id` count as one.
"""
READERS = """\
## Damaged and crafted inputs

Files are damaged, or values in them are replaced and all checksums made right again; keys and requests are odd. Each of
these inputs has to be read, or to end in an error of amadou that says why, within 5 seconds and 200 MiB.
"""
DONE: Mapping[str, str] = {
    "kills": "processes on one machine, and views of state",
    "cluster": "processes of a standalone cluster",
    "remote": "processes, with all files on HDFS, S3, or a file system that cannot replace files",
    "outages": "the Kafka broker, the database",
    "disk": "the disk with checkpoint and outputs",
    "clock": "the clock of all processes",
    "rescale": "a command that rescales or converts the checkpoint",
}
SELECTED: Mapping[str, str] = {
    "conformance": "all cases of the conformance tests on Spark, on every store",
    "tests": "the other long tests",
    "browser": "the console's pages in Chromium",
    "packaging": "wheels, packed jobs, manifests, services",
    "matrix": "all tests that use Spark, on each supported version",
}
FIGURES: Mapping[str, str] = {
    "python": "driver, Python (MB)",
    "java": "driver, Java (MB)",
    "workers": "workers (MB)",
    "state": "state (MB)",
    "entries": "entries of state",
    "checkpoint": "checkpoint (MB)",
}
ALL = "**all of the following**"

Piece = Mapping[str, Any]


def main() -> int:
    chosen = parser_of("--page", __doc__).parse_args()
    PAGE.write_text(page_of(read(chosen.figures)))
    return 0


def page_of(pieces: Sequence[Piece]) -> str:
    """Return the page."""
    by_part: defaultdict[str, list[Piece]] = defaultdict(list)
    for piece in pieces:
        by_part[piece["part"]].append(piece)
    sections = [HEAD]
    if disturbed := [row for part in DONE for row in _disturbed_rows(part, by_part[part])]:
        columns = ("part", "faults", "runs", "events", "results compared", "lost", "twice", "wrong", "on", "seeds")
        sections.append(f"{DISTURBED}\n{_table(columns, disturbed)}")
    sections += [_soak(piece) for piece in by_part["soak"] if piece.get("samples")]
    if fuzz := list(_counted_rows("fuzz", "random jobs", by_part["fuzz"])):
        sections.append("## Random jobs against a model\n\n" + _table(("part", "what", "tried", "on", "date"), fuzz))
    if readers := list(_counted_rows("readers", "inputs of each reader", by_part["readers"])):
        sections.append(f"{READERS}\n" + _table(("part", "what", "tried", "on", "date"), readers))
    if selected := [row for part, what in SELECTED.items() for row in _counted_rows(part, what, by_part[part])]:
        sections.append("## Tests that take long\n\n" + _table(("part", "what", "tried", "on", "date"), selected))
    sections.append("## What was found\n\n" + _found(pieces))
    return "\n".join(sections)


def _disturbed_rows(part: str, pieces: Sequence[Piece]) -> Iterable[tuple[str, ...]]:
    for origin, group in _with_all(pieces).items():
        tried = _tried(group)
        faults = ", ".join(f"{kind} {count}" for kind, count in sorted(tried.items()))
        sums = {name: sum(piece.get(name, 0) for piece in group) for name in ("runs", "events", "results")}
        bad = {name: sum(piece[name] for piece in group) for name in ("lost", "twice", "wrong")}
        seeds = "" if origin == ALL else ", ".join(str(piece["seed"]) for piece in group)
        yield (
            f"`{part}`: {DONE[part]}",
            f"**{tried.total()}**: {faults}",
            *(f"{count:,}" for count in (*sums.values(), *bad.values())),
            origin,
            seeds,
        )


_KEPT = """\
Most of the checkpoint is what Spark keeps to go back to. In this run, it keeps 10 versions of the state, and looks for
others every 10 s (`spark.sql.streaming.minBatchesToRetain`, `spark.sql.streaming.stateStore.maintenanceInterval`). With
Spark's defaults, 100 versions and a minute, a checkpoint is larger.
"""


def _soak(piece: Piece) -> str:
    options, samples, trends = piece["options"], piece["samples"], piece.get("trend_in_a_million_events", {})
    rows = [
        (
            shown,
            *(f"{samples[at][name]:,.{0 if name == 'entries' else 1}f}" for at in _quarters(samples)),
            f"{trends[name]:+,.2f}" if name in trends else "",
        )
        for name, shown in FIGURES.items()
    ]
    columns = ("", *(f"after {samples[at]['events']:,} events" for at in _quarters(samples)), "trend, a million events")
    differences = ", ".join(f"{piece[name]:,} {name}" for name in ("lost", "twice", "wrong"))
    return (
        f"## {piece.get('events', samples[-1]['events']):,} events in one run\n\n"
        f"From {options['source']} to {options['source']}, on the store `{options['store']}`, {options['pace']:,} "
        f"events in a batch; {_origin(piece)}, {piece['date']}, {piece['seconds']:,} seconds. Compared with the model: "
        f"{piece.get('results', 0):,} results, {differences}. The trend is that of the second half"
        f"{'' if piece.get('is_judged', True) else '; the run is too short to be judged'}.\n\n"
        + _table(columns, rows)
        + f"\n{_KEPT}"
    )


def _quarters(samples: Sequence[Any]) -> Sequence[int]:
    last = len(samples) - 1
    return sorted({last // 4, last // 2, last * 3 // 4, last})


def _counted_rows(part: str, what: str, pieces: Sequence[Piece]) -> Iterable[tuple[str, ...]]:
    for origin, group in (_by_origin if part in SELECTED else _with_all)(pieces).items():
        counts = ", ".join(f"{count:,} {kind}" for kind, count in sorted(_tried(group).items()) if count)
        yield f"`{part}`", what, counts, origin, max(piece["date"] for piece in group)


def _found(pieces: Sequence[Piece]) -> str:
    failures = [(piece, each) for piece in pieces for each in piece["found"]]
    if not failures:
        return "No failure.\n" if pieces else "Nothing was tried with this version yet.\n"
    lines = []
    for piece, each in failures:
        first = each["what"].strip().splitlines()[0][:300]
        lines.append(f"- `{piece['part']}`, {_origin(piece)}, {piece['date']}: {first} (`{each['repeat']}`)\n")
    return "".join(lines)


def _by_origin(pieces: Sequence[Piece]) -> Mapping[str, Sequence[Piece]]:
    """Pieces by the versions on which they ran."""
    groups: defaultdict[str, list[Piece]] = defaultdict(list)
    for piece in pieces:
        groups[_origin(piece)].append(piece)
    return groups


def _with_all(pieces: Sequence[Piece]) -> Mapping[str, Sequence[Piece]]:
    """Pieces by the versions on which they ran, after all of them if there are several versions."""
    groups = _by_origin(pieces)
    return {ALL: pieces, **groups} if len(groups) > 1 else groups


def _tried(pieces: Iterable[Piece]) -> Counter[str]:
    return sum((Counter(piece["tried"]) for piece in pieces), Counter())


def _origin(piece: Piece) -> str:
    versions = f"Spark {piece['spark']}, Python {piece['python']}"
    return f"amadou {piece['version']} ({piece['commit']}), {versions}"


def _table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [columns, ["---"] * len(columns), *rows]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


if __name__ == "__main__":
    sys.exit(main())
