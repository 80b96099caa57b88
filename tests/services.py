"""Kafka, the schema registry and PostgreSQL as `scripts/services` runs them."""

import json
import os
import shlex
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from functools import cached_property
from pathlib import Path
from typing import Any, NoReturn

import attrs
import pytest

SCRIPT = Path(__file__).resolve().parent.parent / "scripts" / "services"


def unavailable(reason: str) -> NoReturn:
    """Skips the test that needs what is not there; fails it in CI, which must have everything."""
    if os.environ.get("CI") == "true":
        pytest.fail(reason, pytrace=False)
    pytest.skip(reason)


def need(service: str, variable: str) -> str:
    """What `scripts/services` or `scripts/test` told how to reach a service; skips the test where neither did."""
    value = os.environ.get(variable)
    if not value:
        unavailable(f"{service} is not there: run scripts/services start and source .services/env, or run scripts/test")
    return value


@attrs.frozen
class KafkaLogin:
    address: str
    user: str
    password: str


class OwnService:
    """A service that a test may stop and start as it likes.

    :param name: the service's, as `scripts/services` has it
    :param directory: where it lives
    """

    def __init__(self, name: str, directory: Path) -> None:
        self._name = name
        self._directory = directory

    def start(self) -> None:
        """Start it at the address it had, and wait until it is ready."""
        self._do("start")

    def stop(self) -> None:
        """Stop it; its data stays."""
        self._do("stop")

    def kill(self) -> None:
        """Stop it as a power cut would."""
        pid = int((self._directory / self._name / "pid").read_text())
        os.kill(pid, signal.SIGQUIT if self._name == "postgres" else signal.SIGKILL)
        self.stop()

    def set_properties(self, properties: dict[str, Any]) -> None:
        """Set properties of Kafka's broker, for its next start."""
        file = self._directory / self._name / "settings.json"
        file.write_text(json.dumps(json.loads(file.read_text()) | {"properties": properties}))

    @property
    def address(self) -> str:
        """Host and port."""
        return self._variables["AMADOU_KAFKA"] if self._name == "kafka" else self.url.split("@")[1].split("/")[0]

    @property
    def url(self) -> str:
        """PostgreSQL's database, with user and password."""
        return self._variables["AMADOU_POSTGRES"]

    def _do(self, command: str) -> None:
        call = [sys.executable, SCRIPT, command, self._name, "--directory", self._directory]
        done = subprocess.run(call, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        assert done.returncode == 0, done.stdout

    @cached_property
    def _variables(self) -> dict[str, str]:
        """Of the file env: they stay the same while it is stopped."""
        words = shlex.split((self._directory / "env").read_text())
        return dict(word.split("=", 1) for word in words if word != "export")


def own_service(name: str, directory: Path) -> Iterator[OwnService]:
    service = OwnService(name, directory)
    service.start()
    yield service
    service.stop()
    shutil.rmtree(directory)
