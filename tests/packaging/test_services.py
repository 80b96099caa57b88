"""`scripts/services`: Kafka and PostgreSQL for tests."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.services import SCRIPT, need


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


def test_services_start_and_stop_and_leave_nothing_running(directory: Path):
    assert services("start", directory) == (0, "kafka\npostgres\n")
    env = (directory / "env").read_text()
    status, told = services("status", directory)
    assert (status, len(processes_of(directory))) == (0, 2)
    assert [line.split(": ")[0] for line in told.splitlines()] == ["kafka", "postgres"]
    assert all(line.split()[1].rstrip(",") in env for line in told.splitlines())

    assert services("start", directory) == (0, "")  # they run already

    assert services("stop", directory) == (0, "")
    assert processes_of(directory) == []
    assert services("status", directory) == (1, "kafka: stopped\npostgres: stopped\n")
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
    assert "there is no service 'mysql': there are kafka and postgres" in done.stderr
