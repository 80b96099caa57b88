"""Disturbs runs with faults, and compares every output with a model.

A run is a job from files or Kafka to files, Kafka (exactly-once, or with ids) or PostgreSQL, with one stage or two, on
one of the stores, with small or large key groups. Some faults come one after another while it runs:

  kills     the driver's Python, its Java or both are killed, also in the middle of a commit; or a Python worker, or the
            process that forks the workers; local views of state are removed or damaged
  cluster   the same on a standalone cluster, and kills of executors and of the cluster's workers
  remote    kills of runs whose source, sink and checkpoint are on HDFS, on S3, and on a file system that cannot
            replace files
  outages   the Kafka broker or the database is stopped or killed, and started again
  disk      the disk with checkpoint and outputs is full, or becomes read-only
  clock     the clock of all processes jumps by an hour, with the package faketime
  rescale   a checkpoint is rescaled or moved to the other store, and this command is killed
"""

import os
import random
import shutil
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import cache
from pathlib import Path
from typing import Any

from attrs import frozen
from tests.qualify import faults, outer_faults
from tests.qualify.command import Shown, add_seed, directory_of, end_on_signals, need_services, parser_of
from tests.qualify.faulted_run import BY_KEY, FaultedRun, Setup
from tests.qualify.faults import Fault
from tests.qualify.figures import Piece
from tests.qualify.systems import (
    QUIET,
    SPARK_HOME,
    Systems,
    on_cluster,
    on_remote,
    shared_kafka,
)
from tests.services import KafkaLogin, OwnService, bucket, new_database, new_storage, own_service
from tests.spark.clusters import cluster

from amadou_runtime.spark import session

FAULTS_PER_RUN = 5
FILES, KAFKA, POSTGRES = ("files",), ("once",), ("postgres",)
ALL_SINKS = ("kafka", "once", "postgres", "files")


@frozen
class Part:
    """A part of `scripts/qualify`.

    :param kinds: the kinds of faults; a kind can be there more than once
    :param sources: the sources of which one is drawn, as of `sinks`
    :param services: those that have to run
    :param prepare: yields the systems, besides those that the sinks need
    """

    kinds: Sequence[str]
    sources: Sequence[str] = ("files", "kafka")
    sinks: Sequence[tuple[str, ...]] = (FILES, KAFKA, POSTGRES, ALL_SINKS)
    services: Sequence[str] = ("kafka", "postgres")
    prepare: "Callable[[random.Random, Path, ExitStack], tuple[dict[str, Any], dict[str, Fault]]]" = (
        lambda drawn, directory, stack: ({}, {})
    )


def _on_cluster(drawn: random.Random, directory: Path, stack: ExitStack) -> tuple[dict[str, Any], dict[str, Fault]]:
    return on_cluster(stack.enter_context(cluster(SPARK_HOME, directory))), {}


@cache
def _session() -> Any:
    """A session with which this process reads and writes remote files."""
    return session("qualify", master="local[1]", conf={**QUIET, **bucket().spark_conf})


def _on_remote(drawn: random.Random, directory: Path, stack: ExitStack) -> tuple[dict[str, Any], dict[str, Fault]]:
    return on_remote(new_storage(drawn.choice(["hdfs", "s3", "other"]), directory), _session()), {}


def _own_services(drawn: random.Random, directory: Path, stack: ExitStack) -> tuple[dict[str, Any], dict[str, Fault]]:
    """A broker and a database for one run, and their outages."""

    def own(name: str) -> OwnService:
        services = own_service(name, directory / name)
        stack.callback(lambda: next(services, None))
        return next(services)

    kafka, postgres = own("kafka"), own("postgres")
    login = KafkaLogin(*(kafka.variables[f"AMADOU_KAFKA{name}"] for name in ("_SASL", "_USER", "_PASSWORD")))
    kinds = [outer_faults.outage(kafka, "broker"), outer_faults.crash(kafka, "broker")]
    kinds += [outer_faults.outage(postgres, "database"), outer_faults.crash_of_database(postgres)]
    own_kinds = {kind.name: kind for kind in kinds}
    return {"kafka": kafka.address, "login": login, "postgres": postgres.url}, own_kinds


def _small_disk(drawn: random.Random, directory: Path, stack: ExitStack) -> tuple[dict[str, Any], dict[str, Fault]]:
    return {"disk": stack.enter_context(outer_faults.small_disk(directory / "disk"))}, {}


def _own_clock(drawn: random.Random, directory: Path, stack: ExitStack) -> tuple[dict[str, Any], dict[str, Fault]]:
    return {"environment": outer_faults.clock_of(directory)}, {}


