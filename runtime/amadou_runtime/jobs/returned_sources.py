"""Rejects sources that were removed from a job and later added again."""

from collections.abc import Collection, Iterable

from amadou.errors import CheckpointError


def check_returned(of: str, sources: Iterable[str], ever: Collection[str], last: Collection[str]) -> None:
    """Reject sources that earlier runs read but the last run did not have.

    :param of: the checkpoint or snapshot that the run resumes from, for the error message
    :param sources: the job's sources
    :param ever: the sources that any earlier run read
    :param last: the sources that the last run had
    :raises CheckpointError: the job has a source that was removed and later added again
    """
    returned = [name for name in sources if name in ever and name not in last]
    if returned:
        raise CheckpointError(
            of,
            f"the job has sources that earlier runs read but the last run lacked: {', '.join(map(repr, returned))}. "
            "Their offsets are lost, so reading them from the beginning would process their events twice. Remove these "
            "sources from the job or, to process their events again, give them different names",
        )
