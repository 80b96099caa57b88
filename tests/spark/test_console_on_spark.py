"""The console of a job that runs on Spark."""

import json
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from attrs import evolve
from tests.plugins.test_console import Browser
from tests.spark.test_savepoint_commands import Place, until

from amadou_plugins.console import Console
from amadou_runtime import start

pytestmark = pytest.mark.spark


@pytest.mark.parametrize("store", ["groups", "log"])
def test_a_key_is_found_while_the_job_runs_and_after_a_restart(store: str, tmp_path: Path, spark: Any) -> None:
    place, console = Place(tmp_path), Console()
    job = evolve(place.job(), state=store, plugins=[console])
    for total in (1, 2):
        place.add("k0", "k1", second=total)
        running = start(job, spark, checkpoint=place.path("state"), trigger="0 seconds")
        try:
            browser = Browser(console)
            until(lambda of=running: of.summary.counts.events == 2)
            until(partial(has_total, browser, "k0", total))  # Spark commits the batch a moment later
            found = json.loads(browser.get("/api/v1/state?key=k0"))
            assert found["timers"]
            assert f"<pre>{total}</pre>" in browser.get("/state?key=k0")
            overview = json.loads(browser.get("/api/v1/overview"))
            assert (overview["status"], overview["trigger"], overview["checkpoint"]) == (
                "running",
                "0 seconds",
                place.path("state"),
            )
            assert overview["totals"]["events"] == 2
        finally:
            running.stop()
    assert console.url is None


def has_total(browser: Browser, key: str, total: int) -> bool:
    status, _, text = browser.ask(f"/api/v1/state?key={key}", Authorization=f"Bearer {browser.token}")
    return status == 200 and json.loads(text)["state"]["total"]["text"] == str(total)
