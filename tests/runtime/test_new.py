"""`amadou new` makes a project that runs without changes."""

import errno
import os
import re
import shutil
import subprocess
import sys
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import yaml
from hatchling.builders.wheel import WheelBuilder
from tests.commands import amadou, output

pytest_plugins = ["pytester"]

ROOT = Path(__file__).parents[2]
KUBEFLOW = {
    "spec": {
        *("type", "pythonVersion", "mode", "sparkVersion", "image", "mainApplicationFile", "arguments"),
        *("restartPolicy", "driver", "executor"),
    },
    "restartPolicy": {"type", "onFailureRetryInterval", "onSubmissionFailureRetryInterval"},
    "driver": {"cores", "memory", "serviceAccount", "terminationGracePeriodSeconds", "envFrom", "securityContext"},
    "executor": {"instances", "cores", "memory", "envFrom", "securityContext"},
}
"""Fields of sparkoperator.k8s.io/v1beta2 that the manifest may have: of the spec and of objects in it."""
APACHE = {
    "spec": {
        *("pyFiles", "driverArgs", "runtimeVersions", "sparkConf", "applicationTolerations"),
        *("driverSpec", "executorSpec"),
    },
    "runtimeVersions": {"sparkVersion"},
    "applicationTolerations": {"restartConfig"},
    "restartConfig": {"restartPolicy", "maxRestartAttempts", "restartBackoffMillis", "restartCounterResetMillis"},
    "driverSpec": {"podTemplateSpec"},
    "executorSpec": {"podTemplateSpec"},
    "podTemplateSpec": {"spec"},
}
"""The same for spark.apache.org/v1."""
RESTRICTED = {
    "runAsNonRoot": True,
    "allowPrivilegeEscalation": False,
    "capabilities": {"drop": ["ALL"]},
    "seccompProfile": {"type": "RuntimeDefault"},
}
"""What the restricted level of Kubernetes' Pod Security Standards demands of a container."""
MANIFESTS = {"kubeflow-spark-operator": KUBEFLOW, "apache-spark-operator": APACHE}


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A new project. Tests that write files use a copy."""
    place = tmp_path_factory.mktemp("new")
    with pytest.MonkeyPatch.context() as patched:
        patched.chdir(place)
        output("new", "Click_Counts")
    return place / "Click_Counts"


def run(project: Path, *command: str) -> str:
    environment = {**os.environ, "PYTHONPATH": "src", "PYTHONDONTWRITEBYTECODE": "1"}
    done = subprocess.run(
        [sys.executable, "-m", *command], cwd=project, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    return done.stdout


def run_job(project: Path, *options: str) -> str:
    code = "from amadou_runtime.command.cli import app; app()"
    environment = {**os.environ, "PYTHONPATH": "src", "PYTHONDONTWRITEBYTECODE": "1"}
    command = [sys.executable, "-c", code, "run", "main.py", *options]
    done = subprocess.run(command, cwd=project, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    return done.stdout


def manifest(project: Path, name: str) -> dict[str, Any]:
    read: dict[str, Any] = yaml.safe_load((project / "deploy" / f"{name}.yaml").read_text())
    return read


def objects(of: Any, name: str = "") -> list[tuple[str, dict[str, Any]]]:
    """Return all objects in a manifest, each with the name of its field."""
    if isinstance(of, list):
        return [pair for each in of for pair in objects(each)]
    if not isinstance(of, dict):
        return []
    return [(name, of), *(pair for field, value in of.items() for pair in objects(value, field))]


def test_new_prints_the_next_three_commands(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert output("new", "clicks").splitlines() == [
        "cd clicks",
        'pip install --find-links wheels -e ".[test]"',
        "pytest",
    ]


def test_new_derives_names_from_the_project_and_leaves_no_placeholder(project: Path) -> None:
    files = (path for path in project.rglob("*") if path.is_file() and path.suffix != ".whl")
    texts = {str(path.relative_to(project)): path.read_text() for path in files}
    assert {"src/click_counts/handler.py", ".gitignore", ".dockerignore", ".github/workflows/test.yml"} <= texts.keys()
    assert not [name for name, text in texts.items() if re.search(r"project[-_]name|amadou\.version", name + text)]
    assert not [name for name, text in texts.items() if text.count("\n\n\n\n") or not text.endswith("\n")]
    assert 'name = "click-counts"' in texts["pyproject.toml"]
    assert f'"amadou[cluster,prometheus]=={version("amadou")}"' in texts["pyproject.toml"]
    assert '"click-counts",' in texts["src/click_counts/job.py"]


def test_the_tests_of_a_new_project_pass(project: Path, tmp_path: Path, pytester: pytest.Pytester) -> None:
    copy = shutil.copytree(project, tmp_path / "copy")
    pytester.syspathinsert(copy / "src")
    pytester.runpytest_inprocess(f"--rootdir={copy}", "-c", copy / "pyproject.toml", copy).assert_outcomes(passed=4)


def test_the_job_of_a_new_project_prints_counts_of_the_samples(project: Path) -> None:
    lines = run_job(project, "--engine", "embedded", "--flush", "--sink", "counts=console").splitlines()
    counts = [int(line.rpartition(":")[2].strip(" }")) for line in lines if line.startswith("counts: ")]
    assert len(counts) > 4
    assert sum(counts) == len((project / "samples" / "events.jsonl").read_text().splitlines())


def test_samples_of_a_new_project_have_events_out_of_order_but_no_late_events(project: Path, tmp_path: Path) -> None:
    project = shutil.copytree(project, tmp_path / "copy")
    times = re.findall(r'"time": "(.*?)"', (project / "samples" / "events.jsonl").read_text())
    assert times != sorted(times)
    run_job(project, "--engine", "embedded")
    assert list((project / "out" / "counts").glob("*.jsonl"))
    assert not list(project.glob("out/failed/*.jsonl"))


@pytest.mark.skipif(find_spec("ruff") is None, reason="ruff is not installed")
def test_the_code_of_a_new_project_passes_a_linter_with_default_settings(project: Path) -> None:
    run(project, "ruff", "check", "--no-cache", "--select", "E,F,I,B,UP,W,N,SIM,RUF,C4,PT", ".")
    run(project, "ruff", "format", "--no-cache", "--check", ".")


@pytest.mark.parametrize("name", MANIFESTS)
def test_the_manifests_of_a_new_project_have_only_fields_that_their_operators_know(project: Path, name: str) -> None:
    known = MANIFESTS[name]
    read = manifest(project, name)
    assert read["kind"] == "SparkApplication"
    assert read["metadata"] == {"name": "click-counts"}
    named = [(field, set(value)) for field, value in objects(read["spec"], "spec") if field in known]
    assert {field for field, _ in named} == known.keys()
    for field, names in named:
        # the spec of a pod has the fields of Kubernetes
        assert names <= known[field] or names <= {"containers", "terminationGracePeriodSeconds"}, field


def test_the_manifests_of_a_new_project_run_the_same_job_in_the_same_way(project: Path) -> None:
    kubeflow = manifest(project, "kubeflow-spark-operator")["spec"]
    apache = manifest(project, "apache-spark-operator")["spec"]
    assert kubeflow["mainApplicationFile"] == apache["pyFiles"] == "local:///opt/job/main.py"
    assert kubeflow["arguments"] == apache["driverArgs"]
    assert kubeflow["sparkVersion"] == apache["runtimeVersions"]["sparkVersion"]
    assert kubeflow["image"] == apache["sparkConf"]["spark.kubernetes.container.image"]
    # Not OnFailure: a job whose pod is stopped because a node is drained ends with status 0.
    # The operator multiplies the interval by the number of attempts, which only a change of the spec resets.
    assert kubeflow["restartPolicy"] == {
        "type": "Always",
        "onFailureRetryInterval": 5,
        "onSubmissionFailureRetryInterval": 5,
    }
    assert apache["applicationTolerations"]["restartConfig"]["restartPolicy"] == "Always"
    graces = [kubeflow["driver"], apache["driverSpec"]["podTemplateSpec"]["spec"]]
    assert [grace["terminationGracePeriodSeconds"] for grace in graces] == [120, 120]
    assert all(isinstance(value, str) for value in apache["sparkConf"].values())
    dockerfile = (project / "Dockerfile").read_text()
    assert f"ARG SPARK={kubeflow['sparkVersion']}\n" in dockerfile
    assert "COPY main.py /opt/job/main.py" in dockerfile


@pytest.mark.parametrize("name", MANIFESTS)
def test_the_pods_of_a_new_project_pass_the_restricted_level_and_need_no_secret(project: Path, name: str) -> None:
    read = objects(manifest(project, name)["spec"])
    assert [value for field, value in read if field == "securityContext"] == [RESTRICTED] * 2
    assert [value for field, value in read if field == "secretRef"] == [
        {"name": "click-counts-secrets", "optional": True}
    ] * 2
    # Kubernetes compares only numbers with that of root
    assert (project / "Dockerfile").read_text().endswith("\nUSER 185\n")


def test_the_github_workflow_of_a_new_project_uses_the_spark_of_its_image(project: Path) -> None:
    workflow = (project / ".github" / "workflows" / "test.yml").read_text()
    (spark,) = re.findall(r"ARG SPARK=(\S+)", (project / "Dockerfile").read_text())
    assert f" pyspark=={spark}\n" in workflow
    assert yaml.safe_load(workflow)["jobs"].keys() == {"test", "image"}


def test_the_arguments_in_the_manifests_are_options_and_parameters_of_the_job(project: Path) -> None:
    arguments = manifest(project, "apache-spark-operator")["spec"]["driverArgs"]
    options = {argument.partition("=")[0] for argument in arguments}
    assert all(option in output("run", "--help") for option in options)
    params = {argument.split("=")[1] for argument in arguments if argument.startswith("--param=")}
    assert params == set(re.findall(r'Param\("(\w+)"', (project / "src" / "click_counts" / "job.py").read_text()))


def test_the_job_in_the_manifests_reads_and_writes_files_only_in_the_bucket(project: Path) -> None:
    arguments = manifest(project, "apache-spark-operator")["spec"]["driverArgs"]
    paths = [argument for argument in arguments if not argument.startswith("--trigger=")]
    assert len(paths) == 4
    assert all("=s3a://BUCKET/click-counts/" in path for path in paths)


@pytest.mark.parametrize(
    ("file", "language"),
    [("Dockerfile", "dockerfile"), *((f"deploy/{name}.yaml", "yaml") for name in MANIFESTS)],
)
def test_the_docs_show_a_file_for_kubernetes_as_the_command_makes_it(project: Path, file: str, language: str) -> None:
    page = (ROOT / "docs" / "deploying" / "kubernetes.md").read_text()
    assert f"```{language}\n{(project / file).read_text()}```\n" in page


@pytest.mark.parametrize(
    ("name", "message"),
    [
        *((name, "use letters, digits, - and _") for name in ("1st", "a", "a b", "a/b", "a.b", "clicks-", "x" * 41)),
        *((name, "Python or the project uses") for name in ("json", "class", "Main", "tests")),
        *((name, "is already installed") for name in ("amadou", "pytest")),
    ],
)
def test_new_refuses_an_invalid_name_in_one_line(
    name: str, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    done = amadou("new", name)
    assert done.exit_code == 1
    assert message in done.stderr
    assert done.stderr.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", ["Click_Counts", "a--b", "a__b"])
def test_the_image_of_a_new_project_installs_the_wheel_of_the_last_version(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    output("new", name)
    project = tmp_path / name
    (installed,) = re.findall(r"/tmp/(dist/\S+\.whl)", (project / "Dockerfile").read_text())
    (remove,) = re.findall(r"rm -f \S+", (project / "README.md").read_text())
    settings = project / "pyproject.toml"
    for version_ in ("0.1.0", "0.2.0"):
        settings.write_text(re.sub(r'(?m)^version = ".*"', f'version = "{version_}"', settings.read_text()))
        subprocess.run(remove, shell=True, cwd=project, check=True)
        made = next(WheelBuilder(str(project)).build())
        (wheel,) = project.glob(installed)
        assert wheel.name == Path(made).name
        assert f"-{version_}-" in wheel.name


@pytest.mark.parametrize("name", ["dist", "out"])
def test_git_does_not_ignore_the_code_of_a_project_with_the_name_of_an_ignored_directory(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    # an example may have left a directory with this name in the checkout, where tests can import it
    monkeypatch.setattr(sys, "path", [path for path in sys.path if not Path(path, name).exists()])
    output("new", name)
    (tmp_path / name / name).mkdir()
    (tmp_path / name / name / "written").touch()
    subprocess.run(["git", "init", "--quiet", name], check=True)
    listed = subprocess.run(
        ["git", "ls-files", "--others", "--exclude-standard"], cwd=name, capture_output=True, text=True, check=True
    )
    assert f"src/{name}/handler.py" in listed.stdout.splitlines()
    assert f"{name}/written" not in listed.stdout.splitlines()


def test_a_project_that_cannot_be_written_is_an_error_in_one_line_and_leaves_no_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)

    def full(*_: Any, **__: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(Path, "write_text", full)
        done = amadou("new", "clicks")
    assert done.exit_code == 1
    assert done.stderr.startswith("clicks cannot be written ([Errno 28] No space left on device): ")
    assert done.stderr.count("\n") == 1
    assert list(tmp_path.iterdir()) == []
    output("new", "clicks")


def test_new_does_not_replace_a_broken_symbolic_link(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "clicks").symlink_to("nothing")
    done = amadou("new", "clicks")
    assert done.exit_code == 1
    assert done.stderr == "clicks exists: choose a different name, or remove clicks\n"
    assert (tmp_path / "clicks").is_symlink()


def test_new_does_not_change_an_existing_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "clicks").mkdir()
    done = amadou("new", "clicks")
    assert done.exit_code == 1
    assert done.stderr == "clicks exists: choose a different name, or remove clicks\n"
    assert list((tmp_path / "clicks").iterdir()) == []
