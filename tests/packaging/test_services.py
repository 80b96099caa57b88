"""`scripts/services`: Kafka and PostgreSQL for tests."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from attrs import frozen
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, ConfigResource, NewTopic
from tests.services import SCRIPT, need

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
    assert services("start", directory) == (0, "kafka\nschema-registry\npostgres\n")
    env = (directory / "env").read_text()
    status, told = services("status", directory)
    assert (status, len(processes_of(directory))) == (0, 3)
    assert [line.split(": ")[0] for line in told.splitlines()] == ["kafka", "schema-registry", "postgres"]
    assert all(line.split()[1].rstrip(",") in env for line in told.splitlines())

    variables = dict(line.removeprefix("export ").split("=", 1) for line in env.splitlines())
    assert_postgres_sink_takes(variables)
    assert_kafka_keeps_records_of_any_time(variables["AMADOU_KAFKA"])

    assert services("start", directory) == (0, "")  # they run already

    assert services("stop", directory) == (0, "")
    assert processes_of(directory) == []
    assert services("status", directory) == (1, "kafka: stopped\nschema-registry: stopped\npostgres: stopped\n")
    assert (directory / "env").read_text() == ""


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


def test_passwords_are_for_their_owner_only(directory: Path):
    services("start", directory, "postgres")

    assert (directory / "env").stat().st_mode & 0o077 == 0


def test_an_unknown_service_names_those_there_are(tmp_path: Path):
    call = [sys.executable, SCRIPT, "start", "mysql", "--directory", tmp_path]

    done = subprocess.run(call, stderr=subprocess.PIPE, text=True)

    assert done.returncode == 2
    assert "unknown service 'mysql' (services: kafka, schema-registry, postgres)" in done.stderr