KINDS = {
    kind.name: kind
    for kind in (
        *(faults.DRIVER, faults.JAVA, faults.ALL, faults.INTERRUPT, faults.COMMIT),
        *(faults.TASK, faults.WORKER, faults.DAEMON, faults.EXECUTOR, faults.CLUSTER_WORKER),
        *(faults.LOST_VIEW, faults.TORN_VIEW),
        *(outer_faults.FULL_DISK, outer_faults.READ_ONLY_DISK, outer_faults.RESCALE),
        *(outer_faults.jump(1), outer_faults.jump(-1)),
    )
}
OF_VIEWS = ("lost view", "torn view")
IN_PROCESS = ("driver", "jvm", "driver and jvm", "commit", "commit", "commit", "task", "worker", "daemon", *OF_VIEWS)
PARTS = {
    "kills": Part((*IN_PROCESS, "Ctrl-C")),
    "cluster": Part((*IN_PROCESS, "executor", "executor", "cluster worker"), prepare=_on_cluster),
    "remote": Part(
        ("driver", "jvm", "driver and jvm", "commit", "commit"), FILES, (FILES,), ("hdfs", "s3"), prepare=_on_remote
    ),
    "outages": Part(
        ("broker", "killed broker", "database", "killed database"),
        ("kafka",),
        (("once", "postgres"), ("kafka", "postgres")),
        prepare=_own_services,
    ),
    "disk": Part(("full disk", "read-only disk"), FILES, (FILES,), (), prepare=_small_disk),
    # without Kafka: under libfaketime, the waits of librdkafka do not end, or end at once
    "clock": Part(
        ("an hour forward", "an hour back", "commit"), FILES, (FILES, POSTGRES), ("postgres",), prepare=_own_clock
    ),
    "rescale": Part(("rescaling", "rescaling", "commit")),
}


def main() -> int:
    part = sys.argv.pop(1) if sys.argv[1:2] and sys.argv[1] in PARTS else "PART"
    parser = parser_of(part, __doc__)
    add_seed(parser)
    parser.add_argument("--count", type=int, default=100, metavar="N", help="number of faults (default: 100)")
    known = sorted({*PARTS[part].kinds}) if part in PARTS else []
    parser.add_argument("--only", choices=known, metavar="KIND", help=f"one kind of fault: {', '.join(known)}")
    chosen = parser.parse_args()
    end_on_signals()
    if part not in PARTS:
        parser.error(f"name a part: {', '.join(PARTS)}")
    need_services(parser, *PARTS[part].services)
    if part == "disk" and (os.geteuid() or shutil.which("mount") is None):
        parser.error("only root may mount a small disk")
    if part == "clock" and (outer_faults.faketime() is None or shutil.which("cc") is None):
        parser.error("faketime or a C compiler is missing: run 'apt install faketime gcc libc6-dev' on Debian")
    allowed = [chosen.only] if chosen.only else PARTS[part].kinds
    piece = Piece(chosen.figures, part, append=chosen.append, seed=chosen.seed, count=chosen.count)
    only = f" --only '{chosen.only}'" if chosen.only else ""
    with Shown(part, chosen.count, "faults") as shown:
        for first in range(0, chosen.count, FAULTS_PER_RUN):
            seed, count = chosen.seed + first, min(FAULTS_PER_RUN, chosen.count - first)
            repeat = f"scripts/qualify {part} --seed {seed} --count {count}{only} --append"
            _one_run(part, seed, count, allowed, piece, shown, repeat)
    return int(piece.has_found)


def draw_setup(drawn: random.Random, part: Part, kinds: Sequence[str]) -> Setup:
    """Draw what a run is made of.

    :param kinds: the kinds of faults; only groups that are stored by key have views
    """
    stages, store = drawn.choice([(1, "groups"), (1, "log"), (2, "log")])  # several stages need the store log
    form: dict[str, Any] = dict(BY_KEY) if store == "log" and drawn.random() < 0.7 else {}
    if {*kinds} <= {*OF_VIEWS}:
        store, form = "log", dict(BY_KEY)
    return Setup(drawn.choice(part.sources), drawn.choice(part.sinks), stages, store, **form)


@contextmanager
def systems_of(setup: Setup, part: Part, drawn: random.Random, directory: Path) -> Iterator[tuple[Systems, Any]]:
    """The systems that a run needs, and faults of theirs."""
    words = {setup.source, *setup.sinks}
    with ExitStack() as stack:
        systems, kinds = part.prepare(drawn, directory, stack)
        if words & {"kafka", "once"}:
            systems = {**shared_kafka(), **systems}
        if "postgres" in words and "postgres" not in systems:
            systems["postgres"] = stack.enter_context(new_database())
        yield Systems(**systems), kinds


def _one_run(part: str, seed: int, count: int, allowed: Sequence[str], piece: Piece, shown: Shown, repeat: str) -> None:
    """Run a job, with a number of faults."""
    drawn = random.Random(seed)
    setup = draw_setup(drawn, PARTS[part], allowed)
    possible = [kind for kind in allowed if kind not in OF_VIEWS or setup.padding]
    kinds = [drawn.choice(possible) for _ in range(count)]
    shown.say(f"seed {seed}: {setup}, {', '.join(kinds)}")
    try:
        with (
            directory_of(f"{part}-{seed}") as directory,
            systems_of(setup, PARTS[part], drawn, directory) as (systems, own),
        ):
            run = FaultedRun(setup, directory, seed, systems)
            try:
                outcome = run.run([{**KINDS, **own}[kind] for kind in kinds])
            finally:
                run.close()
            piece.tried(Counter(name for name, _ in outcome.faults), runs=1, **outcome.counts)
            assert outcome.is_right, f"{outcome}\n{directory}"
    except Exception as error:
        shown.say(f"FAILED, repeat it with: {repeat}\n{type(error).__name__}: {error}")
        piece.found(f"{setup}: {type(error).__name__}: {error}", repeat)
    else:
        shown.advance(count, "nothing lost, nothing twice")


if __name__ == "__main__":
    sys.exit(main())
