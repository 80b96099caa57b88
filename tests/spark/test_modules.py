"""A job sends the modules that are not installed to the workers, where a class stays one class."""

import importlib
import json
import runpy
import sys
import zipfile
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest

from amadou.errors import AmadouError
from amadou_runtime import TestRun

pytestmark = pytest.mark.spark

MODELS = """
    from __future__ import annotations

    from dataclasses import dataclass
    from datetime import datetime
    from enum import Enum
    from functools import lru_cache
    from threading import Lock

    LOCK = Lock()


    class Kind(Enum):
        SEEN = "seen"


    @dataclass
    class View:
        channel: str
        at: datetime
        kind: Kind = Kind.SEEN
        next: View | None = None


    @lru_cache
    def shouted(text: str) -> str:
        with LOCK:
            return text.upper()
    """
JOB = """
    from __future__ import annotations

    from dataclasses import dataclass
    from datetime import datetime, timezone
    from functools import cached_property, lru_cache
    from pathlib import Path
    from typing import Any

    import orjson

    import MODELS
    from MODELS import Kind, View, shouted

    from amadou import Handler, Job, KeyedEvent, MapSpec, MemorySource, SinkSpec, Subject, ValueSpec
    from amadou_plugins.connectors import CsvSink, JsonLinesSink, LinesSource


    @lru_cache
    def rank(channel: str) -> int:
        return len(channel)


    class Views(Handler):
        @dataclass(frozen=True)
        class Place:
            rank: int
            since: datetime

            @cached_property
            def is_high(self) -> bool:
                return self.rank > 3

        last = ValueSpec(View)
        anything = ValueSpec(Any)
        places = MapSpec(Place, Kind)
        texts = SinkSpec(str)
        rows = SinkSpec(Place)

        def key_event(self, record: bytes) -> KeyedEvent:
            fields = orjson.loads(record)
            at = datetime.fromisoformat(fields["at"])
            return KeyedEvent(fields["channel"], at, View(fields["channel"], at))

        def on_event(self, subject: Subject, event: KeyedEvent) -> None:
            view = event.value
            place = self.Place(rank(view.channel), view.at)
            was = self.anything.state_for(subject)
            found = [place.is_high, type(view) is View, isinstance(view, MODELS.View), view.kind is Kind.SEEN]
            if was.value is not None:
                found += [was.value == [view.kind, place], type(was.value[1]) is self.Place]
                found += [self.places.state_for(subject)[place] is Kind.SEEN]
                found += [type(self.last.state_for(subject).value) is View]
            self.last.state_for(subject).value = view
            was.value = [view.kind, place]
            self.places.state_for(subject)[place] = view.kind
            self.texts.collect(subject, shouted(f"{view.channel} {all(found)}"))
            self.rows.collect(subject, place)

    """
TESTED = """
    job = Job("views", Views(), {"views": MemorySource()}, {"texts": JsonLinesSink("."), "rows": CsvSink(".")})
    """
PROGRAM = """
    from amadou_runtime import main

    HERE = Path(__file__).parent
    job = Job(
        "views",
        Views(),
        {"views": LinesSource(str(HERE / "views"), max_files_per_batch=1)},
        {"texts": JsonLinesSink(str(HERE / "texts")), "rows": CsvSink(str(HERE / "rows"))},
    )
    if __name__ == "__main__":
        main(job)
    """
RECORD = b'{"channel": "news", "at": "2025-01-01T00:00:00Z"}'


