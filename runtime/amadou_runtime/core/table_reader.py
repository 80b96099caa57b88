"""Reads the tables that are sources of references (`semantics.md` 37 e)."""

from typing import NamedTuple

from amadou.plugins import TableSource
from amadou_runtime.core.events import Chunk
from amadou_runtime.core.keying import Keying
from amadou_runtime.core.references import ReferenceTable, updates_of
from amadou_runtime.core.tally import BatchTally


class TableRead(NamedTuple):
    """The result of reading a table source.

    :param table: the reference with the rows
    :param tally: the dead letters of rows that could not be keyed. Calls and failures have the name of the table, so
        that the limit on dead letters applies to it alone
    """

    table: ReferenceTable
    tally: BatchTally


class TableReader:
    """Reads a table source. A row that fails is a dead letter when it is read for the first time.

    :param name: the source's name
    :param keying: the `Keying` of the source, with one key group
    """

    def __init__(self, name: str, source: TableSource, keying: Keying) -> None:
        self._callback = f"key_event of {name}"
        self._source = source
        self.keying = keying
        self._failed: set[str] = set()
        """The rows that failed when the table was last read, as text."""

    def read(self, table: ReferenceTable, now: int) -> TableRead:
        """Read all rows, and return the reference with them. As long as a row fails, it is not known which entry is
        its own: no entries are removed.

        :param now: the clock time in microseconds
        :raises SourceError: the table cannot be read
        :raises CallbackError: `key_event` failed, and the job does not write dead letters
        """
        records, keying = list(self._source.records()), self.keying
        texts = list(map(repr, records)) if self._failed else []
        self._failed.intersection_update(texts)
        known = self._failed
        new = [record for record, text in zip(records, texts, strict=True) if text not in known] if texts else records
        keyed = keying.pack(new, now)
        self._failed.update(map(repr, keyed.failed))
        updates = (updates_of([Chunk("", b"", events)]) for events in keyed.events.values())
        rows = {key: packed for update in updates for key, _, packed in update}
        changed = table.changed(table.replaced_by(rows, now, removes=not self._failed), now)
        tally = keying.tally(keyed, len(new), "", 0.0)
        failures = {self._callback: tally.failures["key_event"]} if tally.failures else {}
        calls = {self._callback: len(new)} if failures else {}
        return TableRead(
            changed, BatchTally(tally.outputs, callback_calls=calls, failures=failures, samples=tally.samples)
        )
