"""Makes fixtures with this version of amadou; see README.md. Jobs with services need those of `scripts/services`.

python -m tests.stored.make checkpoints DIRECTORY [CASE …]
python -m tests.stored.make savepoints DIRECTORY
"""

import json
import platform
import sys
import tarfile
import tempfile
from collections import Counter
from collections.abc import Mapping
from pathlib import Path

import attrs
import pyspark
from tests.stored.cases import CASES, FORMS, Case
from tests.stored.fixture import PARALLEL, Fixture, Place, services_for, write_rows
from tests.stored.jobs.format_1 import KEYS, column_lines, columns_job, values_job

from amadou import Job
from amadou.plugins import Source
from amadou_runtime import TestRun, run
from amadou_runtime.formats.release import amadou_version


def make_savepoints(directory: Path) -> None:
    """Write the savepoints of `test_stored_savepoints.py`."""
    with TestRun(values_job) as test_run:
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
                master=PARALLEL,
                checkpoint=f"{name}/{store}",
                trigger="available-now",
                to_savepoint=str(directory / f"columns-{store}"),
            )


def make_checkpoints(case: Case, directory: Path) -> None:
    """Write the fixture of a case: its checkpoints and savepoints, their state as rows, and the outputs of a job that
    continues. The state and the outputs must be the same on each store.
    """
    fixture = Fixture(directory, case)
    with services_for(case) as services, tempfile.TemporaryDirectory(prefix="amadou-stored-") as name:
        place = Place(case, Path(name), services)
        run_batches(place)
        write_versions(place)
        pack(place, fixture.archive)
    rows, outputs = [], []
    for store in case.stores:
        with tempfile.TemporaryDirectory(prefix="amadou-stored-") as name, fixture.with_services(Path(name)) as place:
            rows += [place.rows(store), place.rows(store, savepoint=True)]
            outputs += [place.continued(store), place.resumed(store)]
    assert all(each == rows[0] for each in rows), f"the state of {case} differs by store"
    assert all(each == outputs[0] for each in outputs), f"the outputs of {case} differ by store"
    write_rows(fixture.rows, rows[0])
    write_rows(fixture.outputs, outputs[0])


def run_batches(place: Place) -> None:
    case = place.case
    for number, batch in enumerate(case.batches):
        place.write("in", batch, number)
    place.write("further", case.further, len(case.batches))
    place.fill_topic("in")
    for store in case.stores:
        run(
            in_batches(place.job(store), case),
            master=PARALLEL,
            checkpoint=str(place.checkpoint(store)),
            trigger="available-now",
            to_savepoint=str(place.savepoint(store)),
        )
        form = FORMS[store]
        assert form is None or place.forms(store) <= {form}, place.forms(store)


def in_batches(job: Job, case: Case) -> Job:
    """Return the job with sources that read the files of one batch in a batch, in order of time."""
    files = Counter(name.partition("/")[0] for name in case.batches[0] if not case.topic)

    def paced(sources: Mapping[str, Source]) -> dict[str, Source]:
        return {
            name: attrs.evolve(source, max_files_per_batch=files[name]) if name in files else source
            for name, source in sources.items()
        }

    if job.stages:
        stages = {name: attrs.evolve(stage, sources=paced(stage.sources)) for name, stage in job.stages.items()}
        return attrs.evolve(job, stages=stages)
    return attrs.evolve(job, sources=paced(job.sources))


def write_versions(place: Place) -> None:
    made = {
        "place": str(place.directory),
        "topic": place.services.get("TOPIC"),
        "topic_id": place.services.get("TOPIC_ID"),
        "amadou": amadou_version(),
        "spark": pyspark.__version__,
        "python": platform.python_version(),
    }
    (place.directory / "made.json").write_text(json.dumps(made, indent=2) + "\n")


def pack(place: Place, archive: Path) -> None:
    def anonymous(file: tarfile.TarInfo) -> tarfile.TarInfo:
        file.uid = file.gid = 0
        file.uname = file.gname = ""
        return file

    with tarfile.open(archive, "w:xz", preset=9) as packed:
        packed.add(place.directory, ".", filter=anonymous)


def main(what: str, directory: str, *names: str) -> None:
    Path(directory).mkdir(parents=True, exist_ok=True)
    if what == "savepoints":
        make_savepoints(Path(directory))
    for name in (names or CASES) if what == "checkpoints" else ():
        make_checkpoints(CASES[name], Path(directory))
        print(f"made {name}", flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
