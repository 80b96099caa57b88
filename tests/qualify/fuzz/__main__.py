"""Runs random jobs on an engine, and compares what they give with a model of docs/semantics.md.

A job has several stages with windows, joins, references, lookups, timers and state with a ttl; its script has late and
idle sources, restarts, crashes, snapshots, savepoints and random cuts into batches. Each script is made from the seed
and its number, and run on each store of the embedded engine, or on one of Spark. One that fails is made smaller, and
shown with what differs and the command that repeats it. With --append and without --seed, the scripts after the last
ones of the same engine are run.

Some faults are known, and some answers are open: scripts that depend on one are left out and counted, unless it is
switched on with --with (see --known).
"""

import argparse
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.qualify.command import Shown, add_seed, end_on_signals, parser_of
from tests.qualify.figures import Piece, read
from tests.qualify.fuzz.engines import STORES, can_run, engine_on, is_on_spark
from tests.qualify.fuzz.features import features_of
from tests.qualify.fuzz.generate import script_of
from tests.qualify.fuzz.known import ALL, Rules
from tests.qualify.fuzz.outcome import Outcome, outcome, smallest
from tests.qualify.fuzz.scripts import Script, from_json, listing, to_json

PROGRESS = 10.0
"""Seconds from one line of progress to the next."""


def main() -> int:
    parser = parser_of("fuzz", __doc__)
    add_seed(parser)
    parser.add_argument("--scripts", type=int, default=10_000, metavar="N", help="number of scripts (default: 10000)")
    parser.add_argument("--first", type=int, metavar="K", help="number of the first script (default: 0)")
    parser.add_argument("--engine", choices=list(STORES), default="embedded", help="default: embedded")
    parser.add_argument("--store", action="append", help="a store of the engine (default: all of them)")
    parser.add_argument(
        "--with", action="append", dest="on", default=[], metavar="NAME", help="a name of --known, or all"
    )
    parser.add_argument("--known", action="store_true", help="list what scripts are left out for")
    parser.add_argument("--script", type=Path, metavar="FILE", help="run a script that --shrunk has written")
    parser.add_argument("--shrunk", type=Path, metavar="DIRECTORY", help="write scripts that were made smaller here")
    parser.add_argument("--show", action="store_true", help="print the scripts")
    chosen = parser.parse_args()
    if chosen.known:
        print("\n".join(f"{known.name}: {'' if known.is_fault else 'open: '}{known.reason}" for known in ALL.values()))
        return 0
    try:
        rules = Rules(set(ALL) if "all" in chosen.on else {*chosen.on})
    except ValueError as error:
        parser.error(str(error))
    stores = chosen.store or STORES[chosen.engine]
    if unknown := {*stores} - {*STORES["both"]}:
        parser.error(f"unknown store {', '.join(sorted(unknown))}: use one of {', '.join(STORES['both'])}")
    end_on_signals()
    if chosen.script is not None:
        return run_file(chosen.script, stores, rules)
    if chosen.append and chosen.first is None:
        continue_after(chosen)
    chosen.first = chosen.first or 0
    return Fuzz(chosen, stores, rules).execute()


def run_file(file: Path, stores: Sequence[str], rules: Rules) -> int:
    script = from_json(file.read_text())
    print(listing(script))
    failed = False
    for store in stores:
        with sessions([store]) as spark, engine_on(store, spark) as engine:
            result = outcome(script, rules, engine)
        failed = failed or bool(result.kind)
        print(f"{store}: {result.left_out or result.kind or 'the same'}", *result.lines, sep="\n")
    return int(failed)


def continue_after(chosen: argparse.Namespace) -> None:
    """Continue with the seed and after the number of the last scripts of the same engine, unless a seed is set."""
    has_seed = any(word.split("=")[0] == "--seed" for word in sys.argv)
    for piece in reversed(read(chosen.figures)):
        of_this = piece["part"] == "fuzz" and piece["options"]["engine"] == chosen.engine
        if of_this and "next" in piece and (not has_seed or piece["seed"] == chosen.seed):
            chosen.seed, chosen.first = piece["seed"], piece["next"]
            return


