"""Reads the tables that are sources of references (`semantics.md` 37 e)."""

from typing import Any, NamedTuple

from amadou import TableSource
from amadou_runtime.core.dead_letter_limit import Failures
from amadou_runtime.core.events import Chunk
from amadou_runtime.core.keying import Keying
from amadou_runtime.core.references import ReferenceTable, updates_of
from amadou_runtime.core.samples import Samples


class TableRead(NamedTuple):
    """The result of reading a table source.

    :param table: the reference with the rows
    :param rows: number of rows for which `key_event` was called
    :param letters: encoded dead letters of rows that could not be keyed
    :param failures: the failures of these rows
    :param samples: a few of these dead letters
    """

    table: ReferenceTable
    rows: int
    letters: list[Any]
    failures: Failures
    samples: Samples


class TableReader:
    """Reads a table source. A row that fails is a dead letter when it is read for the first time.

    :param keying: the `Keying` of the source, with one key group
    """

    def __init__(self, source: TableSource, keying: Keying) -> None:
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
        self._failed.intersection_update(map(repr, records if self._failed else ()))
        new = [record for record in records if repr(record) not in self._failed] if self._failed else records
        keyed = keying.pack(new, now)
        self._failed.update(map(repr, keying.take_failed_rows()))
        updates = (updates_of([Chunk("", b"", events)]) for events in keyed.events.values())
        values = {key: packed for update in updates for key, _, packed in update}
        rows = {key: packed for key, packed in values.items() if packed is not None}
        changed = table.changed(table.replaced_by(rows, now, removes=not self._failed), now)
        return TableRead(changed, len(new), keyed.letters, keying.take_failures(), keying.samples.take())
