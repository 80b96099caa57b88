"""Sums by key and minute, with the open windows in memory."""

from datetime import timedelta

from amadou import Job, Param
from amadou_plugins.aggregates import Sum
from amadou_plugins.connectors import JsonLinesSink, LinesSource
from amadou_plugins.windows import TumblingWindow, windowed
from amadou_runtime import main

job = Job(
    "sums",
    windowed(key="key", timestamp="at", window=TumblingWindow(timedelta(minutes=1), Sum("n"), storage="memory")),
    sources={"in": LinesSource(Param("IN"), max_files_per_batch=1)},
    sinks={"results": JsonLinesSink(Param("OUT"))},
    idle_timeout=timedelta(minutes=10),
)

if __name__ == "__main__":
    main(job)
