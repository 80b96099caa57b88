"""The documents of the API: reports as values that can be written as JSON."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from typing import Any, Final

import attrs
import orjson

from amadou import BatchReport, Counts, DeadLetterReport, FailedBatch, LateEventReport
from amadou.text import redacted

_MOST_PARTITIONS: Final = 1_000


def shown(document: Mapping[str, Any]) -> dict[str, Any]:
    """Return a document as JSON has it, with secrets hidden."""
    found: dict[str, Any] = orjson.loads(redacted(orjson.dumps(document).decode()))
    return found


def counts_document(counts: Counts) -> dict[str, Any]:
    """Return counts as a document."""
    return attrs.asdict(counts) | {"dead_letters": counts.dead_letters}


def batch_document(batch: BatchReport | FailedBatch) -> dict[str, Any]:
    """Return a batch as a document, without its dead letters and late events."""
    if isinstance(batch, FailedBatch):
        return attrs.asdict(batch)
    return {
        "number": batch.number,
        "completed": batch.completed,
        "seconds": batch.seconds,
        "watermark": batch.watermark,
        "stage_seconds": batch.stage_seconds,
        "callback_seconds": batch.callback_seconds,
        "callback_calls": batch.callback_calls,
        "counts": counts_document(batch.counts),
    }


def letter_document(id_: str, batch: BatchReport, letter: DeadLetterReport) -> dict[str, Any]:
    """Return a dead letter as a document."""
    fields = attrs.asdict(letter, recurse=False)
    del fields["packed"]
    return {"id": id_, "batch": batch.number, "completed": batch.completed, **fields}


def late_document(batch: BatchReport, event: LateEventReport) -> dict[str, Any]:
    """Return a late event as a document."""
    fields = attrs.asdict(event, recurse=False)
    late = (event.watermark - event.timestamp).total_seconds()
    return {"batch": batch.number, "completed": batch.completed, "late_seconds": late, **fields}


def source_documents(names: Sequence[str], batch: BatchReport) -> list[dict[str, Any]]:
    """Return the progress of each source: that of its partition that is furthest behind."""
    found = []
    for name in names:
        partitions = [each for each in batch.partitions if each.source == name]
        lags = [each.lag for each in partitions if each.lag is not None]
        times = [each.newest for each in partitions if each.newest is not None]
        ages = [each.age.total_seconds() for each in partitions if each.age is not None]
        found.append(
            {
                "name": name,
                "newest": max(times, default=None),
                "oldest": min(times, default=None),
                "lag": sum(lags) if lags else None,
                "age_seconds": max(ages, default=None),
                "holds_back": any(each.holds_back for each in partitions),
                "records": batch.counts.records.get(name, 0),
                "held": batch.counts.held.get(name, 0),
                "down": batch.down.get(name),
            }
        )
    return found


def partition_documents(batch: BatchReport) -> list[dict[str, Any]]:
    """Return the progress of each partition, of 1,000 at most."""
    return list(islice(_partitions(batch), _MOST_PARTITIONS))


def _partitions(batch: BatchReport) -> Iterator[dict[str, Any]]:
    for each in batch.partitions:
        yield {
            "source": each.source,
            "partition": each.partition,
            "newest": each.newest,
            "lag": each.lag,
            "age_seconds": None if each.age is None else each.age.total_seconds(),
            "holds_back": each.holds_back,
        }


def pipeline_document(
    description: Mapping[str, Any],
    last: BatchReport | None,
    totals: Counts,
    recent: Sequence[Mapping[str, Any]],
    seconds: float,
) -> dict[str, Any]:
    """Return a job's description, with the rates and the totals of its sources and ports.

    :param last: the last batch
    :param totals: the counts of the run
    :param recent: the counts of recent batches, as documents
    :param seconds: the time in which they were completed
    """
    names = [each["name"] for each in description.get("sources", ())]
    sources = {} if last is None else {each["name"]: each for each in source_documents(names, last)}
    records: Counter[str] = Counter()
    outputs: Counter[str] = Counter()
    for counts in recent:
        records.update(counts["records"])
        outputs.update(counts["outputs"])
    return {
        "description": description,
        "events_per_second": sum(counts["events"] for counts in recent) / seconds,
        "keys": 0 if last is None else last.counts.keys,
        "sources": {
            name: {
                "records_per_second": records[name] / seconds,
                "records": totals.records.get(name, 0),
                "held": sources.get(name, {}).get("held", 0),
                "down": sources.get(name, {}).get("down"),
                "holds_back": sources.get(name, {}).get("holds_back", False),
            }
            for name in names
        },
        "ports": {
            name: {"values_per_second": outputs[name] / seconds, "values": totals.outputs.get(name, 0)}
            for name in (port["name"] for port in description.get("ports", ()))
        },
    }
