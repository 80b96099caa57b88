"""How many messages a second the window node answers through a pipe, and how long one alone takes.

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
    """Measure, and print a table."""
    parser = argparse.ArgumentParser(
        description="Messages a second through `amadou window-node`: each assigns an event to a window of a minute.",
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    parser.add_argument("--messages", type=int, default=200_000, help="messages of a round")
    parser.add_argument("--steps", default="1,100,1000", help="milliseconds between events, by comma")
    parser.add_argument("--rounds", type=int, default=5, help="rounds to take the median of, each a process of its own")
    parser.add_argument("--alone", type=int, default=2000, help="messages that are sent one at a time")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures")
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
    """A message, as a line."""
    timestamp = from_millis(START + number * step).isoformat().replace("+00:00", "Z")
    body = {
        "type": "assign",
        "msg_id": number,
        "events": [{"id": number, "timestamp": timestamp}],
        "window_size_ms": SIZE,
    }
    return orjson.dumps({"src": "stream", "dest": "windower", "body": body}) + b"\n"


def seconds_of(messages: bytes, count: int) -> float:
    """From the first message that is written to the last reply that is read; the node is awake before.

    :raises SystemExit: a reply is missing or no `assigned`
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
        raise SystemExit(f"{count:,} messages got {len(lines):,} replies, or wrong ones")
    return seconds


def waits_of(count: int) -> list[float]:
    """How long each message waits for its reply, when the next one is sent after it."""
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
    """Send a message alone and take its reply."""
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
