"""`scripts/services`: Kafka, PostgreSQL, HDFS and S3 for tests."""

import json
import os
import signal
import subprocess
import sys
from base64 import b64encode
from collections.abc import Iterator
from datetime import datetime, timezone
from email.utils import format_datetime
from getpass import getuser
from hashlib import sha1
from hmac import HMAC
from pathlib import Path
from urllib.error import HTTPError
from urllib.request import Request, urlopen
from uuid import uuid4

import pytest
from attrs import frozen
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, ConfigResource
from tests.services import SCRIPT, Bucket, OwnService, need, own_service
from tests.topics import make_topic

from amadou import Secret
from amadou.errors import SinkError
from amadou_plugins.connectors import PostgresSink


@frozen
class Sum:
    channel: str
    sum: int


VARIABLES = {
    "kafka": "AMADOU_KAFKA",
    "schema-registry": "AMADOU_SCHEMA_REGISTRY",
    "postgres": "AMADOU_POSTGRES",
    "hdfs": "AMADOU_HDFS",
    "yarn": "AMADOU_YARN_CONF",
    "s3": "AMADOU_S3",
}
"""The services, and a variable that each of them sets."""
ALL, SMALL = [*VARIABLES], ["postgres", "s3"]


@pytest.fixture
def directory(tmp_path: Path) -> Iterator[Path]:
    yield tmp_path
    services("stop", tmp_path)


