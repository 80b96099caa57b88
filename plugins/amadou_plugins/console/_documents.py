"""The documents of the API: reports as values that can be written as JSON."""

import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from types import MappingProxyType
from typing import Any, Final

import attrs
import orjson

from amadou.plugins import BatchReport, Counts, DeadLetterReport, FailedBatch, LateEventReport
from amadou.text import qualified, redacted

_MOST_PARTITIONS: Final = 1_000
_TIME: Final = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:\d\d)")
_JOB: Final = """
    handler specs.name specs.kind specs.type lookups.name lookups.type sources.name sources.stage sources.port
    dependencies.source dependencies.needs ports.name ports.type ports.sinks.guarantee
"""
_LETTER: Final = "id callback source stage"
_KEPT: Final = {
    "overview": "job engine status sources.name stages.name partitions.source",
    "charts": "*.title *.unit",
    "pipeline": " ".join(
        ["description.job ports.*.readers stages.*.ports.*.readers"]
        + [f"description.{field} description.stages.*.{field}" for field in ("job", *_JOB.split())]
    ),
    "batches": "",
    "letters": " ".join(
        [f"dead_letters.{field}" for field in _LETTER.split()]
        + [f"late_events.{field}" for field in ("outcome", "source", "by", "stage")]
    ),
    "letter": _LETTER,
    "test": "id",
    "state": "state.*.type hidden",
    "biggest": "status",
    "message": "",
}
"""By document, the paths of the texts that do not come from data: words of the API, and names in the job's code. The
name ``*`` is any name. Items of lists have the path of the list.
"""


def _tree_of(paths: str) -> dict[str, Any]:
    """Return paths as nested dicts."""
    tree: dict[str, Any] = {}
    for path in paths.split():
        inner = tree
        for name in path.split("."):
            inner = inner.setdefault(name, {})
        inner[""] = {}
    return tree


_TREES: Final = {document: _tree_of(paths) for document, paths in _KEPT.items()}


def shown(kind: str, document: Mapping[str, Any]) -> dict[str, Any]:
    """Return a document as JSON has it, with secrets hidden in texts that come from data, and in the names of counters,
    which callbacks may make from data. Names of fields, names in the job's code, times and words of the API stay as
    they are, whatever the secrets are.

    :param kind: a key of `_KEPT`
    """
    found: dict[str, Any] = _hidden(orjson.loads(orjson.dumps(document)), _TREES[kind])
    return found


def _hidden(value: Any, kept: Mapping[str, Any]) -> Any:
    """
    :param kept: the paths of texts below the value that stay; see `_tree_of`
    """
    if isinstance(value, str):
        return value if "" in kept or _TIME.fullmatch(value) else redacted(value)
    if isinstance(value, list):
        return [_hidden(each, kept) for each in value]
    if not isinstance(value, dict):
        return value
    found = {name: _hidden(each, kept.get("*") or kept.get(name) or {}) for name, each in value.items()}
    if isinstance(counters := found.get("counters"), dict):
        found["counters"] = {redacted(name): number for name, number in counters.items()}
    return found


def counts_document(counts: Counts) -> dict[str, Any]:
    """Return counts as a document."""
    return attrs.asdict(counts) | {"dead_letters": counts.dead_letters}


def batch_document(batch: BatchReport | FailedBatch) -> dict[str, Any]:
    """Return a batch as a document, without its dead letters and late events."""
    if isinstance(batch, FailedBatch):
        return attrs.asdict(batch)
    stages = {
        name: {"watermark": of.watermark, "counts": counts_document(of.counts)} for name, of in batch.stages.items()
    }
    return {
        "number": batch.number,
        "completed": batch.completed,
        "seconds": batch.seconds,
        "watermark": batch.watermark,
        "stage_seconds": batch.stage_seconds,
        "callback_seconds": batch.callback_seconds,
        "callback_calls": batch.callback_calls,
        "counts": counts_document(batch.counts),
        **({"stages": stages} if stages else {}),
    }