@contextmanager
def sessions(stores: Sequence[str]) -> Iterator[Any]:
    """A local session if a store needs one."""
    if not any(map(is_on_spark, stores)):
        yield None
        return
    from amadou_runtime.spark.session import session

    spark = session("fuzz", master="local[1]", conf={"spark.ui.enabled": "false", "spark.sql.shuffle.partitions": "1"})
    try:
        yield spark
    finally:
        spark.stop()


class Fuzz:
    """Runs scripts, and stores the figures."""

    def __init__(self, chosen: argparse.Namespace, stores: Sequence[str], rules: Rules) -> None:
        self.chosen = chosen
        self.stores = stores
        self.rules = rules
        options = {"engine": chosen.engine, "first": chosen.first, "with": sorted(rules.on)}
        self.piece = Piece(chosen.figures, "fuzz", append=chosen.append, seed=chosen.seed, **options)
        self.covered: Counter[str] = Counter()
        self.left_out: Counter[str] = Counter()
        self.steps = 0
        self.failures = 0
        self.began = time.monotonic()

    def execute(self) -> int:
        numbers = range(self.chosen.first, self.chosen.first + self.chosen.scripts)
        with Shown("fuzz", self.chosen.scripts, "scripts") as shown, sessions(self.stores) as spark:
            tried, said = Counter(dict.fromkeys(self.stores, 0)), self.began
            counted = 0
            for done, number in enumerate(numbers, 1):
                self.play_script(number, tried, spark, shown)
                is_last = done == self.chosen.scripts
                if is_last or time.monotonic() > said + PROGRESS:
                    self.store(tried, number + 1)
                    rate = done / (time.monotonic() - self.began)
                    left_out = f", {self.left_out.total()} left out" if self.left_out else ""
                    shown.advance(done - counted, f"{rate:.1f} a second, {self.failures} failures{left_out}")
                    tried, said, counted = Counter(), time.monotonic(), done
        return int(self.piece.has_found)

    def store(self, tried: Counter[str], following: int) -> None:
        self.piece.measured(
            next=following,
            steps=self.steps,
            left_out=dict(sorted(self.left_out.items())),
            covered=dict(sorted(self.covered.items())),
        )
        self.piece.tried({f"scripts on {store}": count for store, count in tried.items()})

    def play_script(self, number: int, tried: Counter[str], spark: Any, shown: Shown) -> None:
        script = script_of(self.chosen.seed, number)
        if self.chosen.show:
            shown.say(f"script {number}\n{listing(script)}")
        for store in self.stores_of(number, script):
            with engine_on(store, spark) as engine:
                result = outcome(script, self.rules, engine)
                if result.left_out:
                    self.left_out[result.left_out] += 1
                    return
                tried[store] += 1
                if result.kind:
                    self.show_failure(number, store, script, result, engine, shown)
                    break
        self.steps += len(script.steps)
        self.covered.update(features_of(script))

    def stores_of(self, number: int, script: Script) -> list[str]:
        """Return the stores on which a script is run: on Spark, where a script takes seconds, one after the other."""
        stores = [store for store in self.stores if can_run(store, script)]
        on_spark = [store for store in stores if is_on_spark(store)]
        return [*(store for store in stores if store not in on_spark), *on_spark[number % (len(on_spark) or 1) :][:1]]

    def show_failure(
        self, number: int, store: str, script: Script, result: Outcome, engine: dict[str, Any], shown: Shown
    ) -> None:
        self.failures += 1
        repeat = f"python -m tests.qualify.fuzz --seed {self.chosen.seed} --first {number} --scripts 1 --append"
        repeat += f" --engine {self.chosen.engine} --store {store}" + "".join(
            f" --with {name}" for name in self.rules.on
        )
        if not is_on_spark(store):
            script, result = smallest(script, self.rules, engine)
        shown.say(f"FAILED on {store}, repeat it with: {repeat}\n{listing(script)}\n" + "\n".join(result.lines))
        if self.chosen.shrunk is not None:
            self.chosen.shrunk.mkdir(parents=True, exist_ok=True)
            file = self.chosen.shrunk / f"{self.chosen.seed}-{number}-{store}.json"
            file.write_text(to_json(script) + "\n")
        self.piece.found(f"{result.kind} on {store}: {result.lines[0] if result.lines else ''}"[:500], repeat)


if __name__ == "__main__":
    sys.exit(main())
