"""The streams that a query reads: their names, and their places in the checkpoint.

From Spark 4.2 on, a checkpoint identifies streams by name. Older versions number them in the order in which the query
reads them. Then, the checkpoint has the file `streams.json` with the names in this order, and every later run reads the
same streams, on newer versions of Spark as well.
"""

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

import attrs

from amadou import Job
from amadou.errors import CheckpointError
from amadou.plugins import Source
from amadou.spark_versions import names_sources
from amadou.text import qualified
from amadou_runtime.core.references import notifies_keys
from amadou_runtime.runs.files import Files

ORDER: Final = "streams.json"
"""The file with the names of the streams in order."""
_CONF: Final = {
    "spark.sql.streaming.queryEvolution.enableSourceEvolution": "true",
    "spark.sql.streaming.offsetLog.formatVersion": "2",
}
_NONE: Final = "-"
"""What Spark writes for a stream that has no offset yet."""
_INSTEAD: Final = (
    "take a savepoint (amadou savepoint CHECKPOINT DIR), and start from it with a new checkpoint directory"
)


def stream_name(source: str, stage: str = "") -> str:
    """Return Spark's name for a source's stream. The name does not change if other sources are added or removed.

    :param stage: the name of the source's stage; empty in a job with one handler
    """
    return "amadou_" + re.sub(r"[^A-Za-z0-9]", lambda found: f"_{ord(found[0]):x}_", qualified(stage, source))


def source_name(stream: str) -> str:
    """Return the source whose stream has a name; see `stream_name`."""
    return re.sub(r"_([0-9a-f]+)_", lambda found: chr(int(found[1], 16)), stream.removeprefix("amadou_"))


WAKE_UPS: Final = stream_name("")
"""The name of the stream of the wake-up source."""
REPLAY_STREAM: Final = "amadou__replay"
"""The name of the stream of dead letters, followed by `stream_name` of a stage. No source's stream has such a name."""


def replay_stream(stage: str) -> str:
    """Return the name of the stream with the dead letters of a stage."""
    return f"{REPLAY_STREAM}{stream_name(stage)}" if stage else REPLAY_STREAM


def needs_wake_ups(job: Job) -> bool:
    """Return `True` if a job needs the wake-up source."""
    return bool(job.stages) or any(stage.idle_after or notifies_keys(stage) for stage in job.by_stage.values())


@attrs.frozen
class Streams:
    """The streams of a query.

    :param order: the names in the order in which Spark numbers the streams; `None` if Spark identifies them by name
    """

    order: Sequence[str] | None

    @classmethod
    def of(cls, files: Files) -> "Streams":
        """Return the streams of a checkpoint for which `begin_streams` was called."""
        return cls(_order(files))

    @classmethod
    def new(cls) -> "Streams":
        """Return the streams of a query whose checkpoint is only used once."""
        return cls(None if names_sources() else ())

    def reader(self, spark: Any, name: str, start: str | None = None, *, ends: bool = False) -> Any:
        """Return a `DataStreamReader` for a stream.

        :param start: the offset at which the stream continues
        :param ends: `True` if the run ends when all available input has been read
        """
        if self.order is None:
            for setting, value in _CONF.items():
                spark.conf.set(setting, value)
            return spark.readStream.name(name)
        options = {} if start is None else {Source.START_OPTION: start}
        return spark.readStream.options(**options, **{Source.ENDS_OPTION: str(ends)})


def begin_streams(files: Files, job: Job, stages: Sequence[str]) -> Streams:
    """Return the streams of a job's query.

    :param stages: the names of the stages, in the order in which Spark processes them
    :raises CheckpointError: the checkpoint was made by another version of Spark, or has other streams
    """
    order, used = _order(files), files.exists("offsets")
    if order is None and names_sources():
        return Streams(None)
    streams = _in_order(job, stages)
    if order is None and used:
        raise CheckpointError(
            files.checkpoint, f"it was made by Spark 4.2 or newer. To use an older version, {_INSTEAD}"
        )
    if order is not None and used and sorted(order) != sorted(streams):
        changed = ", ".join(sorted(source_name(name) or "wake-ups for idle_timeout" for name in {*order} ^ {*streams}))
        raise CheckpointError(
            files.checkpoint,
            f"it was made by a Spark before 4.2, which cannot add or remove sources ({changed}): {_INSTEAD}",
        )
    if order is None or not used:
        files.write(ORDER, json.dumps(streams))
        order = streams
    return Streams(order)


def _in_order(job: Job, stages: Sequence[str]) -> list[str]:
    """Return the names of a job's streams in the order in which Spark numbers them. Spark begins with the last stage,
    whose rows are united with the results of those before.
    """
    return [
        *(name for stage in reversed(stages[1:]) for name in _of_stage(job, stage)),
        *((WAKE_UPS,) if needs_wake_ups(job) else ()),
        *_of_stage(job, stages[0]),
    ]


def _of_stage(job: Job, stage: str) -> Iterable[str]:
    yield replay_stream(stage)
    for source in job.by_stage[stage].stream_sources:
        yield stream_name(source, stage)


def _order(files: Files) -> list[str] | None:
    text = files.read(ORDER)
    return None if text is None else json.loads(text)


def planned_offsets(files: Files, number: int | None) -> dict[str, str]:
    """Return the end offsets that Spark planned for a batch, as JSON, by stream. Streams that have no offset yet are
    omitted.
    """
    lines = (files.read(f"offsets/{number}") or "").splitlines()
    version, lines = lines[:1], lines[2:]
    if version == ["v1"]:
        offsets = dict(zip(_order(files) or (), lines, strict=False))
    else:
        offsets = {name: offset for name, _, offset in (line.partition(":") for line in lines)}
    return {stream: offset for stream, offset in offsets.items() if offset != _NONE}


def offset_lines(files: Files, offsets: Mapping[str, str]) -> list[str]:
    """Return the lines of a batch's file with the end offsets of the streams."""
    order = _order(files)
    if order is None:
        return [f"{stream}:{offset}" for stream, offset in offsets.items()]
    return [offsets.get(stream, _NONE) for stream in order]


def stream_log(files: Files, stream: str) -> str:
    """Return the directory in the checkpoint in which Spark's built-in sources store the metadata of a stream."""
    order = _order(files)
    return f"sources/{stream if order is None or stream not in order else order.index(stream)}"


def is_woken(files: Files, number: int) -> bool:
    """Return `True` if the wake-up source adds rows to a batch, so that Spark calls every key range."""
    offsets, before = planned_offsets(files, number), planned_offsets(files, number - 1)
    return offsets.get(WAKE_UPS) != before.get(WAKE_UPS)
