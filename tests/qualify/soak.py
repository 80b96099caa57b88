"""Runs a job over millions of events, without a fault, and shows whether memory and state stay flat.

The job counts events by name and minute, in two stages. It prints the memory (resident set size) of the driver's
Python, of its Java and of the workers, the stored state and the size of the checkpoint at each thirtieth of the events.
At the end, it prints the trend of the second half: how much each figure grows in a million events. A figure is flat if
its highest value in the last third of the run is at most a tenth above that in the third before: the size of the
checkpoint rises until Spark removes old versions of the state, every 100 to 200 batches. The outputs are compared with
a model.
"""

import argparse
import os
import signal
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from statistics import linear_regression

from attrs import asdict, fields, frozen
from tests.qualify.command import Shown, add_seed, directory_of, end_on_signals, need_services, parser_of
from tests.qualify.faulted_run import BY_KEY, FaultedRun, Setup
from tests.qualify.figures import Piece
from tests.qualify.moments import completed
from tests.qualify.systems import Systems, shared_kafka
from tests.spark.clusters import command_of, descendants, paths

SAMPLES = 30
AHEAD = 3
"""Batches for which there are events."""
RETAINED = {"spark.sql.streaming.minBatchesToRetain": "10", "spark.sql.streaming.stateStore.maintenanceInterval": "10s"}
"""Spark keeps this number of versions of the state, and removes others at this interval. With the defaults, 100 and a
minute, the checkpoint's size rises for most of a run.
"""
FLAT = 0.1
"""Share by which a figure's highest value may be above that in the third before."""
JUDGED_FROM = 600
"""Batches of a run whose figures have to be flat: Spark has removed old versions of the state in each of the last two
thirds.
"""
MEGA = 1_000_000


@frozen
class Sample:
    """Figures after a number of events: memory and sizes in megabytes.

    :param entries: number of stored entries of state
    """

    events: int
    python: float
    java: float
    workers: float
    state: float
    entries: int
    checkpoint: float

    def __str__(self) -> str:
        return (
            f"python {self.python:.0f} MB, java {self.java:.0f} MB, workers {self.workers:.0f} "
            f"MB, state {self.state:.2f} MB in {self.entries:,} entries, checkpoint {self.checkpoint:.1f} MB"
        )


FIGURES = tuple(field.name for field in fields(Sample) if field.name != "events")


def main() -> int:
    parser = parser_of("soak", __doc__)
    add_seed(parser)
    parser.add_argument("--events", type=int, default=5 * MEGA, metavar="N", help="number of events (default: 5000000)")
    parser.add_argument("--source", choices=["files", "kafka"], default="kafka", help="also the sink (default: kafka)")
    parser.add_argument("--store", choices=["groups", "log"], default="log", help="the store of state (default: log)")
    parser.add_argument("--pace", type=int, default=8_000, metavar="N", help="events in a batch (default: 8000)")
    chosen = parser.parse_args()
    end_on_signals()
    need_services(parser, *({chosen.source} & {"kafka"}))
    options = {name: getattr(chosen, name) for name in ("events", "source", "store", "pace")}
    piece = Piece(chosen.figures, "soak", append=chosen.append, seed=chosen.seed, **options)
    repeat = f"scripts/qualify soak --seed {chosen.seed} --append " + " ".join(
        f"--{name} {value}" for name, value in options.items()
    )
    with Shown("soak", chosen.events, "events") as shown:
        try:
            with directory_of("soak") as directory:
                _soak(chosen, directory, piece, shown)
        except Exception as error:
            shown.say(f"FAILED, repeat it with: {repeat}\n{type(error).__name__}: {error}")
            piece.found(f"{type(error).__name__}: {error}", repeat)
    return int(piece.has_found)


def _soak(chosen: argparse.Namespace, directory: Path, piece: Piece, shown: Shown) -> None:
    stages = 2 if chosen.store == "log" else 1  # several stages need the store log
    sinks = ("once",) if chosen.source == "kafka" else ("files",)
    form = BY_KEY if chosen.store == "log" else {}
    setup = Setup(chosen.source, sinks, stages, chosen.store, pace=chosen.pace, millis_apart=2, **form)
    systems = Systems(**(shared_kafka() if chosen.source == "kafka" else {}), conf=RETAINED)
    run = FaultedRun(setup, directory, chosen.seed, systems)
    samples: list[Sample] = []
    with run.started("--trigger", "0 seconds") as running:
        while run.processed < chosen.events:
            run.feed(min(AHEAD, -(-(chosen.events - run.processed) // setup.pace)))
            run.wait_for_batch()
            if run.processed >= chosen.events * (len(samples) + 1) // SAMPLES:
                samples.append(_sample(run))
                piece.measured(samples=[asdict(sample) for sample in samples])
                shown.advance(samples[-1].events - (samples[-2].events if samples[1:] else 0), str(samples[-1]))
        running.stop(signal.SIGTERM)
    with run.started("--trigger", "available-now", "--flush") as running:
        running.finish()
    run.compare()
    run.close()
    counts = {name: sum(getattr(run.outcome, name).values()) for name in ("lost", "twice", "wrong")}
    piece.tried(
        {"events": run.outcome.events}, runs=1, events=run.outcome.events, results=run.outcome.results, **counts
    )
    growing = {name: trend(samples, name) for name in FIGURES}
    piece.measured(trend_in_a_million_events=growing)
    for name, grows in growing.items():
        shown.say(f"{name}: {grows:+.2f} in a million events")
    assert run.outcome.is_right, f"{run.outcome}\n{directory}"
    is_judged = len(completed(run.directory)) >= JUDGED_FROM
    piece.measured(is_judged=is_judged)
    if not is_judged:
        shown.say(f"too short to be judged: it has fewer than {JUDGED_FROM} batches")
        return
    steep = [name for name in FIGURES if growth(samples, name) > FLAT]
    assert not steep, f"{', '.join(steep)}: grew by more than {FLAT:.0%} in the last third"


def _sample(run: FaultedRun) -> Sample:
    assert run.running is not None
    below = descendants(run.running.pid)
    java = [pid for pid in below if "org.apache.spark.deploy.SparkSubmit" in command_of(pid)]
    workers = [pid for pid in below if "pyspark.daemon" in command_of(pid)]
    last = completed(run.directory)[-1]
    return Sample(
        run.processed,
        _memory([run.running.pid]),
        _memory(java),
        _memory(workers),
        last.state_bytes / MEGA,
        last.state_entries,
        _size(Path(run.checkpoint)),
    )


def _memory(pids: Sequence[int]) -> float:
    pages = 0
    for pid in pids:
        with suppress(OSError):  # it has ended since
            pages += int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / MEGA


def _size(directory: Path) -> float:
    size = 0
    for path in paths(directory):
        with suppress(OSError):  # it was removed since
            size += path.lstat().st_size
    return size / MEGA


def trend(samples: Sequence[Sample], name: str) -> float:
    """How much a figure grows in a million events, in the second half."""
    half = samples[len(samples) // 2 :]
    events = [sample.events / MEGA for sample in half]
    return round(linear_regression(events, [float(getattr(sample, name)) for sample in half]).slope, 3)


def growth(samples: Sequence[Sample], name: str) -> float:
    """How far a figure's highest value in the last third is above that in the third before, as a share of it."""
    third = len(samples) // 3
    before, last = (
        max(getattr(sample, name) for sample in part) for part in (samples[-2 * third : -third], samples[-third:])
    )
    return float(last / before - 1) if before else 0.0


if __name__ == "__main__":
    sys.exit(main())
