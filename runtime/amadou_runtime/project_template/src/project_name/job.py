"""The job: it connects the handler to its source and its sinks."""

from datetime import timedelta

from amadou import Job, Param
from amadou_plugins.connectors import JsonLinesSink, JsonLinesSource

from project_name.handler import EventsPerMinute

job = Job(
    "project-name",
    handler=EventsPerMinute(),
    sources={"events": JsonLinesSource(Param("EVENTS", default="samples/"))},
    sinks={
        "counts": JsonLinesSink(Param("COUNTS", default="out/counts/")),
        "dead_letters": JsonLinesSink(Param("FAILED", default="out/failed/")),
    },
    # Events can arrive up to 30 seconds out of order. The run drops and counts events
    # that arrive later.
    watermark_delay=timedelta(seconds=30),
    late_events="drop",
    # A record that cannot be processed becomes a dead letter. More than one failure in
    # a hundred ends the run.
    on_error="dead_letter",
    max_dead_letters=0.01,
)