@pytest.fixture(scope="module")
def with_postgres(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A directory with a PostgreSQL that has been started."""
    need("PostgreSQL", "AMADOU_POSTGRES")
    directory = tmp_path_factory.mktemp("postgres")
    assert services("start", directory, "postgres") == (0, "postgres\n")
    yield directory
    services("stop", directory)


def services(command: str, directory: Path, *names: str) -> tuple[int, str]:
    """Status and standard output of the script."""
    call = [sys.executable, SCRIPT, command, *names, "--directory", directory]
    done = subprocess.run(call, capture_output=True, text=True)
    return done.returncode, done.stdout


def variables_in(directory: Path) -> dict[str, str]:
    """The environment variables of the running services."""
    lines = (directory / "env").read_text().splitlines()
    return dict(line.removeprefix("export ").split("=", 1) for line in lines)


def processes_of(directory: Path) -> list[str]:
    """The command lines that name a directory."""
    shown = subprocess.run(["ps", "-ww", "-eo", "args="], stdout=subprocess.PIPE, text=True, check=True).stdout
    return [line for line in shown.splitlines() if str(directory) in line]


def assert_postgres_sink_logs_in(variables: dict[str, str]) -> None:
    sink = PostgresSink(
        variables["AMADOU_POSTGRES_URL"],
        "sums",
        username=variables["AMADOU_POSTGRES_USER"],
        password=Secret(variables["AMADOU_POSTGRES_PASSWORD"]),
    )
    with pytest.raises(SinkError, match="the database amadou has no table sums"):
        sink.check("sums", Sum)


@pytest.mark.parametrize("names", [SMALL, pytest.param(ALL, marks=pytest.mark.qualify)], ids=["small", "all"])
def test_services_start_and_stop_and_leave_no_process(names: list[str], directory: Path):
    for name in names:
        need(name, VARIABLES[name])
    chosen = [] if names == ALL else names
    assert services("start", directory, *chosen) == (0, "".join(f"{name}\n" for name in names))
    env = (directory / "env").read_text()
    status, shown = services("status", directory, *chosen)
    assert (status, len(processes_of(directory))) == (0, len(names))
    assert [line.split(": ")[0] for line in shown.splitlines()] == names
    assert all(line.split()[1].rstrip(",") in env for line in shown.splitlines())
    assert_postgres_sink_logs_in(variables_in(directory))

    assert services("start", directory, *chosen) == (0, "")  # they run already

    assert services("stop", directory, *chosen) == (0, "")
    assert processes_of(directory) == []
    assert services("status", directory, *chosen) == (1, "".join(f"{name}: stopped\n" for name in names))
    assert set(variables_in(directory)) <= {"AMADOU_DELTA_JARS", "AMADOU_ICEBERG_JARS"}


def test_kafka_keeps_records_of_any_time(kafka: str):
    admin = AdminClient({"bootstrap.servers": kafka})
    broker = ConfigResource(ConfigResource.Type.BROKER, "1")
    settings = admin.describe_configs([broker])[broker].result()
    assert settings["log.retention.ms"].value == "-1"
    refusals: list[object] = []
    producer, topic = Producer({"bootstrap.servers": kafka}), make_topic(kafka)
    for timestamp in (946_684_800_000, 4_102_444_800_000):  # of the years 2000 and 2100
        producer.produce(topic, b"", timestamp=timestamp, on_delivery=lambda error, _: refusals.append(error))
    producer.flush(30)
    assert refusals == [None, None]


def test_a_service_that_was_killed_starts_again_at_the_same_address(with_postgres: Path):
    env = (with_postgres / "env").read_text()
    os.kill(int((with_postgres / "postgres" / "pid").read_text()), signal.SIGQUIT)
    services("stop", with_postgres)  # waits for its end
    assert (with_postgres / "env").read_text() != env

    assert services("start", with_postgres, "postgres") == (0, "postgres\n")

    assert (with_postgres / "env").read_text() == env


def test_only_their_owner_can_read_the_passwords_of_services(with_postgres: Path):
    assert (with_postgres / "env").stat().st_mode & 0o077 == 0


def test_stopping_a_service_does_not_stop_another_process_with_its_process_id(directory: Path):
    (directory / "postgres").mkdir(parents=True)
    with subprocess.Popen(["sleep", "60"]) as other:
        (directory / "postgres" / "pid").write_text(str(other.pid))

        status, _ = services("stop", directory)

        assert (status, other.poll()) == (0, None)
        other.kill()


@pytest.fixture
def own_hdfs(tmp_path: Path) -> Iterator[OwnService]:
    need("HDFS", "AMADOU_HDFS")
    need("YARN", "AMADOU_YARN_CONF")
    yield from own_service("hdfs", tmp_path / "own")


@pytest.fixture
def own_s3(tmp_path: Path) -> Iterator[OwnService]:
    need("S3", "AMADOU_S3")
    yield from own_service("s3", tmp_path / "own")


def send(method: str, url: str, body: bytes | None = None, headers: dict[str, str] | None = None) -> tuple[int, bytes]:
    """Send an HTTP request, and return the status and the content of the response."""
    try:
        with urlopen(Request(url, body, headers or {}, method=method)) as response:
            return response.status, response.read()
    except HTTPError as error:
        return error.code, error.read()


def send_signed(
    s3: Bucket,
    method: str,
    path: str,
    body: bytes | None = None,
    headers: dict[str, str] | None = None,
    *,
    secret: str | None = None,
) -> tuple[int, bytes]:
    """Send a request with version 2 of Amazon's signatures."""
    date, kind = format_datetime(datetime.now(timezone.utc), usegmt=True), "text/plain"
    text = f"{method}\n\n{kind}\n{date}\n/{path}"
    digest = HMAC((secret or s3.secret).encode(), text.encode(), sha1).digest()
    login = f"AWS {s3.key}:{b64encode(digest).decode()}"
    signed = {"Authorization": login, "Date": date, "Content-Type": kind, **(headers or {})}
    return send(method, f"{s3.url}/{path}", body, signed)


@pytest.mark.qualify
def test_a_killed_hdfs_retains_its_files(own_hdfs: OwnService, tmp_path: Path):
    port = json.loads((tmp_path / "own" / "hdfs" / "settings.json").read_text())["http_port"]
    file = f"http://127.0.0.1:{port}/webhdfs/v1/folder/file?user.name={getuser()}"
    _, answer = send("PUT", f"{file}&op=CREATE&noredirect=true")
    assert send("PUT", json.loads(answer)["Location"], b"content")[0] == 201

    own_hdfs.kill()
    own_hdfs.start()

    assert send("GET", f"{file}&op=OPEN") == (200, b"content")


@pytest.mark.qualify
def test_a_killed_s3_server_retains_its_objects(own_s3: OwnService):
    s3 = Bucket(*(own_s3.variables[f"AMADOU_S3{name}"] for name in ("", "_BUCKET", "_KEY", "_SECRET", "_JARS")))
    assert send_signed(s3, "PUT", f"{s3.name}/folder/object", b"content")[0] == 200

    own_s3.kill()
    own_s3.start()

    assert send_signed(s3, "GET", f"{s3.name}/folder/object") == (200, b"content")


def test_the_s3_server_checks_logins_buckets_and_conditions(s3: Bucket):
    missing, path = {"If-None-Match": "*"}, f"{s3.name}/{uuid4().hex}"
    assert send_signed(s3, "PUT", path, b"first", missing)[0] == 200
    assert send_signed(s3, "PUT", path, b"second", missing)[0] == 412
    assert send_signed(s3, "GET", path) == (200, b"first")

    status, answer = send_signed(s3, "GET", path, secret="wrong")
    assert (status, b"SignatureDoesNotMatch" in answer) == (403, True)
    assert send("GET", f"{s3.url}/{path}")[0] == 403
    assert send_signed(s3, "GET", "missing/object")[0] == 404


def test_the_error_of_an_unknown_service_names_those_that_exist(tmp_path: Path):
    call = [sys.executable, SCRIPT, "start", "mysql", "--directory", tmp_path]

    done = subprocess.run(call, stderr=subprocess.PIPE, text=True)

    assert done.returncode == 2
    assert (
        "unknown service 'mysql' (services: kafka, schema-registry, postgres, hdfs, yarn, s3, delta, iceberg)"
        in done.stderr
    )
