"""The example `examples/fraud_rules` as a user runs it: rules change while the job runs, and it is killed once."""

import json
import random
import signal
import time
from datetime import datetime
from pathlib import Path

import pytest
from fraud_rules_oracle import alerts
from tests.spark.programs import Program, program

pytestmark = [pytest.mark.spark, pytest.mark.qualify]

JOB = Path(__file__).parents[2] / "examples" / "fraud_rules" / "fraud_rules.py"
STEPS = 6
KILLED_AT = 3


def test_alerts_follow_the_rules_at_the_time_of_each_payment(tmp_path: Path) -> None:
    steps = [([change(step)], payments(step)) for step in range(STEPS)]
    expected = sorted(alerts(steps))
    assert len({rule for _, _, rule, _ in expected}) == STEPS - 1, "a removed rule raises no alert"
    for name in ("rules", "payments"):
        (tmp_path / name).mkdir()
    options = ["-p", f"RULES={tmp_path / 'rules'}", "-p", f"PAYMENTS={tmp_path / 'payments'}", "-p", "ALERTS=alerts"]
    with program(JOB, tmp_path, *options, "--trigger", "1 second") as run:
        for step in range(KILLED_AT):
            bring(run, tmp_path, step, *steps[step])
            wait_for_alerts(run, tmp_path, step)
        bring(run, tmp_path, KILLED_AT, *steps[KILLED_AT])
        time.sleep(random.random())  # anywhere in a batch
        run.stop(signal.SIGKILL)
    with program(JOB, tmp_path, *options, "--trigger", "1 second") as run:
        wait_for_alerts(run, tmp_path, KILLED_AT)
        for step in range(KILLED_AT + 1, STEPS):
            bring(run, tmp_path, step, *steps[step])
            wait_for_alerts(run, tmp_path, step)
        run.stop(signal.SIGTERM)
    lines = [line for file in (tmp_path / "alerts").glob("*.jsonl") for line in file.read_text().splitlines()]
    raised = [json.loads(line) for line in lines]
    assert expected == sorted(
        (each["card"], datetime.fromisoformat(each["time"]), each["rule"], each["cents"]) for each in raised
    )


def change(step: int) -> bytes:
    """A change that adds the rule of a step, or removes the first rule."""
    cents = None if step == KILLED_AT else 1000 * step
    rule = "rule 0" if cents is None else f"rule {step}"
    return json.dumps({"rule": rule, "time": f"2025-03-01T08:0{step}:00Z", "minutes": 60, "cents": cents}).encode()


def payments(step: int) -> list[bytes]:
    drawn = random.Random(step)
    return [
        json.dumps(
            {
                "card": f"card {drawn.randrange(20)}",
                "time": f"2025-03-01T12:0{step}:{second}Z",
                "cents": drawn.randrange(1, 900),
            }
        ).encode()
        for second in range(10, 60)
    ]


def bring(run: Program, directory: Path, step: int, changes: list[bytes], arrived: list[bytes]) -> None:
    """Bring changes of rules and, once a batch has read them, payments."""
    entries = directory / "checkpoint" / "references" / "rules"
    before = len(list(entries.glob("*")))
    write(directory / "rules", step, changes)
    run.wait_for(lambda: len(list(entries.glob("*"))) > before)
    write(directory / "payments", step, arrived)


def wait_for_alerts(run: Program, directory: Path, step: int) -> None:
    """Wait until the payments of a step have been checked."""
    alerts = directory / "alerts"
    run.wait_for(lambda: any(f"T12:0{step}:" in file.read_text() for file in alerts.glob("*.jsonl")))


def write(directory: Path, step: int, lines: list[bytes]) -> None:
    hidden = directory / f".{step}"
    hidden.write_bytes(b"".join(line + b"\n" for line in lines))
    hidden.rename(directory / f"{step}.jsonl")
