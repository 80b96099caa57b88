"""Refusing sources that a job lost and has again."""

from collections.abc import Collection, Iterable

from amadou.errors import CheckpointError


def check_returned(of: str, sources: Iterable[str], ever: Collection[str], last: Collection[str]) -> None:
    """Refuse a source that earlier runs read and the last one did not have.

    :param of: the checkpoint or snapshot that the run resumes, for the error
    :param sources: the job's sources
    :param ever: the sources that any earlier run read
    :param last: the sources that the last run had
    :raises CheckpointError: there is such a source
    """
    returned = [name for name in sources if name in ever and name not in last]
    if returned:
        raise CheckpointError(
            of,
            f"earlier runs read the source {', '.join(map(repr, returned))}, which a later run did without. How far it "
            "was read is lost: read from its beginning, its events would count twice. Where you want that, give the "
            "source another name",
        )