class Project:
    """Modules in a directory that only this process imports from, and only during the test."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._before = set(sys.modules)

    def write(self, path: str, *parts: str) -> None:
        file = self.directory / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("\n".join(map(dedent, parts)))

    def forget(self) -> None:
        """Forget the imported modules, so that they are imported again."""
        for name in set(sys.modules) - self._before:
            if str(self.directory) in str(getattr(sys.modules[name], "__file__", "")):
                del sys.modules[name]
        importlib.invalidate_caches()


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Project]:
    made = Project(tmp_path / "project")
    monkeypatch.syspath_prepend(str(made.directory))
    yield made
    made.forget()


@pytest.fixture
def texts(spark: Any) -> Callable[[str], list[Any]]:
    """Runs the job of a module on Spark, with two batches of a record each. Returns its outputs."""

    def outputs(module: str) -> list[Any]:
        run = TestRun(importlib.import_module(module).job, engine="spark", spark=spark)
        try:
            return run.add_record(RECORD).end_batch().add_record(RECORD).run().records("texts")
        finally:
            run.close()

    return outputs


def test_workers_have_classes_of_a_module_beside_the_job(project: Project, texts: Callable[[str], list[Any]]) -> None:
    project.write("models.py", MODELS)
    project.write("travelling_views.py", JOB.replace("MODELS", "models"), TESTED)
    assert texts("travelling_views") == ["NEWS TRUE", "NEWS TRUE"]


def test_workers_have_classes_of_the_jobs_package(project: Project, texts: Callable[[str], list[Any]]) -> None:
    """With relative imports, and a directory inside that has no `__init__.py`."""
    project.write("travelling_shop/__init__.py", "from .data import models")
    project.write("travelling_shop/data/models.py", MODELS)
    job = JOB.replace("import MODELS", "from .data import models").replace("from MODELS", "from .data.models")
    project.write("travelling_shop/views.py", job.replace("MODELS", "models"), TESTED)
    assert texts("travelling_shop.views") == ["NEWS TRUE", "NEWS TRUE"]


def test_workers_have_classes_of_an_archive(
    project: Project, texts: Callable[[str], list[Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    archive = project.directory / "lib.zip"
    project.directory.mkdir()
    with zipfile.ZipFile(archive, "w") as opened:
        opened.writestr("zipped_models.py", dedent(MODELS))
    monkeypatch.syspath_prepend(str(archive))
    project.write("travelling_views.py", JOB.replace("MODELS", "zipped_models"), TESTED)
    assert texts("travelling_views") == ["NEWS TRUE", "NEWS TRUE"]


def test_workers_have_the_new_code_of_a_module_that_changed_between_runs(
    project: Project, texts: Callable[[str], list[Any]]
) -> None:
    project.write("models.py", MODELS)
    project.write("travelling_views.py", JOB.replace("MODELS", "models"), TESTED)
    texts("travelling_views")
    project.write("models.py", MODELS.replace("text.upper()", "text.title()"))
    project.forget()
    assert texts("travelling_views") == ["News True", "News True"]


def test_an_error_in_a_module_that_a_worker_imports_is_shown_with_its_line(
    project: Project, texts: Callable[[str], list[Any]], tmp_path: Path
) -> None:
    setting = tmp_path / "setting"
    setting.write_text("3")
    project.write("models.py", MODELS, "from pathlib import Path", f"SETTING = Path({str(setting)!r}).read_text()")
    project.write("travelling_views.py", JOB.replace("MODELS", "models"), TESTED)
    importlib.import_module("travelling_views")
    setting.unlink()
    with pytest.raises(AmadouError, match=r"cannot be loaded in a worker. .*FileNotFoundError") as failed:
        texts("travelling_views")
    assert "SETTING = Path(" in str(failed.value), "the line stands in the traceback"


@pytest.mark.parametrize(
    "files", [[2], pytest.param([1, 1], marks=pytest.mark.qualify)], ids=["one run", "a run for each file"]
)
def test_a_program_may_be_the_job_file(
    files: list[int], project: Project, spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As `spark-submit` starts it; its own classes have no module that workers could import. Each file is a batch.

    :param files: the numbers of new files of the runs
    """
    project.write("models.py", MODELS)
    project.write("travelling_views.py", JOB.replace("MODELS", "models"), PROGRAM)
    program = str(project.directory / "travelling_views.py")
    monkeypatch.setattr(sys, "argv", [program, "--once", "--checkpoint", str(tmp_path / "checkpoint")])
    names = iter(("first", "second"))
    for number in files:
        for name in islice(names, number):
            project.write(f"views/{name}.jsonl", RECORD.decode() + "\n")
        runpy.run_path(program, run_name="__main__")
    written = [line for file in (project.directory / "texts").glob("*.jsonl") for line in file.read_text().splitlines()]
    assert list(map(json.loads, written)) == ["NEWS TRUE", "NEWS TRUE"]
    rows = [line for file in (project.directory / "rows").glob("*.csv") for line in file.read_text().splitlines()]
    assert rows.count("4,2025-01-01T00:00:00Z") == 2, rows
