"""The command line of a part of `scripts/qualify`, and its progress."""

import argparse
import os
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.machinery import SourceFileLoader
from importlib.util import module_from_spec, spec_from_loader
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from tests.qualify.figures import FILE, ROOT

SERVICES = {
    "kafka": "AMADOU_KAFKA",
    "postgres": "AMADOU_POSTGRES",
    "hdfs": "AMADOU_HDFS",
    "s3": "AMADOU_S3",
}


def script(name: str) -> Any:
    """Load a Python program of the directory scripts as a module."""
    loader = SourceFileLoader(name, str(ROOT / "scripts" / name))
    spec = spec_from_loader(name, loader)
    assert spec is not None
    module = module_from_spec(spec)
    loader.exec_module(module)
    return module


def parser_of(part: str, description: str | None) -> argparse.ArgumentParser:
    """A parser with the options that all parts have."""
    parser = argparse.ArgumentParser(
        prog=f"scripts/qualify {part}", description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--figures", type=Path, default=FILE, metavar="FILE", help=f"figures (default: {FILE.name})")
    parser.add_argument("--append", action="store_true", help="add to the part's figures instead of replacing them")
    return parser


def add_seed(parser: argparse.ArgumentParser) -> None:
    drawn = time.time_ns() // 1000 % 1_000_000
    parser.add_argument("--seed", type=int, default=drawn, help="repeats what is drawn (default: another each time)")


def need_services(parser: argparse.ArgumentParser, *services: str) -> None:
    """End with a message if a service is not running."""
    missing = [service for service in services if not os.environ.get(SERVICES[service])]
    if missing:
        parser.error(f"{', '.join(missing)} not found: run it through scripts/qualify, which starts the services")


def end_on_signals() -> None:
    """Let Ctrl-C and SIGTERM end this process by an exception, so that it ends what it has started. A shell lets
    processes in the background ignore Ctrl-C.
    """
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))


class Shown:
    """The progress of a part: a bar on a terminal, and lines."""

    def __init__(self, part: str, total: int, unit: str) -> None:
        self._console = Console(file=sys.stderr, soft_wrap=True, highlight=False, markup=False)
        self._part, self._unit, self._total, self._done = part, unit, total, 0
        columns = (TextColumn(part), BarColumn(), MofNCompleteColumn(), TextColumn(unit), TimeElapsedColumn())
        self._bar = Progress(*columns, console=self._console, disable=not self._console.is_terminal)
        self._task = self._bar.add_task(part, total=total)

    def __enter__(self) -> "Shown":
        self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._bar.stop()

    def say(self, text: str) -> None:
        """Print lines."""
        for line in text.splitlines():
            self._console.print(f"{self._part}: {line}")

    def advance(self, count: int, text: str = "") -> None:
        """Count what was done, and say what came of it."""
        self._done += count
        self._bar.update(self._task, completed=self._done)
        self.say(f"{self._done:,} of {self._total:,} {self._unit}{', ' if text else ''}{text}")


@contextmanager
def directory_of(name: str) -> Iterator[Path]:
    """A new directory, which stays if the block fails."""
    directory = Path(tempfile.mkdtemp(prefix=f"amadou-{name}-"))
    failed = False
    try:
        yield directory
    except Exception:
        failed = True
        raise
    finally:
        if not failed:
            shutil.rmtree(directory, ignore_errors=True)
