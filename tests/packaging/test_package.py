"""`amadou package`: what it makes runs a job with spark-submit on machines that do not have amadou."""

import errno
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import sysconfig
import tarfile
import zipfile
from collections.abc import Iterator
from datetime import datetime
from importlib.metadata import distributions, version
from itertools import pairwise
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from tests.commands import amadou
from tests.spark.clusters import cluster, command_of, logs, process
from tests.waits import wait_for
from views import ViewSum, job

from amadou import Job, MemorySink, MemorySource
from amadou_plugins.connectors import AvroFormat, HttpSink, JsonLinesSink, KafkaSink
from amadou_runtime import TestRun
from amadou_runtime.command import packed_environment
from amadou_runtime.command.job_package import _extras_of
from amadou_runtime.command.packed_environment import pack_environment
from amadou_runtime.command.packed_job import named_by_checksum, write_script, write_wheel

ROOT = Path(__file__).parents[2]
EXAMPLE = ROOT / "examples" / "tumbling_window"
VERSION = f"python{sys.version_info.major}.{sys.version_info.minor}"
JOB = """
from amadou import Job, MemorySource
from .handler import Ignore

counting = Job("count all", Ignore(), {"records": MemorySource()}, {})
"""
HANDLER = """
from amadou import Handler

class Ignore(Handler):
    def key_event(self, record): return None
    def on_event(self, subject, event): ...
"""
SPARK_SUBMIT = """#!/usr/bin/env bash
pwd
printf '[%s]\\n' "$@"
"""


@pytest.fixture(autouse=True)
def imports_undone(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.chdir(tmp_path)
    before = dict(sys.modules)
    sys.modules.pop("views", None)  # imported above as a test module: the command loads the file
    yield
    for name in set(sys.modules) - set(before):
        del sys.modules[name]
    sys.modules.update(before)


@pytest.fixture
def package() -> Path:
    """A job in a package of modules that import each other."""
    package = Path("counting")
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "jobs.py").write_text(JOB)
    (package / "handler.py").write_text(HANDLER)
    return package