def stage_documents(batch: BatchReport, recent: Sequence[Mapping[str, Any]], seconds: float) -> list[dict[str, Any]]:
    """Return the current figures of each stage; an empty list for a job with one handler.

    :param batch: the last batch
    :param recent: recent batches as documents
    :param seconds: the time in which they were completed
    """
    return [
        {
            "name": name,
            "watermark": of.watermark,
            "events_per_second": sum(each["stages"][name]["counts"]["events"] for each in recent) / seconds,
            "keys": of.counts.keys,
            "timers_pending": of.counts.timers_pending,
        }
        for name, of in batch.stages.items()
    ]


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
    found: list[dict[str, Any]] = []
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
    """Return a job's description, with the rates and the totals of the sources and ports of its handler or its stages.

    :param last: the last batch
    :param totals: the counts of the run
    :param recent: recent batches, as documents
    :param seconds: the time in which they were completed
    """
    flow = _Flow(last, totals, [each["counts"] for each in recent], seconds)
    stages = description.get("stages")
    document = {"description": description, **flow.figures()}
    if stages is None:
        return {**document, **flow.of_handler(description)}
    now = {} if last is None else {each["name"]: each for each in stage_documents(last, recent, seconds)}
    idle = {"events_per_second": 0, "keys": 0}
    return {
        **document,
        "stages": {
            name: {**{figure: now.get(name, idle)[figure] for figure in idle}, **flow.of_handler(of, name, stages)}
            for name, of in stages.items()
        },
    }


@attrs.frozen
class _Flow:
    """The rates and totals of sources and ports; for the parameters, see `pipeline_document`."""

    last: BatchReport | None
    totals: Counts
    recent: Sequence[Mapping[str, Any]]
    seconds: float

    def figures(self) -> dict[str, Any]:
        events = sum(counts["events"] for counts in self.recent)
        return {"events_per_second": events / self.seconds, "keys": 0 if self.last is None else self.last.counts.keys}

    def of_handler(
        self, description: Mapping[str, Any], stage: str = "", stages: Mapping[str, Any] = MappingProxyType({})
    ) -> dict[str, Any]:
        """Return the sources and ports of a handler.

        :param description: the description of the job or stage
        :param stage: the stage's name; empty in a job with one handler
        :param stages: the descriptions of all stages
        """
        names = {each["name"]: qualified(stage, each["name"]) for each in description.get("sources", ())}
        ports = {each["name"]: qualified(stage, each["name"]) for each in description.get("ports", ())}
        sources = [] if self.last is None else source_documents(list(names.values()), self.last)
        return {
            "sources": {
                name: {
                    "records_per_second": self._rate("records", full_name),
                    "records": self.totals.records.get(full_name, 0),
                    "held": now.get("held", 0),
                    "down": now.get("down"),
                    "holds_back": now.get("holds_back", False),
                    "newest": now.get("newest"),
                }
                for (name, full_name), now in zip(names.items(), sources or [{}] * len(names), strict=True)
            },
            "ports": {name: self._port(full_name, _readers(stages, stage, name)) for name, full_name in ports.items()},
        }

    def _port(self, name: str, readers: Sequence[str]) -> dict[str, Any]:
        """
        :param readers: the sources that read the port, with their stages: they count the values of ports without sinks
        """
        kind, by = ("records", readers[0]) if readers else ("outputs", name)
        total = getattr(self.totals, kind).get(by, 0)
        read = {"readers": [reader.partition(".")[0] for reader in readers]} if readers else {}
        return {"values_per_second": self._rate(kind, by), "values": total, **read}

    def _rate(self, kind: str, name: str) -> float:
        return float(sum(counts[kind].get(name, 0) for counts in self.recent) / self.seconds)


def _readers(stages: Mapping[str, Any], stage: str, port: str) -> list[str]:
    """Return the sources that read a port, as names with the stage: ``top.sums``."""
    return [
        qualified(name, source["name"])
        for name, of in stages.items()
        for source in of["sources"]
        if (source.get("stage"), source.get("port")) == (stage, port)
    ]
