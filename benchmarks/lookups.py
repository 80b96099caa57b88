"""Lookups of a slow service: the time of a batch whose events need an answer each.

python benchmarks/lookups.py
"""

import argparse
import asyncio
import statistics
import time
from typing import Any

from machine import machine

from amadou import Handler, Job, KeyedEvent, Lookup, MemorySource, SinkSpec, Subject
from amadou.event_time import from_micros
from amadou.plugins import BatchReport, hookimpl
from amadou_plugins.connectors import FunctionSink
from amadou_runtime import run

_SECONDS = 0.01


class Service:
    """A service that takes ten milliseconds for each call."""

    def __call__(self, keys: list[int]) -> dict[int, int]:
        time.sleep(_SECONDS)
        return {key: 2 * key for key in keys}


async def asynchronous(keys: list[int]) -> dict[int, int]:
    """Answer after ten milliseconds."""
    await asyncio.sleep(_SECONDS)
    return {key: 2 * key for key in keys}


class Enriched(Handler):
    """Adds the answer to each event."""

    out = SinkSpec(list)

    def __init__(self, fetch: Any, **settings: Any) -> None:
        self.answers: Any = Lookup(fetch, key=lambda event: event.value, name="answers", **settings)

    def key_event(self, record: int) -> KeyedEvent[int]:
        return KeyedEvent(record % 1000, from_micros(record), record)

    def on_event(self, subject: Subject, event: KeyedEvent[int]) -> None:
        self.out.collect(subject, [event.value, self.answers.get(subject, event.value)])


class Without(Enriched):
    """The same without a service."""

    def __init__(self) -> None:
        pass

    def on_event(self, subject: Subject, event: KeyedEvent[int]) -> None:
        self.out.collect(subject, [event.value, 2 * event.value])


class Reports:
    """Keeps the time of the first batch."""

    seconds = 0.0

    @hookimpl
    def amadou_batch_completed(self, batch: BatchReport) -> None:
        self.seconds = max(self.seconds, batch.seconds)


def seconds_of(handler: Handler, engine: Any, events: int) -> float:
    """Return the time of the batch with the events."""
    reports = Reports()
    sinks = {"out": FunctionSink(lambda values, batch: None)}
    job = Job("lookups", handler, {"in": MemorySource(range(events))}, sinks, plugins=[reports])
    run(job, engine=engine, master="local[2]")
    return reports.seconds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--events", type=int, default=10_000, help="events of the batch (default: 10,000)")
    parser.add_argument("--rounds", type=int, default=5, help="runs of each variant (default: 5)")
    parser.add_argument("--engines", default="embedded,spark", help="engines (default: embedded,spark)")
    options = parser.parse_args()
    print(*(f"{name}: {value}" for name, value in machine().items()), sep="\n")
    variants: dict[str, Any] = {
        "without a service": Without,
        "500 keys in a call": lambda: Enriched(Service()),
        "one key in a call, 128 at a time": lambda: Enriched(asynchronous, batch_size=1, concurrency=128),
    }
    for engine in options.engines.split(","):
        found: dict[str, list[float]] = {name: [] for name in variants}
        for _ in range(options.rounds + (engine == "spark")):
            for name, make in variants.items():
                found[name].append(seconds_of(make(), engine, options.events))
        for name, seconds in found.items():
            taken = seconds[-options.rounds :]
            print(f"{engine:<9} {name:<34} {statistics.median(taken):.2f} s, at most {max(taken):.2f} s", flush=True)


if __name__ == "__main__":
    main()
