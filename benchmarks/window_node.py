"""Throughput of the window node through a pipe, in messages per second, and the latency of a single message.

python benchmarks/window_node.py
"""

import argparse
import json
import os
import subprocess
import sys
import threading
import time
from pathlib import Path
from statistics import median
from typing import Any

import orjson
from machine import heading, machine
from rich.console import Console
from rich.table import Table

from amadou import from_millis

COMMAND = [str(Path(sys.executable).with_name("amadou")), "window-node"]
START = 1705312800000
SIZE = 60_000
console = Console(highlight=False)


def main() -> None:
    """Measure and print a table."""
    parser = argparse.ArgumentParser(
        description="Messages per second through `amadou window-node`. Each assigns an event to a one-minute window.",
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    parser.add_argument("--messages", type=int, default=200_000, help="messages in each round")
    parser.add_argument("--steps", default="1,100,1000", help="milliseconds between events, separated by commas")
    parser.add_argument("--rounds", type=int, default=5, help="number of rounds; the median is shown")
    parser.add_argument("--alone", type=int, default=2000, help="messages that are sent one at a time")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures to a file")
    options = parser.parse_args()
    described = machine(java=False)
    console.print(f"[bold]{heading(described)}[/bold]", soft_wrap=True)

    steps = [int(step) for step in options.steps.split(",")]
    inputs = {step: b"".join(assign(number, step) for number in range(options.messages)) for step in steps}
    rates: dict[int, list[float]] = {step: [] for step in steps}
    for _ in range(options.rounds):
        for step in steps:
            rates[step].append(options.messages / seconds_of(inputs[step], options.messages))
    shown = Table("ms between events", "windows", "messages/s", "min", "max", title="assign, through a pipe")
    for step, each in rates.items():
        windows = (options.messages - 1) * step // SIZE + 1
        shown.add_row(str(step), f"{windows:,}", *(f"{figure:,.0f}" for figure in (median(each), min(each), max(each))))
    console.print(shown)

    waits = sorted(waits_of(options.alone))
    told = {"median": median(waits), "99 of 100": waits[len(waits) * 99 // 100]}
    console.print("one at a time: " + ", ".join(f"{name} {wait * 1e6:,.0f} µs" for name, wait in told.items()))
    if options.json:
        figures = {"machine": described, "rates": rates, "waits": told}
        options.json.write_text(json.dumps(figures, indent=2) + "\n")


def assign(number: int, step: int) -> bytes:
    """Return a message as a line."""
    timestamp = from_millis(START + number * step).isoformat().replace("+00:00", "Z")
    body = {
        "type": "assign",
        "msg_id": number,
        "events": [{"id": number, "timestamp": timestamp}],
        "window_size_ms": SIZE,
    }
    return orjson.dumps({"src": "stream", "dest": "windower", "body": body}) + b"\n"


def seconds_of(messages: bytes, count: int) -> float:
    """Return the seconds from writing the first message to reading the last reply. The node is started beforehand.

    :raises SystemExit: a reply is missing or wrong
    """
    node = started()
    source, target = node.stdin.fileno(), node.stdout.fileno()
    answer(node, assign(0, 1))
    began = time.perf_counter()
    writer = threading.Thread(target=write, args=(source, messages))
    writer.start()
    replies = []
    read = 0
    while read < count and (part := os.read(target, 2**20)):
        replies.append(part)
        read += part.count(b"\n")
    seconds = time.perf_counter() - began
    writer.join()
    node.stdin.close()
    node.wait()
    lines = b"".join(replies).splitlines()
    if len(lines) != count or not all(
        f'"in_reply_to":{number},"window_id"'.encode() in line for number, line in enumerate(lines)
    ):
        raise SystemExit(f"{count:,} messages got {len(lines):,} replies, or replies are wrong")
    return seconds


def waits_of(count: int) -> list[float]:
    """Send messages one at a time. Return the seconds until the reply to each message."""
    node = started()
    waits = []
    for number in range(count):
        message = assign(number, 1)
        began = time.perf_counter()
        answer(node, message)
        waits.append(time.perf_counter() - began)
    node.stdin.close()
    node.wait()
    return waits[count // 10 :]


def started() -> Any:
    return subprocess.Popen(COMMAND, stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0)


def answer(node: Any, message: bytes) -> bytes:
    """Send a single message and return the reply."""
    node.stdin.write(message)
    reply = os.read(node.stdout.fileno(), 2**16)
    while not reply.endswith(b"\n"):
        reply += os.read(node.stdout.fileno(), 2**16)
    return reply


def write(target: int, messages: bytes) -> None:
    left = memoryview(messages)
    while left:
        left = left[os.write(target, left[: 2**16]) :]


if __name__ == "__main__":
    main()
