"""Archives with files that tests read."""

import tarfile
from pathlib import Path


def unpack_archive(archive: Path, to: Path) -> None:
    """Unpack an archive to a directory."""
    with tarfile.open(archive) as opened:
        opened.extraction_filter = getattr(tarfile, "data_filter", None)  # missing in 3.11.2, for example
        opened.extractall(to)
