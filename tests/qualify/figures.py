"""The figures of `scripts/qualify`: what was tried, on which version, and what was found."""

import fcntl
import json
import platform
import subprocess
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime, timezone
from importlib.metadata import version
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
FILE = ROOT / "tests" / "qualify" / "figures.json"
BEGIN, END = 400, 1600
"""Characters of a failure that are stored. A program's error is at the end of its output."""


class Piece:
    """One call of a part. Each change is stored at once, so that the figures of an interrupted call are there.

    :param append: `True` to add to what was tried before; `False` to replace the part's earlier figures
    """

    def __init__(self, file: Path, part: str, *, append: bool, seed: int | None = None, **options: Any) -> None:
        self._file = file
        self._began = time.monotonic()
        self._id = f"{part}-{time.time_ns()}"
        self._tried: Counter[str] = Counter()
        self._figures: dict[str, Any] = {"lost": 0, "twice": 0, "wrong": 0, "found": []}
        self._origin = {
            "id": self._id,
            "part": part,
            **_versions(),
            "date": datetime.now(timezone.utc).date().isoformat(),
            "seed": seed,
            "options": options,
        }
        if not append:
            with _stored(file) as pieces:
                pieces[:] = [piece for piece in pieces if piece["part"] != part]

    def tried(self, kinds: Mapping[str, int], **counts: int) -> None:
        """Add what was tried, by kind, and other counts, such as `lost`."""
        self._tried.update(kinds)
        for name, count in counts.items():
            self._figures[name] = self._figures.get(name, 0) + count
        self._store()

    def found(self, what: str, repeat: str) -> None:
        """Add a failure.

        :param repeat: the command that repeats it
        """
        if len(what) > BEGIN + END:
            what = f"{what[:BEGIN]} … {what[-END:]}"
        self._figures["found"].append({"what": what, "repeat": repeat})
        self._store()

    def measured(self, **figures: Any) -> None:
        """Set figures of this call, such as the memory at its end."""
        self._figures.update(figures)
        self._store()

    @property
    def has_found(self) -> bool:
        return bool(self._figures["found"])

    def _store(self) -> None:
        piece = {
            **self._origin,
            "seconds": round(time.monotonic() - self._began),
            "tried": dict(sorted(self._tried.items())),
            **self._figures,
        }
        with _stored(self._file) as pieces:
            pieces[:] = [each for each in pieces if each["id"] != self._id] + [piece]


def read(file: Path) -> Sequence[Mapping[str, Any]]:
    """All pieces, the oldest first."""
    if not file.exists():
        return []
    pieces: list[Mapping[str, Any]] = json.loads(file.read_text())
    return pieces


@contextmanager
def _stored(file: Path) -> Iterator[list[Any]]:
    """The pieces in a file, to change them. Parts may run side by side."""
    file.parent.mkdir(parents=True, exist_ok=True)
    with file.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        pieces = list(read(file))
        yield pieces
        beside = file.with_suffix(".part")
        beside.write_text(json.dumps(pieces, indent=1) + "\n")
        beside.rename(file)


def _versions() -> dict[str, str]:
    """The versions of what is tried. The commit is the last one that changed the product."""

    def git(*words: str) -> str:
        return subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True, check=False).stdout.strip()

    product = ("--", "sdk", "runtime", "plugins")
    changed = git("status", "--porcelain", *product)
    return {
        "version": version("amadou"),
        "commit": git("log", "-1", "--format=%h", *product) + (" with changes" if changed else ""),
        "spark": version("pyspark"),
        "python": platform.python_version(),
    }
