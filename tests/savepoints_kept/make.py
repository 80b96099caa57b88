"""Writes the savepoints that are kept: python -m tests.savepoints_kept.make DIRECTORY

Each format of savepoints has its directory, which is written once, by the first release with this format.
"""

import sys
import tempfile
from pathlib import Path

from tests.savepoints_kept.kept_job import KEYS, column_lines, columns_job, kept_job

from amadou_runtime import TestRun, run


def make(directory: Path) -> None:
    """Write the savepoints."""
    with TestRun(kept_job) as test_run:
        test_run.add_records([(key, number % 3, number) for number, key in enumerate(KEYS * 2)], "events")
        test_run.add_records([(key, 0, 0) for key in KEYS], "needed").end_batch()
        test_run.add_records([(key, 40, 100 + number) for number, key in enumerate(KEYS[:3])], "events")
        test_run.end_batch().run()
        test_run.savepoint(directory / "all")
    with tempfile.TemporaryDirectory() as name:
        (Path(name) / "in").mkdir()
        (Path(name) / "in" / "0.jsonl").write_text(column_lines())
        job = columns_job(f"{name}/in/", f"{name}/out")
        for store in ("groups", "log"):
            run(
                job,
                master="local[2]",
                checkpoint=f"{name}/{store}",
                trigger="available-now",
                to_savepoint=str(directory / f"columns-{store}"),
            )


if __name__ == "__main__":
    make(Path(sys.argv[1]))
