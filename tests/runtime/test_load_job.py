import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from amadou.errors import JobError, LoadError
from amadou_runtime.jobs.load_job import load_job

JOB = """
from amadou import Handler, Job, MemorySource

class Ignore(Handler):
    def key_event(self, record): return None
    def on_event(self, subject, event): ...

{name} = Job("{name}", Ignore(), {{"records": MemorySource()}}, {{}})
"""


@pytest.fixture(autouse=True)
def restored_imports(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.chdir(tmp_path)
    before = set(sys.modules)
    yield
    for name in set(sys.modules) - before:
        del sys.modules[name]


def write(path: Path, *names: str, more: str = "") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(JOB.format(name=name) for name in names) + more)
    return path


def refusal(target: object) -> str:
    with pytest.raises(LoadError) as caught:
        load_job(str(target))
    assert caught.value.target == str(target)
    return str(caught.value)


def test_a_job_is_loaded_from_a_file(tmp_path: Path) -> None:
    path = write(tmp_path / "in" / "load_a.py", "job", "other")
    assert load_job(str(path)).name == "job"
    assert load_job(f"{path}:other").name == "other"
    assert load_job("in/load_a.py:other").name == "other"


def test_the_file_of_a_job_is_a_module_that_can_import_files_next_to_it(tmp_path: Path) -> None:
    (tmp_path / "load_neighbour.py").write_text("NAME = 'job'")
    path = write(tmp_path / "load_b.py", "job", more="import load_neighbour")
    assert type(load_job(str(path)).handler).__module__ == "load_b"
    assert sys.path[0] == str(tmp_path)


def test_the_error_for_a_file_with_relative_imports_names_the_module_to_load(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = tmp_path / "load_relative" / "inner"
    write(package / "load_views.py", "job", "other", more="from ..names import NAME")
    (package.parent / "names.py").write_text("NAME = 1")
    for made in (package, package.parent):
        (made / "__init__.py").touch()

    reason = "the file uses relative imports: load it as the module "
    assert f"{reason}load_relative.inner.load_views" in refusal("load_relative/inner/load_views.py")
    assert f"{reason}load_relative.inner.load_views:other" in refusal("load_relative/inner/load_views.py:other")
    assert load_job("load_relative.inner.load_views:other").name == "other"
    monkeypatch.chdir(package)
    assert f"{reason}load_relative.inner.load_views, from the directory {tmp_path}" in refusal("load_views.py")


def test_the_error_for_a_file_with_relative_imports_in_a_package_without_init_names_the_module() -> None:
    write(Path("load_bare") / "load_views.py", more="from .names import NAME")
    assert "load it as the module load_bare.load_views" in refusal("load_bare/load_views.py")


def test_a_job_is_loaded_from_a_module_in_the_working_directory(tmp_path: Path) -> None:
    write(tmp_path / "load_package" / "views.py", "job", "other")
    assert load_job("load_package.views").name == "job"
    assert load_job("load_package.views:other").name == "other"


def test_the_file_of_a_job_is_imported_once(tmp_path: Path) -> None:
    path = write(tmp_path / "load_c.py", "job")
    assert load_job(str(path)) is load_job(str(path)) is load_job("load_c")


def test_jobs_are_loaded_from_files_with_the_same_name_in_two_directories(tmp_path: Path) -> None:
    first = write(tmp_path / "1" / "load_d.py", "job")
    second = write(tmp_path / "2" / "load_d.py", "job", "other")
    load_job(str(first))
    assert load_job(f"{second}:other").name == "other"


def test_a_job_file_with_the_name_of_an_imported_module_is_refused(tmp_path: Path) -> None:
    path = write(tmp_path / "json.py", "job")
    assert "the module name 'json' is used by" in refusal(path)


def test_the_error_for_a_missing_file_shows_the_path() -> None:
    assert "in/views.py does not exist" in refusal("in/views.py:job")
    assert f"looked in {os.getcwd()}" in refusal("views.py")


def test_loading_a_job_from_a_directory_is_an_error(tmp_path: Path) -> None:
    assert "is a directory, not a file" in refusal(f"{tmp_path}/")


def test_the_error_for_a_missing_module_names_the_module() -> None:
    assert "the module 'load_none' is neither in this directory nor installed" in refusal("load_none.views:job")


def test_the_error_for_a_missing_job_lists_the_jobs_of_the_file(tmp_path: Path) -> None:
    path = write(tmp_path / "load_e.py", "one", "two")
    assert refusal(path) == f"cannot load {path}: {path} has no 'job': use {path}:one or {path}:two"


def test_the_error_for_a_file_without_jobs_says_how_to_write_one(tmp_path: Path) -> None:
    path = write(tmp_path / "load_f.py")
    assert "has no 'job' (no Job found): write job = Job(…)" in refusal(path)


def test_the_error_for_a_name_that_is_not_a_job_shows_its_value(tmp_path: Path) -> None:
    path = write(tmp_path / "load_g.py", more="job = 3")
    assert f"'job' in {path} is 3, not a Job" in refusal(path)


@pytest.mark.parametrize("target", [":job", "views.py:a b", "views.py:"])
def test_the_error_for_an_invalid_target_shows_the_form_of_targets(target: str) -> None:
    assert "name the job as FILE:name or MODULE:name" in refusal(target)


def test_an_error_during_the_import_of_a_job_shows_the_users_traceback_first(tmp_path: Path) -> None:
    path = write(tmp_path / "load_h.py", more="def broken():\n    return 1 / 0\n\nbroken()\n")
    for target in (str(path), "load_h"):
        lines = refusal(target).splitlines()
        assert lines[0] == "Traceback (most recent call last):"
        assert lines[1] == f'  File "{path}", line 4, in <module>'
        assert lines[-1] == f"cannot load {target}: importing the module failed: ZeroDivisionError: division by zero"


def test_the_error_for_a_module_that_a_job_file_cannot_import_names_that_module(tmp_path: Path) -> None:
    path = write(tmp_path / "load_i.py", more="import load_none")
    for target in (str(path), "load_i"):
        assert "ModuleNotFoundError: No module named 'load_none'" in refusal(target)


def test_a_job_can_be_loaded_after_its_import_failed_once(tmp_path: Path) -> None:
    path = write(tmp_path / "load_j.py", more="1 / 0")
    refusal(path)
    write(path, "job")
    assert load_job(str(path)).name == "job"


def test_the_error_for_a_file_that_runs_its_job_when_imported_says_how_to_avoid_it(tmp_path: Path) -> None:
    path = write(tmp_path / "load_k.py", more="raise SystemExit(0)")
    assert "put main(job) under if __name__ == '__main__'" in refusal(path)


def test_loading_an_invalid_job_raises_its_job_error(tmp_path: Path) -> None:
    path = write(tmp_path / "load_l.py", more="from amadou import Job, Handler\njob = Job('', Handler(), {}, {})")
    with pytest.raises(JobError, match="the job has no source: add one to sources"):
        load_job(str(path))
