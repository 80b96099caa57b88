"""What the check for changes in place costs a test run: in the tests of the examples and recipes, and with handlers
that do little but read and assign values that can be changed in place.

python benchmarks/in_place.py
"""

import argparse
import json
import time
from collections.abc import Callable, Iterable
from contextlib import redirect_stdout
from datetime import datetime, timedelta, timezone
from functools import partial
from io import StringIO
from pathlib import Path
from statistics import median
from typing import Any

import pytest
from attrs import field, frozen
from machine import heading, machine
from rich.console import Console
from rich.table import Table

from amadou import Handler, Job, KeyedEvent, ListSpec, MapSpec, MemorySink, MemorySource, SinkSpec, Subject, ValueSpec
from amadou_runtime import TestRun

CHECKOUT = Path(__file__).resolve().parent.parent
TESTS = [str(CHECKOUT / "examples"), str(CHECKOUT / "tests" / "test_recipes.py")]
OPTIONS = ["-q", "-p", "no:cacheprovider", "-m", "not spark", "-W", "ignore::pytest.PytestAssertRewriteWarning"]
START = datetime(2025, 1, 1, tzinfo=timezone.utc)
ITEMS = 10
console = Console(highlight=False)


@frozen
class Page:
    """A value that a handler keeps."""

    name: str
    views: int = 0
    users: list[str] = field(factory=list)


class Base(Handler):
    """Reads and assigns a value for each event."""

    out = SinkSpec(int)

    def key_event(self, record: tuple[int, int]) -> KeyedEvent:
        return KeyedEvent(record[0], START + timedelta(seconds=record[1]), record[1])


class Value(Base):
    """A value is an object."""

    page = ValueSpec(Page | None)

    def on_event(self, subject: Subject, event: KeyedEvent) -> None:
        state = self.page.state_for(subject)
        page = state.value or Page("start")
        state.value = Page(page.name, page.views + 1, page.users)
        self.out.collect(subject, page.views)


class Entries(Base):
    """The values of a map are objects, of which one is used."""

    pages = MapSpec(str, Page)

    def on_event(self, subject: Subject, event: KeyedEvent) -> None:
        pages = self.pages.state_for(subject)
        name = f"page {event.value % ITEMS}"
        page = pages.get(name, Page(name))
        pages[name] = Page(name, page.views + 1, page.users)
        self.out.collect(subject, page.views)


class Items(Base):
    """The items of a list are objects, all of which are read."""

    pages = ListSpec(Page)

    def on_event(self, subject: Subject, event: KeyedEvent) -> None:
        pages = self.pages.state_for(subject)
        pages.append(Page("a page", event.value))
        del pages[:-ITEMS]
        self.out.collect(subject, sum(page.views for page in pages))


class Lists(Base):
    """A value is a list of numbers."""

    views = ValueSpec(list[int])

    def on_event(self, subject: Subject, event: KeyedEvent) -> None:
        state = self.views.state_for(subject)
        state.value = [*(state.value or [])[-ITEMS:], event.value]
        self.out.collect(subject, event.value)


class Clock:
    """A plugin of pytest that measures the CPU time within `TestRun.run`."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.seconds = 0.0
        self.runs = 0
        run = TestRun.run

        def timed(*arguments: Any, **options: Any) -> Any:
            started = time.process_time()
            try:
                return run(*arguments, **options)
            finally:
                self.seconds += time.process_time() - started
                self.runs += 1

        monkeypatch.setattr(TestRun, "run", timed)


def main() -> None:
    """Measure, and print a table."""
    parser = argparse.ArgumentParser(
        description="CPU time of test runs with the check for changes in place, in multiples of that without it.",
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    parser.add_argument("--events", type=int, default=20_000, help="events of each run of a handler")
    parser.add_argument("--rounds", type=int, default=7, help="number of runs with and without the check, in turns")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures to a file")
    options = parser.parse_args()
    described = machine(java=False)
    console.print(f"[bold]{heading(described)}[/bold]", soft_wrap=True)

    measured = {"tests of examples and recipes": ratios(tests_of_examples, options.rounds)}
    for class_ in (Value, Lists, Entries, Items):
        measured[str(class_.__doc__)] = ratios(partial(a_run, class_(), options.events), options.rounds)
    shown = Table("test runs", "with the check", "min", "max", title="Cost of the check for changes in place")
    for what, figures in measured.items():
        shown.add_row(what, *(f"{figure:.2f}x" for figure in (median(figures), min(figures), max(figures))))
    console.print(shown)
    if options.json:
        options.json.write_text(json.dumps({"machine": described, "ratios": measured}, indent=2) + "\n")


def ratios(seconds_of: Callable[[], float], rounds: int) -> list[float]:
    """Return the CPU time with the check as a multiple of that without it, for each round after one that warms up."""
    found = []
    for number in range(rounds + 1):
        seconds = {is_checked: measure(seconds_of, is_checked) for is_checked in ordered(number)}
        found.append(seconds[True] / seconds[False])
    return found[1:]


def ordered(number: int) -> Iterable[bool]:
    """Return the order of a round: first with and then without the check, or the other way round."""
    return (True, False) if number % 2 else (False, True)


def measure(seconds_of: Callable[[], float], is_checked: bool) -> float:
    """Return the CPU seconds of a measurement with or without the check."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Handler, "check_in_place", is_checked)
        return seconds_of()


def tests_of_examples() -> float:
    """Return the CPU seconds of all test runs in the tests of the examples and recipes."""
    with pytest.MonkeyPatch.context() as patch, redirect_stdout(StringIO()) as printed:
        clock = Clock(patch)
        status = pytest.main([*OPTIONS, *TESTS], plugins=[clock])
    if status or not clock.runs:
        raise SystemExit(f"The tests of the examples failed:\n{printed.getvalue()}")
    return clock.seconds


def a_run(handler: Handler, events: int) -> float:
    """Return the CPU seconds of a test run with 1,000 keys, in ten batches."""
    job = Job("cost", handler, {"in": MemorySource()}, {"out": MemorySink()})
    run = TestRun(job)
    for number in range(events):
        run.add_record((number % 1000, number))
        if number % (events // 10) == 0:
            run.end_batch()
    started = time.process_time()
    run.run()
    return time.process_time() - started


if __name__ == "__main__":
    main()
