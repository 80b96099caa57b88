"""A job in a file of its own, which writes dead letters, and programs that run it."""

import os
import re
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.spark.commands import AMADOU

CODE = '''
from datetime import datetime

from amadou import Handler, Job, KeyedEvent, Param, ValueSpec
from amadou_plugins.connectors import LinesSource
import json


class Shop(Handler):
    """Sums each customer's orders."""

    total = ValueSpec(int, 0)

    def key_event(self, record):
        fields = json.loads(record)
        return KeyedEvent(fields["customer"], datetime.fromisoformat(fields["timestamp"]), fields)

    def on_event(self, subject, event):
        self.total.state_for(subject).value += event.value["cents"]


job = Job("shop", Shop(), {"orders": LinesSource(Param("ORDERS"))}, {}, on_error="dead_letter")
'''


class Shop:
    """A directory with a job and its input."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.file = directory / "customers.py"
        self.file.write_text(textwrap.dedent(CODE))
        self.orders = directory / "orders"
        self.orders.mkdir()
        self.checkpoint = directory / "state"
        self._files = 0

    @property
    def params(self) -> dict[str, str]:
        return {"ORDERS": str(self.orders)}

    def add(self, *lines: str) -> None:
        self._files += 1
        new = self.directory / "new"
        new.write_text("".join(f"{line}\n" for line in lines))
        new.rename(self.orders / f"{self._files}.jsonl")

    @contextmanager
    def program(self, *arguments: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
        """Run a command, and yield its process and the address of the console that it prints. At the end, interrupt
        it.
        """
        environment = {**os.environ, "AMADOU_PLUGINS_OFF": "all"}
        process = subprocess.Popen(
            [*AMADOU, *arguments], cwd=self.directory, env=environment, stderr=subprocess.PIPE, text=True
        )
        try:
            yield process, address_in(process)
        finally:
            process.terminate()
            process.communicate(timeout=180)

    def test(self, code: str) -> str:
        """Run the source code of a test beside the job's file, and return what pytest prints."""
        (self.directory / "test_dead_letter.py").write_text(code)
        command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_dead_letter.py"]
        return subprocess.run(command, cwd=self.directory, capture_output=True, text=True, check=False).stdout


def order(customer: str, **more: Any) -> str:
    import json

    return json.dumps({"customer": customer, "timestamp": "2025-01-01T00:00:00+00:00", **more})


def address_in(process: subprocess.Popen[str]) -> str:
    assert process.stderr is not None
    seen = []
    for line in process.stderr:
        seen.append(line)
        match = re.match(r"console: (http://\S+)", line)
        if match is not None:
            return match[1]
    raise AssertionError("".join(seen))
