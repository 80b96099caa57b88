"""Rows for later stages of a job.

The stateful stage keys the values of ports that feed other stages, in the task that has collected them. The stages in
between pass the rows on.
"""

from collections.abc import Iterator, Sequence
from time import perf_counter
from typing import Any

from amadou.engine import fed_output
from amadou_runtime.core.events import FED
from amadou_runtime.core.feeding import fed_records
from amadou_runtime.jobs.stages import errors_of_stage
from amadou_runtime.spark.clock import BatchTime
from amadou_runtime.spark.keying_stage import Rows, blocks_of
from amadou_runtime.spark.payload import Payload
from amadou_runtime.spark.rows import passed_row


def take_fed(payload: Payload, later: Sequence[str], outputs: dict[str, list[Any]]) -> Iterator[tuple[int, bytes]]:
    """Take the values for other stages from the outputs of a key range, and yield them as keyed rows.

    :param later: names of the stages that Spark processes after this one
    :raises AmadouError: a value cannot be keyed
    """
    fed = {port: outputs.pop(fed_output(port), []) for port in payload.load().job.feeds}
    for name in later:
        of = payload.of_stage(name)
        for source, feeds in of.load().job.fed_sources.items():
            if feeds.stage == payload.stage and fed[feeds.port]:
                yield from _keyed(of, source, fed[feeds.port])


def _keyed(payload: Payload, source: str, collected: list[Any]) -> Iterator[tuple[int, bytes]]:
    worker, time, began = payload.opened(), BatchTime.of_task(payload.stage), perf_counter()
    for records in blocks_of(fed_records(collected)):
        rows = Rows(payload, time, began)
        with errors_of_stage(payload.stage):
            rows.add_events(source, "", FED, records, worker)
        for number, chunk in rows.pairs():
            yield passed_row(payload.stage, number, chunk)
        began = perf_counter()
