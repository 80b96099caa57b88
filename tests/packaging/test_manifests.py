"""The image and the command line in the manifests of `amadou new`, with the variables of their Secret, and a local
bucket.
"""

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterable
from hashlib import sha256
from pathlib import Path
from typing import Any
from uuid import uuid4

import pyspark
import pytest
import yaml
from tests.commands import output
from tests.services import Bucket
from tests.spark.clusters import submitting
from tests.waits import wait_for

from amadou.remote_files import RemoteDirectory


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A new project, which is the working directory."""
    monkeypatch.chdir(tmp_path)
    output("new", "click-counts")
    monkeypatch.chdir("click-counts")
    return tmp_path / "click-counts"


def counts_in(files: Iterable[bytes]) -> list[Any]:
    return sorted((json.loads(line) for file in files for line in file.splitlines()), key=str)


def written(place: RemoteDirectory) -> list[Any]:
    names = (name for name in place.names("counts") if not name.startswith("."))
    return counts_in(place.read(f"counts/{name}") or b"" for name in names)


def jars_of_image(s3: Bucket) -> str:
    """Of the jars of `scripts/services`, those that the image has, too. The image has the AWS SDK as one jar."""
    dockerfile = Path("Dockerfile").read_text()
    added = {Path(jar).stem for jar in re.findall(r"\S+\.jar", dockerfile)}
    (sdk,) = (name.removeprefix("bundle-") for name in added if name.startswith("bundle-"))
    jars = {Path(jar).stem: jar for jar in s3.jars.split(",")}
    assert f"s3-{sdk}" in jars
    for name in added - {f"bundle-{sdk}"}:
        checksum = sha256(Path(jars[name]).read_bytes()).hexdigest()
        assert re.search(rf"sha256:{checksum} \\\n\s+\S+/{re.escape(name)}\.jar", dockerfile)
    of_hadoop = {name for name in jars if name.startswith(("hadoop-", "analyticsaccelerator-", "wildfly-"))}
    return ",".join(jars[name] for name in jars.keys() - (of_hadoop - added))


@pytest.mark.usefixtures("project")
def test_the_image_of_a_new_project_has_the_jars_for_s3(s3: Bucket) -> None:
    assert "hadoop-aws-" in jars_of_image(s3)


@pytest.mark.qualify
@pytest.mark.spark
def test_spark_submit_runs_the_job_of_the_manifests_until_its_pod_is_stopped(
    spark: Any, s3: Bucket, project: Path, tmp_path: Path
) -> None:
    home = Path(pyspark.__file__).parent
    environment = {**os.environ, **submitting(home), "AWS_ACCESS_KEY_ID": s3.key, "AWS_SECRET_ACCESS_KEY": s3.secret}
    environment["PYTHONPATH"] += f"{os.pathsep}{project / 'src'}"
    embedded = [sys.executable, "main.py", "--engine", "embedded", "-p", "COUNTS=expected"]
    subprocess.run(embedded, env=environment, check=True)
    expected = counts_in(path.read_bytes() for path in Path("expected").iterdir())
    assert expected

    place = f"{s3.name}/{uuid4().hex}"
    remote = RemoteDirectory(f"s3a://{place}/click-counts", spark.sparkContext)
    for sample in sorted(Path("samples").iterdir()):
        remote.upload(str(sample), f"events/{sample.name}")
    spec = yaml.safe_load(Path("deploy/apache-spark-operator.yaml").read_text())["spec"]
    settings = {
        name: value for name, value in s3.spark_conf.items() if not name.endswith((".access.key", ".secret.key"))
    }
    settings["spark.jars"] = jars_of_image(s3)
    command = [str(home / "bin" / "spark-submit"), "--master", "local[2]"]
    command += [word for name, value in settings.items() for word in ("--conf", f"{name}={value}")]
    command += ["main.py", *(argument.replace("BUCKET", place) for argument in spec["driverArgs"])]
    log = tmp_path / "log"
    with log.open("wb") as file:
        pod = subprocess.Popen(command, env=environment, stdout=file, stderr=file)
    try:
        wait_for(lambda: pod.poll() is not None or written(remote) == expected, log.read_text)
        pod.send_signal(signal.SIGTERM)
        assert pod.wait(120) == 0, log.read_text()
    finally:
        pod.kill()
    assert written(remote) == expected
    assert {"checkpoint", "counts"} <= {*remote.names()}
