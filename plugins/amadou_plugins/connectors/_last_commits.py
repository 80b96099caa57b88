"""Remembers the batches that this process has committed, for sinks that have to look for an interrupted commit."""

from amadou.plugins import SinkBatch


class LastCommits:
    """The last batch that this process committed, by place, kind, run and port.

    Only an interrupted commit leaves something of a batch behind. So a sink has to look for it only if the batch before
    was not committed by this process, and looking can be slow.
    """

    def __init__(self) -> None:
        self._numbers: dict[tuple[str, str, str, str], int] = {}

    def begin(self, place: str, batch: SinkBatch, kind: str = "") -> bool:
        """Begin to commit a batch. Return `True` if an interrupted commit may have left something of this batch.

        :param place: where the sink writes
        :param kind: what it writes there, if other sinks of the port can write something else
        """
        return self._numbers.pop((place, kind, batch.run, batch.port), None) != batch.number - 1

    def end(self, place: str, batch: SinkBatch, kind: str = "") -> None:
        """Note that a batch has been committed; see `begin`."""
        self._numbers[place, kind, batch.run, batch.port] = batch.number

    def forget(self, place: str) -> None:
        """Forget the batches of a place, when a run begins: another process may have committed some since."""
        for key in [key for key in self._numbers if key[0] == place]:
            del self._numbers[key]
