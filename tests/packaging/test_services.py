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

import pytest
from attrs import frozen
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, ConfigResource, NewTopic
from tests.services import SCRIPT, OwnService, need, own_service

from amadou import Secret
from amadou.errors import SinkError
from amadou_plugins.connectors import PostgresSink


@frozen
class Sum:
    channel: str
    sum: int


@pytest.fixture
def directory(tmp_path: Path) -> Iterator[Path]:
    need("Kafka", "AMADOU_KAFKA")
    need("PostgreSQL", "AMADOU_POSTGRES")
    need("HDFS", "AMADOU_HDFS")
    need("YARN", "AMADOU_YARN_CONF")
    need("S3", "AMADOU_S3")
    yield tmp_path
    services("stop", tmp_path)


def services(command: str, directory: Path, *names: str) -> tuple[int, str]:
    """Status and standard output of the script."""
    call = [sys.executable, SCRIPT, command, *names, "--directory", directory]
    done = subprocess.run(call, capture_output=True, text=True)
    return done.returncode, done.stdout


def processes_of(directory: Path) -> list[str]:
    """The command lines that name a directory."""
    shown = subprocess.run(["ps", "-ww", "-eo", "args="], stdout=subprocess.PIPE, text=True, check=True).stdout
    return [line for line in shown.splitlines() if str(directory) in line]


def assert_postgres_sink_takes(variables: dict[str, str]) -> None:
    sink = PostgresSink(
        variables["AMADOU_POSTGRES_URL"],
        "sums",
        username=variables["AMADOU_POSTGRES_USER"],
        password=Secret(variables["AMADOU_POSTGRES_PASSWORD"]),
    )
    with pytest.raises(SinkError, match="the database amadou has no table sums"):  # it was let in
        sink.check("sums", Sum)


def assert_kafka_keeps_records_of_any_time(address: str) -> None:
    admin = AdminClient({"bootstrap.servers": address})
    broker = ConfigResource(ConfigResource.Type.BROKER, "1")
    settings = admin.describe_configs([broker])[broker].result()
    assert settings["log.retention.ms"].value == "-1"
    admin.create_topics([NewTopic("old", 1)])["old"].result()
    producer = Producer({"bootstrap.servers": address})
    for timestamp in (946_684_800_000, 4_102_444_800_000):  # of the years 2000 and 2100
        producer.produce("old", b"", timestamp=timestamp, on_delivery=lambda error, _: refusals.append(error))
    refusals: list[object] = []
    producer.flush(30)
    assert refusals == [None, None]


def test_services_start_and_stop_and_leave_nothing_running(directory: Path):
    names = ["kafka", "schema-registry", "postgres", "hdfs", "yarn", "s3"]
    assert services("start", directory) == (0, "".join(f"{name}\n" for name in names))
    env = (directory / "env").read_text()
    status, told = services("status", directory)
    assert (status, len(processes_of(directory))) == (0, len(names))
    assert [line.split(": ")[0] for line in told.splitlines()] == names
    assert all(line.split()[1].rstrip(",") in env for line in told.splitlines())

    variables = dict(line.removeprefix("export ").split("=", 1) for line in env.splitlines())
    assert_postgres_sink_takes(variables)
    assert_kafka_keeps_records_of_any_time(variables["AMADOU_KAFKA"])

    assert services("start", directory) == (0, "")  # they run already

    assert services("stop", directory) == (0, "")
    assert processes_of(directory) == []
    assert services("status", directory) == (1, "".join(f"{name}: stopped\n" for name in names))
    variables = [line.removeprefix("export ").split("=")[0] for line in (directory / "env").read_text().splitlines()]
    assert set(variables) <= {"AMADOU_DELTA_JARS", "AMADOU_ICEBERG_JARS"}


def test_services_come_back_at_the_same_address(directory: Path):
    services("start", directory, "postgres")
    env = (directory / "env").read_text()
    services("stop", directory)

    services("start", directory, "postgres")

    assert (directory / "env").read_text() == env


def test_a_killed_service_is_seen_and_starts_again(directory: Path):
    services("start", directory, "postgres")
    os.kill(int((directory / "postgres" / "pid").read_text()), signal.SIGQUIT)
    services("stop", directory)  # waits for its end

    assert services("start", directory, "postgres") == (0, "postgres\n")


def test_another_process_with_a_services_number_is_left_alone(directory: Path):
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
    s3: OwnService,
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
    digest = HMAC((secret or s3.variables["AMADOU_S3_SECRET"]).encode(), text.encode(), sha1).digest()
    login = f"AWS {s3.variables['AMADOU_S3_KEY']}:{b64encode(digest).decode()}"
    signed = {"Authorization": login, "Date": date, "Content-Type": kind, **(headers or {})}
    return send(method, f"{s3.variables['AMADOU_S3']}/{path}", body, signed)


def test_a_killed_hdfs_retains_its_files(own_hdfs: OwnService, tmp_path: Path):
    port = json.loads((tmp_path / "own" / "hdfs" / "settings.json").read_text())["http_port"]
    file = f"http://127.0.0.1:{port}/webhdfs/v1/folder/file?user.name={getuser()}"
    _, answer = send("PUT", f"{file}&op=CREATE&noredirect=true")
    assert send("PUT", json.loads(answer)["Location"], b"content")[0] == 201

    own_hdfs.kill()
    own_hdfs.start()

    assert send("GET", f"{file}&op=OPEN") == (200, b"content")


def test_a_killed_s3_server_retains_its_objects(own_s3: OwnService):
    assert send_signed(own_s3, "PUT", "amadou/folder/object", b"content")[0] == 200

    own_s3.kill()
    own_s3.start()

    assert send_signed(own_s3, "GET", "amadou/folder/object") == (200, b"content")


def test_the_s3_server_checks_logins_buckets_and_conditions(own_s3: OwnService):
    missing = {"If-None-Match": "*"}
    assert send_signed(own_s3, "PUT", "amadou/object", b"first", missing)[0] == 200
    assert send_signed(own_s3, "PUT", "amadou/object", b"second", missing)[0] == 412
    assert send_signed(own_s3, "GET", "amadou/object") == (200, b"first")

    status, answer = send_signed(own_s3, "GET", "amadou/object", secret="wrong")
    assert (status, b"SignatureDoesNotMatch" in answer) == (403, True)
    assert send("GET", f"{own_s3.variables['AMADOU_S3']}/amadou/object")[0] == 403
    assert send_signed(own_s3, "GET", "missing/object")[0] == 404


def test_passwords_are_for_their_owner_only(directory: Path):
    services("start", directory, "postgres")

    assert (directory / "env").stat().st_mode & 0o077 == 0


def test_an_unknown_service_names_those_there_are(tmp_path: Path):
    call = [sys.executable, SCRIPT, "start", "mysql", "--directory", tmp_path]

    done = subprocess.run(call, stderr=subprocess.PIPE, text=True)

    assert done.returncode == 2
    assert (
        "unknown service 'mysql' (services: kafka, schema-registry, postgres, hdfs, yarn, s3, delta, iceberg)"
        in done.stderr
    )
