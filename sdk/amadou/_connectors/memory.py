from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

from amadou._connectors.connector import BufferingWriter, Sink, SinkBatch, SinkWriter, Source
from amadou._state.copying import copied_if_possible
from amadou._state.encoding import pack, unpack
from amadou.errors import AmadouError, SourceError
from amadou.paths import local_path

if TYPE_CHECKING:
    from pathlib import Path


class MemorySource(Source):
    """A source that delivers records from memory, for tests and notebooks. It works on both engines.

    :param records: any Python values. On Spark, records are stored in the checkpoint, and must be values that
        `ValueSpec(Any)` can store
    :param key_event: function that turns the records into events; by default the handler's `key_event`
    """

    def __init__(self, records: Iterable[Any] = (), *, key_event: Callable[[Any], Any] | None = None) -> None:
        self._records = list(records)
        self.key_event = key_event

    def add(self, *records: Any) -> None:
        """Add records for the next run."""
        self._records.extend(records)

    def records(self) -> list[Any]:
        return list(self._records)

    def read_from(self, position: Any) -> tuple[list[tuple[str, list[Any]]], int]:
        """Return the remaining records; the position is the number of records read."""
        return [("", list(map(copied_if_possible, self._records[position or 0 :])))], len(self._records)

    def read_stream(self, spark: Any, reader: Any, name: str, checkpoint: str) -> Any:
        directory = local_directory(checkpoint, "MemorySource") / "memory" / name
        try:
            self._write(directory)
        except OSError as error:
            raise SourceError(f"MemorySource cannot write to {directory}: check the disk ({error.strerror})") from error
        return reader.text(str(directory)).selectExpr(
            "value AS record", "_metadata.file_path AS partition", "_metadata.file_block_start AS position"
        )

    def _write(self, directory: "Path") -> None:
        """Write the records that have not been written yet."""
        import base64  # not at the top: importing it is slow

        directory.mkdir(parents=True, exist_ok=True)
        if any(directory.glob("records-*.txt")):
            raise SourceError(
                f"the records in {directory} are pickled, and amadou no longer reads pickled records: use a new "
                "checkpoint; or give the MemorySource another name, and it delivers all of its records again"
            )
        written = sum(int(path.stem.split("-")[1]) for path in directory.glob("packed-*.txt"))
        if len(self._records) > written or not written:
            added = self._records[written:]
            text = b"".join(
                base64.b64encode(_packed(record, at)) + b"\n" for at, record in enumerate(added, written + 1)
            )
            beside = directory / ".new"  # a partial write, as on a full disk, must not count as written
            beside.write_bytes(text)
            beside.replace(directory / f"packed-{len(added):09}-at-{written:09}.txt")

    @staticmethod
    def to_records(cells: Any) -> Iterable[Any]:
        """Return the records in cells of the column `record`."""
        import base64

        return (unpack(base64.b64decode(cell)) for cell in cells.to_pylist())

    def __repr__(self) -> str:
        return f"MemorySource({len(self._records)} records)"


class MemorySink(Sink):
    """An exactly-once sink that stores values in memory, for tests and notebooks. It works on both engines."""

    guarantee = "exactly-once"

    def __init__(self) -> None:
        self._batches: dict[tuple[str, str, int], list[Any]] = {}

    @property
    def records(self) -> list[Any]:
        """The collected values, batch by batch."""
        return [value for batch in self._batches.values() for value in batch]

    def clear(self) -> None:
        """Remove the collected values."""
        self._batches.clear()

    def open(self, batch: SinkBatch, part: str) -> SinkWriter:
        return BufferingWriter()

    def commit(self, batch: SinkBatch, parts: Sequence[Any]) -> None:
        decode = batch.codec.decode
        self._batches[batch.run, batch.port, batch.number] = [decode(encoded) for part in parts for encoded in part]

    def __getstate__(self) -> dict[str, Any]:
        return {"_batches": {}}  # the collected values stay on the driver

    def __repr__(self) -> str:
        return f"MemorySink({len(self.records)} records)"


def _packed(record: Any, number: int) -> bytes:
    try:
        return pack(record)
    except AmadouError as error:
        raise SourceError(f"record {number} of a MemorySource cannot be stored in the checkpoint: {error}") from error


def local_directory(checkpoint: str, source: str) -> "Path":
    """Return the checkpoint as a local path.

    :param source: the name of the source's class, for the error
    :raises SourceError: the checkpoint is not a local directory
    """
    from pathlib import Path

    path = local_path(checkpoint)
    if "://" in path:
        raise SourceError(f"{source} cannot store its records in the checkpoint {checkpoint}: use a local checkpoint")
    return Path(path)