def run(*command: str, **environment: str) -> str:
    others = ("PYTHONPATH", "PYTHONDONTWRITEBYTECODE", "SPARK_HOME")
    inherited = {name: value for name, value in os.environ.items() if name not in others}
    done = subprocess.run(command, env=inherited | environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{' '.join(command)}\n{done.stdout}\n{done.stderr}"
    return done.stdout


def packaged(*arguments: str, **environment: str) -> str:
    """What the command prints in a process of its own: this one has modules of tests, which would be packed as well."""
    command = "from amadou_runtime.command.cli import app; app()"
    return run(sys.executable, "-c", command, "package", *arguments, **environment)


@pytest.fixture(scope="module")
def modules_only(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A package of the example without an environment. Tests that change it use a copy."""
    made = tmp_path_factory.mktemp("package") / "made"
    packaged(str(EXAMPLE / "views.py"), "--no-environment", "--output", str(made))
    return made


@pytest.fixture(scope="module")
def with_packed_environment(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A package of the example with its environment, some 400 MB."""
    made = tmp_path_factory.mktemp("package") / "made"
    shown = packaged(str(EXAMPLE / "views.py"), "--output", str(made))
    assert f"Python {sys.version.split()[0]} as /" in shown
    yield made
    shutil.rmtree(made)


def refusal(*arguments: str) -> str:
    done = amadou("package", *arguments)
    assert done.exit_code == 1, done.output
    assert done.stderr.count("\n") == 1
    return done.stderr


def modules_in(package: Path) -> Path:
    (modules,) = package.glob("modules-*.zip")
    return modules


def names_in(archive: Path) -> list[str]:
    with zipfile.ZipFile(archive) as opened:
        return opened.namelist()


def test_without_an_environment_the_modules_include_amadou() -> None:
    shown = packaged(str(EXAMPLE / "views.py"), "--no-environment")

    made = Path("dist", "views-per-minute")
    modules = modules_in(made)
    assert {path.name for path in made.iterdir()} == {modules.name, "run_packaged_job.py", "submit.sh"}
    names = names_in(modules)
    assert {"views.py", "amadou/__init__.py", "amadou_plugins/connectors/__init__.py"} <= {*names}
    assert not [name for name in names if "__pycache__" in name or not name.startswith(("views.py", "amadou"))]
    assert shown.splitlines()[:2] == [
        "dist/views-per-minute/submit.sh --master URL -- --checkpoint DIR",
        f"  runs: spark-submit --name views-per-minute --py-files {modules.name} --master URL run_packaged_job.py "
        "--checkpoint DIR",
    ]


def test_the_program_runs_the_job_from_the_packed_modules_alone(modules_only: Path) -> None:
    options = ["--engine", "embedded", "-p", f"VIEWS={EXAMPLE / 'views'}", "--sink", "sums=console"]
    modules = str(modules_in(modules_only))

    counts = run(sys.executable, str(modules_only / "run_packaged_job.py"), *options, PYTHONPATH=modules)
    where = run(sys.executable, "-c", "import amadou; print(amadou.__file__)", PYTHONPATH=modules)

    assert counts.count("sums: ") == 20
    assert f"{modules}/amadou" in where
    assert [each.version for each in distributions(name="amadou", path=[modules])] == [version("amadou")]


def test_a_packed_module_has_its_encoding() -> None:
    text = (EXAMPLE / "views.py").read_text()
    Path("views.py").write_text(f"# coding: latin-1\nCAFE = 'caf\xe9'\n{text}", encoding="latin-1")
    packaged("views.py", "--no-environment", "--output", "made")
    code = "import views; print(ascii(views.CAFE))"
    assert run(sys.executable, "-c", code, PYTHONPATH=str(modules_in(Path("made")))) == "'caf\\xe9'\n"


@pytest.mark.parametrize(
    ("name", "code", "error"),
    [
        ("rules", "from pathlib import Path; Path(__file__).with_name('a.json').read_text()", "NotADirectoryError: "),
        ("run_packaged_job", "", "AttributeError: partially initialized module 'run_packaged_job' has no attribute"),
    ],
)
def test_a_job_that_cannot_be_imported_when_it_is_packed_is_an_error(name: str, code: str, error: str) -> None:
    Path("a.json").touch()
    Path(f"{name}.py").write_text(f"{code}\n{(EXAMPLE / 'views.py').read_text()}")
    message = refusal(f"{name}.py", "--no-environment", "--output", "made")
    assert message.startswith(f"the packed job cannot be imported ({error}")
    assert "next to modules are not packed" in message
    assert not list(Path("made").iterdir())


@pytest.mark.parametrize("module", ["class", "it's my-job"])
def test_the_program_imports_a_file_with_any_name(module: str) -> None:
    shutil.copy(EXAMPLE / "views.py", f"{module}.py")
    packaged(f"{module}.py", "--no-environment", "--output", "made")
    Path(f"{module}.py").unlink()
    options = ["--engine", "embedded", "-p", f"VIEWS={EXAMPLE / 'views'}", "--sink", "sums=console"]
    modules = str(modules_in(Path("made")))

    counts = run(sys.executable, "made/run_packaged_job.py", *options, PYTHONPATH=modules)

    assert counts.count("sums: ") == 20


@pytest.mark.parametrize("init", [["counting/__init__.py"], []], ids=["a regular package", "a namespace package"])
def test_a_job_in_a_package_is_packed_with_the_modules_that_it_imports(init: list[str], package: Path) -> None:
    if not init:
        (package / "__init__.py").unlink()
    packaged("counting.jobs:counting", "--no-environment")

    made = Path("dist", "count-all")
    modules = modules_in(made)
    assert [name for name in names_in(modules) if not name.startswith("amadou")] == [
        *(init or ["counting/"]),
        "counting/handler.py",
        "counting/jobs.py",
    ]
    shutil.rmtree("counting")
    shown = run(sys.executable, str(made / "run_packaged_job.py"), "--help", PYTHONPATH=str(modules))
    assert "Run the job count all until its input ends" in shown


@pytest.fixture
def path(tmp_path: Path) -> str:
    """A `PATH` with a `spark-submit` that prints its arguments."""
    program = tmp_path / "bin" / "spark-submit"
    program.parent.mkdir()
    program.write_text(SPARK_SUBMIT)
    program.chmod(0o755)
    return f"{program.parent}:{os.environ['PATH']}"


def with_environment(made: Path, marker: str) -> str:
    """Write a script with an environment that has a marker. Return the environment's name."""
    made.mkdir(exist_ok=True)
    Path("content").mkdir()
    Path("content", marker).touch()
    with tarfile.open(made / "environment.tar.gz", "w:gz") as archive:
        archive.add("content", arcname="")
    shutil.rmtree("content")
    name = named_by_checksum(made / "environment.tar.gz").name.removesuffix(".tar.gz")
    write_script(made / "submit.sh", "it's a job", "modules-1.zip", name)
    return name


def test_the_script_passes_options_to_spark_submit_and_to_the_job(tmp_path: Path, path: str) -> None:
    made = tmp_path / "made here"
    name = with_environment(made, "marker")

    command = [str(made / "submit.sh"), "--conf", "a=b c", "--", "--once", "-p", "X=--"]
    printed = run(*command, PATH=path).splitlines()

    assert printed == [
        str(made),
        *("[--name]", "[it's a job]", "[--py-files]", "[modules-1.zip]"),
        *("[--archives]", f"[{name}.tar.gz#{name}]"),
        *("[--conf]", f"[spark.pyspark.python=./{name}/bin/python]"),
        *("[--conf]", "[a=b c]", "[run_packaged_job.py]", "[--once]", "[-p]", "[X=--]"),
    ]
    assert (made / name / "marker").exists()
    assert run(str(made / "submit.sh"), PATH=path).splitlines()[-1] == "[run_packaged_job.py]"


def values_of(option: str, printed: list[str]) -> list[str]:
    """The values of an option that the script has passed to `spark-submit`."""
    return [value[1:-1] for name, value in pairwise(printed) if name == f"[{option}]"]


@pytest.mark.parametrize("form", ["{} {}", "{}={}"])
def test_the_script_adds_modules_and_archives_to_those_of_the_job(tmp_path: Path, path: str, form: str) -> None:
    made = tmp_path / "made"
    name = with_environment(made, "marker")
    options = [("--py-files", "a.zip"), ("--archives", "b.tgz#b"), ("--py-files", "c.py,d.py")]
    words = [word for option in options for word in form.format(*option).split()]

    printed = run(str(made / "submit.sh"), *words, "--", "--once", PATH=path).splitlines()

    assert values_of("--py-files", printed) == ["modules-1.zip,a.zip,c.py,d.py"]
    assert values_of("--archives", printed) == [f"{name}.tar.gz#{name},b.tgz#b"]
    assert printed[-2:] == ["[run_packaged_job.py]", "[--once]"]

    write_script(made / "submit.sh", "job", "modules-1.zip", None)
    printed = run(str(made / "submit.sh"), *words, PATH=path).splitlines()
    assert values_of("--archives", printed) == ["b.tgz#b"]
    assert "[--archives]" not in run(str(made / "submit.sh"), PATH=path).splitlines()


def test_a_script_that_cannot_unpack_its_environment_ends_with_an_error_in_one_line(tmp_path: Path, path: str) -> None:
    made = tmp_path / "made"
    with_environment(made, "marker")
    mktemp = tmp_path / "bin" / "mktemp"  # root may write to all directories
    mktemp.write_text("#!/bin/sh\necho mktemp: Permission denied >&2\nexit 1\n")
    mktemp.chmod(0o755)

    done = subprocess.run([made / "submit.sh"], env={**os.environ, "PATH": path}, capture_output=True, text=True)

    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == (
        "submit.sh: the environment cannot be unpacked (mktemp: Permission denied): "
        f"copy {made} to a place that you can write to\n"
    )


def test_the_script_unpacks_each_environment_once(tmp_path: Path, path: str) -> None:
    made = tmp_path / "made"
    for marker in ("old", "new"):  # as after copying a newer package over an older one
        name = with_environment(made, marker)
        run(str(made / "submit.sh"), PATH=path)
        (made / name / "unpacked").touch()
        assert f"./{name}/bin/python" in run(str(made / "submit.sh"), PATH=path)
        assert {file.name for file in (made / name).iterdir()} == {marker, "unpacked"}
        assert (made / name).stat().st_mode & 0o555 == 0o555


def test_an_environment_that_cannot_be_unpacked_leaves_nothing(tmp_path: Path, path: str) -> None:
    made = tmp_path / "made"
    name = with_environment(made, "marker")
    archive = made / f"{name}.tar.gz"
    whole = archive.read_bytes()
    archive.write_bytes(whole[:-20])
    with pytest.raises(AssertionError, match="tar"):
        run(str(made / "submit.sh"), PATH=path)
    assert {file.name for file in made.iterdir()} == {archive.name, "submit.sh"}

    archive.write_bytes(whole)
    run(str(made / "submit.sh"), PATH=path)
    assert (made / name / "marker").exists()


def test_two_starts_at_the_same_moment_unpack_the_environment_once(tmp_path: Path, path: str) -> None:
    made = tmp_path / "made"
    name = with_environment(made, "marker")
    tar = tmp_path / "bin" / "tar"  # the other start is faster
    tar.write_text(f'#!/bin/sh\nPATH={os.environ["PATH"]} tar "$@" && mkdir {name} && touch {name}/others\n')
    tar.chmod(0o755)

    run(str(made / "submit.sh"), PATH=path)

    assert [file.name for file in (made / name).iterdir()] == ["others"]
    assert {file.name for file in made.iterdir()} == {f"{name}.tar.gz", "submit.sh", name}


def test_the_wheel_of_the_installed_amadou_can_be_installed(tmp_path: Path) -> None:
    wheel = write_wheel(tmp_path)

    run(sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--target", str(tmp_path / "site"), str(wheel))

    ask = "import amadou; from importlib.metadata import version; print(amadou.__file__, version('amadou'))"
    printed = run(sys.executable, "-c", ask, PYTHONPATH=str(tmp_path / "site")).split()
    assert printed == [str(tmp_path / "site" / "amadou" / "__init__.py"), version("amadou")]
    assert (tmp_path / "site" / "bin" / "amadou").exists()


@pytest.mark.parametrize("prefix", [None, "/opt/python"])
def test_a_packed_environment_refers_to_the_interpreter_of_the_workers(prefix: str | None, tmp_path: Path) -> None:
    run(sys.executable, "-m", "venv", "--without-pip", str(tmp_path / "venv"))

    python = pack_environment(tmp_path / "venv", tmp_path / "venv.tar.gz", prefix)

    with tarfile.open(tmp_path / "venv.tar.gz") as archive:
        member = archive.getmember("bin/python")
        while member.issym() and not os.path.isabs(member.linkname):
            member = archive.getmember(f"bin/{member.linkname}")
        settings = archive.extractfile("pyvenv.cfg")
        assert settings is not None
        home = re.search(r"home = (.*)\n", settings.read().decode())
    assert home is not None
    assert member.linkname == python
    assert os.path.dirname(python) == home[1]
    assert python == f"/opt/python/bin/{VERSION}" if prefix else os.path.exists(python)


def installs(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, *options: str) -> list[str]:
    """The arguments of `pip install` for a project in the working directory."""
    Path("pyproject.toml").write_text('[project]\nname = "counting"\n')
    commands: list[tuple[str, ...]] = []
    monkeypatch.setattr(packed_environment, "_run", lambda what, *command: commands.append(command))
    monkeypatch.setattr("amadou_runtime.command.job_package.pack_environment", lambda *_: "/usr/bin/python")
    amadou("package", "counting.jobs:counting", *options)
    (install,) = (command for command in commands if "install" in command)
    return list(install[install.index("install") + 2 :])


@pytest.mark.usefixtures("package")
def test_the_project_and_extras_are_installed_in_the_versions_of_this_environment(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    written: list[str] = []

    def versions() -> list[str]:
        written.append("orjson==3\n")
        return written

    monkeypatch.setattr(packed_environment, "_installed_versions", versions)
    wheel, project, option, constraints = installs(monkeypatch, tmp_path, "--extra", "sketches")
    assert wheel.endswith("-py3-none-any.whl[cluster,sketches]")
    assert project == str(tmp_path)
    assert option == "--constraint"
    assert constraints.endswith("constraints.txt")
    assert written


@pytest.mark.usefixtures("package")
def test_a_requirements_file_decides_which_versions_are_installed(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    Path("locked.txt").touch()
    arguments = installs(monkeypatch, tmp_path, "--requirements", "locked.txt")
    assert arguments[-2:] == ["--requirement", "locked.txt"]
    assert "--constraint" not in arguments


def test_the_constraints_name_installed_packages_but_not_amadou_and_spark() -> None:
    constraints = [*packed_environment._installed_versions()]
    assert f"orjson=={version('orjson')}\n" in constraints
    names = [line.partition("==")[0].lower() for line in constraints]
    assert len(names) == len({*names})
    assert not {"amadou", "pyspark", "pip"} & {*names}


def test_the_connectors_of_a_job_decide_which_extras_are_installed() -> None:
    sinks: dict[str, Any] = {"sums": [KafkaSink("sums", "host:1"), JsonLinesSink("sums/"), HttpSink("http://host/")]}
    several = Job("several", job.handler, {"views": MemorySource()}, sinks)
    assert _extras_of(several) == {"http", "kafka"}
    registry = KafkaSink("sums", "host:1", schema_registry="http://host:2", value_format=AvroFormat())
    assert _extras_of(Job("one", job.handler, {"views": MemorySource()}, {"sums": registry})) == {
        *("kafka", "schema-registry")
    }
    assert _extras_of(Job("none", job.handler, {"views": MemorySource()}, {"sums": MemorySink()})) == set()


def test_a_package_replaces_an_earlier_one() -> None:
    views = Path(shutil.copy(EXAMPLE / "views.py", "views.py"))
    packaged("views.py", "--no-environment", "--output", "made")
    earlier = {
        "environment-0123456789ab",
        "environment-0123456789ab.tar.gz",
        "notes.txt",
        modules_in(Path("made")).name,
    }  # a run may use them
    views.write_text(views.read_text() + "# new\n")
    Path("made", "environment-0123456789ab").mkdir()
    for name in ("notes.txt", "environment-0123456789ab.tar.gz"):
        Path("made", name).touch()

    packaged("views.py", "--no-environment", "--output", "made")

    (new,) = {path.name for path in Path("made").iterdir()} - earlier - {"run_packaged_job.py", "submit.sh"}
    assert "views.py" in names_in(Path("made", new))
    assert new in Path("made", "submit.sh").read_text()


@pytest.mark.parametrize("file", ["notes.txt", "submit.sh"])
def test_a_directory_that_is_not_a_package_is_not_changed(file: str) -> None:
    Path("made").mkdir()
    Path("made", file).write_text("mine")
    expected = "made exists and was not written by amadou package: choose a different --output\n"
    assert refusal(str(EXAMPLE / "views.py"), "--no-environment", "--output", "made") == expected
    assert refusal(str(EXAMPLE / "views.py"), "--output", "made") == expected
    assert [path.name for path in Path("made").iterdir()] == [file]
    assert "made/" + file in refusal(str(EXAMPLE / "views.py"), "--no-environment", "--output", f"made/{file}")


def test_a_directory_that_cannot_be_made_is_an_error_in_one_line() -> None:
    Path("file").touch()
    assert refusal(str(EXAMPLE / "views.py"), "--output", "file/made") == (
        "file/made cannot be written ([Errno 20] Not a directory: 'file/made'): choose a different --output\n"
    )


def test_a_package_that_cannot_be_moved_leaves_the_earlier_one(
    modules_only: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copytree(modules_only, "made")
    before = {path.name: path.read_bytes() for path in Path("made").iterdir()}

    def full(source: Path, directory: str) -> None:
        shutil.copy(source, directory)
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("amadou_runtime.command.job_package.shutil.move", full)
    message = refusal(str(EXAMPLE / "views.py"), "--no-environment", "--output", "made")
    assert message.startswith("made cannot be written ([Errno 28] No space left on device): ")
    assert {path.name: path.read_bytes() for path in Path("made").iterdir()} == before


def test_a_job_that_does_not_exist_is_an_error_in_one_line() -> None:
    assert "nothing.py does not exist" in refusal("nothing.py")


def test_an_extra_that_amadou_does_not_have_is_an_error_in_one_line() -> None:
    message = refusal(str(EXAMPLE / "views.py"), "--extra", "kafak")
    assert re.match(r"amadou has no extra 'kafak': use one of cluster, .*kafka", message)


def test_if_pip_finds_no_package_its_last_error_is_shown_and_the_earlier_package_stays(modules_only: Path) -> None:
    shutil.copytree(modules_only, "made")
    before = modules_in(Path("made"))
    Path("none.txt").write_text("--no-index\nno-such-package-here==1\n")

    message = refusal(str(EXAMPLE / "views.py"), "--output", "made", "--requirements", "none.txt")

    assert message.startswith("pip install failed: ERROR: No matching distribution")
    assert modules_in(Path("made")) == before


def test_if_a_command_fails_without_an_error_its_last_line_is_shown() -> None:
    script = "import sys; print('usage: pip\\n\\nno such option', file=sys.stderr); sys.exit(2)"
    with pytest.raises(packed_environment.ProjectError, match=r"^pip install failed: no such option$"):
        packed_environment._run("pip install", sys.executable, "-c", script)


@pytest.mark.qualify  # tests above run the script and the packed modules, and pack an environment
@pytest.mark.spark
def test_the_script_runs_the_example_with_the_python_of_the_environment_that_it_unpacks(tmp_path: Path) -> None:
    spark_home = Path(pytest.importorskip("pyspark").__file__).parent
    requirements = requirements_that_link_dependencies(tmp_path / "linked")
    made = tmp_path / "made"
    # no-deps: the dependencies are there without an installation, which would take a minute
    packaged(str(EXAMPLE / "views.py"), "--requirements", str(requirements), "--output", str(made), PIP_NO_DEPS="1")
    options = ["--once", "-p", f"VIEWS={EXAMPLE / 'views'}", "-p", f"SUMS={tmp_path / 'sums'}"]

    # the packed environment has precedence over the variable
    environment = {"SPARK_HOME": str(spark_home), "PYSPARK_PYTHON": "/nowhere", "SPARK_LOCAL_IP": "127.0.0.1"}
    run(str(made / "submit.sh"), "--master", "local[2]", "--", *options, **environment)

    assert list(made.glob("environment-*/bin/python"))
    assert_sums_of_example(tmp_path / "sums")


def requirements_that_link_dependencies(directory: Path) -> Path:
    """Return a file of requirements with a package that makes the packages of this environment importable, except
    amadou and Spark.
    """
    packages = directory / "site-packages"  # otherwise the packages would be sent to the workers
    packages.mkdir(parents=True)
    for entry in Path(sysconfig.get_path("purelib")).iterdir():
        if not re.search("amadou|pyspark|py4j", entry.name):
            (packages / entry.name).symlink_to(entry)
    wheel, info = directory / "linked-1-py3-none-any.whl", "linked-1.dist-info"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr("linked.pth", f"{packages}\n")
        archive.writestr(f"{info}/METADATA", "Metadata-Version: 2.1\nName: linked\nVersion: 1\n")
        archive.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        archive.writestr(f"{info}/RECORD", "")
    requirements = directory / "requirements.txt"
    requirements.write_text(f"{wheel}\n")
    return requirements


@pytest.mark.qualify
@pytest.mark.spark
def test_the_script_runs_the_example_on_a_cluster_whose_machines_have_only_spark(
    with_packed_environment: Path, tmp_path: Path
) -> None:
    spark_home = Path(pytest.importorskip("pyspark").__file__).parent
    (path,) = with_packed_environment.glob("environment-*.tar.gz")
    with tarfile.open(path) as archive:
        packages = {name.split("/")[3] for name in archive.getnames() if name.count("/") == 3}
    assert {"amadou", "amadou_plugins", "amadou_runtime", "pandas", "pyarrow"} <= packages
    assert not {"pyspark", "py4j"} & packages

    (tmp_path / "elsewhere").mkdir()
    with cluster(spark_home, tmp_path) as made:
        submit = [
            *(str(with_packed_environment / "submit.sh"), "--master", made.url, "--executor-memory", "800m"),
            # one executor, because each of them unpacks the environment
            *("--total-executor-cores", "1", "--conf", "spark.driver.host=127.0.0.1", "--"),
            *("--once", "-p", f"VIEWS={EXAMPLE / 'views'}", "-p", f"SUMS={tmp_path / 'sums'}"),
            *("--checkpoint", str(tmp_path / "checkpoint")),
        ]
        # the packed environment has precedence over the variable
        environment = {"SPARK_HOME": str(spark_home), "PYSPARK_PYTHON": "/nowhere", "SPARK_LOCAL_IP": "127.0.0.1"}
        with process(tmp_path / "elsewhere" / "submit.log", *submit, **environment) as submitted:
            code = submitted.wait(600)
        assert code == 0, (tmp_path / "elsewhere" / "submit.log").read_text()[-3000:] + logs(tmp_path)
        programs = [
            path for name in ("one", "two") for path in (tmp_path / name).glob("app-*/*/environment-*/bin/python")
        ]

    assert programs, "no worker had the environment"
    assert_sums_of_example(tmp_path / "sums")


@pytest.mark.qualify
@pytest.mark.spark
def test_the_script_runs_the_example_on_yarn_until_the_driver_receives_sigterm(
    with_packed_environment: Path, yarn: Path, hdfs: str, tmp_path: Path
) -> None:
    spark_home = Path(pytest.importorskip("pyspark").__file__).parent
    memory = ["--driver-memory", "512m", "--executor-memory", "512m", "--num-executors", "1"]
    # otherwise Spark uploads its jars, and makes directories in the home directory
    places = [f"spark.yarn.jars=local:{spark_home}/jars/*", f"spark.yarn.stagingDir={tmp_path.as_uri()}"]
    checkpoint = f"{hdfs}/{uuid4()}"
    submit = [
        *(str(with_packed_environment / "submit.sh"), "--master", "yarn", "--deploy-mode", "cluster", *memory),
        *("--conf", places[0], "--conf", places[1], "--"),
        *("-p", f"VIEWS={EXAMPLE / 'views'}", "-p", f"SUMS={tmp_path / 'sums'}", "--checkpoint", checkpoint),
    ]
    # the packed environment has precedence over the variable
    environment = {"SPARK_HOME": str(spark_home), "PYSPARK_PYTHON": "/nowhere", "HADOOP_CONF_DIR": str(yarn)}
    with process(tmp_path / "submit.log", *submit, **environment) as submitted:
        wait_for(lambda: any((tmp_path / "sums").glob("*.jsonl")), (tmp_path / "submit.log").read_text)
        (driver,) = (pid for pid in processes() if re.match(rf"\./environment-.* {checkpoint}", command_of(pid)))
        os.kill(driver, signal.SIGTERM)
        assert submitted.wait(120) == 0, (tmp_path / "submit.log").read_text()[-3000:]

    assert "final status: SUCCEEDED" in (tmp_path / "submit.log").read_text()
    assert_sums_of_example(tmp_path / "sums")


def processes() -> list[int]:
    shown = subprocess.run(["ps", "-eo", "pid="], capture_output=True, text=True, check=True).stdout
    return [int(pid) for pid in shown.split()]


def assert_sums_of_example(directory: Path) -> None:
    """The directory has the sums of the example's job, each once."""
    expected = TestRun(job)
    for file in sorted((EXAMPLE / "views").glob("*.jsonl")):
        expected.add_records(file.read_bytes().splitlines())
    expected.add_watermark()
    lines = [line for file in directory.glob("*.jsonl") for line in file.read_text().splitlines()]
    assert lines
    assert sorted(map(read_sum, lines), key=repr) == sorted(expected.run().records("sums"), key=repr)


def read_sum(line: str) -> ViewSum:
    fields = json.loads(line)
    return ViewSum(fields["channel_id"], datetime.fromisoformat(fields["timestamp"]), fields["sum"])
