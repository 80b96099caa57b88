"""Runs whose processes are killed: their outputs are those of an undisturbed run. `scripts/qualify kills` does this
hundreds of times, `scripts/qualify remote` on remote file systems.
"""

import re
from pathlib import Path

import pytest
from tests.qualify.faulted_run import BY_KEY, FaultedRun, Setup
from tests.qualify.faults import LOST_VIEW, TASK, at_commit
from tests.qualify.moments import completed
from tests.qualify.systems import Systems
from tests.services import KafkaLogin
from tests.spark.clusters import paths
from tests.waits import wait_for

from amadou_runtime.runs.files import LocalFiles
from amadou_runtime.runs.history import read_history

pytestmark = pytest.mark.spark


def test_kills_and_a_lost_view_lose_no_output_and_double_none(
    kafka: str, kafka_sasl: KafkaLogin, postgres: str, tmp_path: Path
) -> None:
    setup = Setup(
        "kafka", ("kafka", "once", "postgres", "files"), stages=2, store="log", pace=500, millis_apart=300, **BY_KEY
    )
    run = FaultedRun(setup, tmp_path, 11, Systems(kafka, kafka_sasl, postgres))
    outcome = run.run([at_commit("totals 3", whole_group=True), TASK, LOST_VIEW])
    run.close()
    assert outcome.is_right, outcome
    history = {batch.number for batch in read_history(LocalFiles(run.checkpoint, Path(run.checkpoint)))}
    numbers = {batch.number for batch in completed(tmp_path)}
    assert {0, max(numbers)} <= history <= numbers, "the history begins before the kill"
    log = (tmp_path / "log").read_text()
    died = r"job counts: one of Spark's Python workers was killed or crashed during batch \d+\. Spark retried the task"
    assert re.search(died, log), log
    assert not [word for word in ("org.apache.spark", "incubator", "UDF", "TransformWithState") if word in log], log
    for secret in (kafka_sasl.password, run.environment["PGPASSWORD"]):
        written = [path for path in paths(tmp_path) if path.is_file() and secret.encode() in path.read_bytes()]
        assert not written, "a password is in the log or the checkpoint"
    wait_for(lambda: not run.views(), lambda: f"left behind: {run.views()}")  # Spark's Java ends last
