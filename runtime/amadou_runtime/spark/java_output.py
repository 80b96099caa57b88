"""Passes on the lines that Spark's Java process writes to standard error, as do workers on this machine."""

import atexit
import logging
import os
import re
import select
import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, Final

import orjson

from amadou_runtime.formats.json_logs import json_formatter

_CHUNK: Final = 65_536
_END_SECONDS: Final = 10
_LAST_SECONDS: Final = 1
_POLL: Final = 0.01
_FAILURE: Final = re.compile(r'Exception in thread "main"|Error|Invalid |Unrecognized |(\S+ \S+ )?ERROR ')
"""The first line of what Java or Spark writes about a start that fails."""
_TALK: Final = re.compile(rb"(Starting )?Streaming TransformWithStateInPandas Python worker")
"""What pyspark prints about itself when a query starts, each line followed by an empty one."""


class JavaOutput:
    """Starts Java, and passes on each line: as it is, or as a JSON line if this process logs JSON lines. What pyspark
    prints about itself is left out.

    From the first error on, the lines of a start are kept back. A start that succeeds passes them on; a start that
    fails does not, because the message of its error contains the cause.
    """

    def __init__(self) -> None:
        self._formatter = json_formatter()
        self._target = os.dup(2)  # as Java would have inherited it
        self._is_starting = True
        self._talks = False
        self._lines: list[str] = []
        self._held: list[bytes] = []
        self._lock = threading.Lock()
        self._process: Any = None
        self._thread: threading.Thread | None = None

    def launch(self, settings: Mapping[str, str]) -> None:
        """Start Java for the `SparkContext` of this process.

        :param settings: Spark's settings
        """
        from pyspark import SparkConf, SparkContext
        from pyspark.java_gateway import launch_gateway

        reading, writing = os.pipe()
        self._thread = threading.Thread(target=self._pass_on, args=(reading,), name="amadou-java-output", daemon=True)
        self._thread.start()
        try:
            gateway = launch_gateway(SparkConf().setAll([*settings.items()]), {"stderr": writing})
        finally:
            os.close(writing)
        self._process = gateway.proc
        atexit.register(self._pass_on_last, reading)
        SparkContext._ensure_initialized(gateway=gateway)

    def started(self) -> None:
        """Pass on the lines that were kept back, and all lines from now on."""
        with self._lock:
            self._is_starting = False
            self._write(b"".join(self._held))
            self._held, self._lines = [], []

    def end(self) -> list[str]:
        """End Java after a start that failed, so that the next start can have other settings.

        :returns: the lines that Java has written, as text
        """
        from pyspark import SparkContext

        if self._process is not None:
            SparkContext._gateway = SparkContext._jvm = None
            self._process.stdin.close()  # Java then ends by itself
        if self._thread is not None:
            self._thread.join(_END_SECONDS)
        return self._lines

    def _pass_on(self, reading: int) -> None:
        """Pass on lines until Java ends. The thread is killed when the program ends, so it must not hold the locks of
        Python's streams.
        """
        rest = b""
        while chunk := os.read(reading, _CHUNK):
            with self._lock:
                *lines, rest = (rest + chunk).split(b"\n")
                for line in lines:
                    self._take(line)
        with self._lock:
            if rest:
                self._take(rest)

    def _pass_on_last(self, reading: int) -> None:
        """When the program ends, wait until the lines that Java has written until now have been passed on."""
        assert self._thread is not None
        until = time.monotonic() + _LAST_SECONDS
        while self._thread.is_alive() and time.monotonic() < until:
            time.sleep(_POLL)
            if not select.select([reading], [], [], 0)[0]:
                break
        if self._lock.acquire(timeout=_LAST_SECONDS):
            self._lock.release()

    def _take(self, line: bytes) -> None:
        has_talked, self._talks = self._talks, _TALK.match(line) is not None
        if self._talks or (has_talked and not line.strip()):
            return
        if self._formatter is not None and not line.strip():
            return
        logged = _logged(line)
        text = (
            line.decode(errors="replace")
            if logged is None
            else f"{logged['level']} {logged['logger']}: {logged['message']}"
        )
        shown = line if logged is not None or self._formatter is None else self._as_json(text)
        if self._is_starting:
            self._lines.append(text)
            if self._held or _FAILURE.match(text):
                self._held.append(shown + b"\n")
                return
        self._write(shown + b"\n")

    def _as_json(self, text: str) -> bytes:
        assert self._formatter is not None
        record = logging.LogRecord("amadou.java", logging.INFO, "", 0, "%s", (text,), None)
        return self._formatter.format(record).encode()

    def _write(self, content: bytes) -> None:
        with suppress(OSError):  # if nothing reads the output, Java must not wait for this thread
            while content:
                content = content[os.write(self._target, content) :]


def _logged(line: bytes) -> Mapping[str, Any] | None:
    """Return the fields of a line if it is a JSON line of a log."""
    if not line.startswith(b"{"):
        return None
    try:
        fields: Mapping[str, Any] = orjson.loads(line)
    except orjson.JSONDecodeError:
        return None
    return fields if {"level", "logger", "message"} <= fields.keys() else None
