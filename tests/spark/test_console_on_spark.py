"""The console of a job that runs on Spark."""

import json
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from attrs import evolve
from tests.plugins.test_console import Browser, biggest_of
from tests.spark.clusters import wait_for
from tests.spark.moving import Place
from tests.spark.stores import MAINLY_LOG
from tests.spark.texts import add_texts, texts_job

from amadou_plugins.console import Console
from amadou_runtime import start
from amadou_runtime.spark.savepoints.run_state import RunState

pytestmark = pytest.mark.spark


@pytest.mark.parametrize("store", MAINLY_LOG)
def test_a_key_is_found_while_the_job_runs_and_after_a_restart(store: str, tmp_path: Path, spark: Any) -> None:
    place, console = Place(tmp_path), Console()
    job = evolve(place.job(), state=store, plugins=[console])
    for total in (1, 2):
        place.add("k0", "k1", second=total)
        running = start(job, spark, checkpoint=place.path("state"), trigger="0 seconds")
        try:
            browser = Browser(console)
            wait_for(lambda of=running: of.summary.counts.events == 2)
            wait_for(partial(has_total, browser, "k0", total))  # Spark commits the batch a moment later
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


@pytest.mark.parametrize("store", MAINLY_LOG)
def test_the_biggest_keys_are_found_while_the_job_runs(store: str, tmp_path: Path, spark: Any) -> None:
    console, input_ = Console(), tmp_path / "in"
    job = evolve(texts_job(input_), state=store, plugins=[console])
    add_texts(input_, *((f"k{key}", 0, 10 + key) for key in range(200)), ("big", 0, 5000))
    running = start(job, spark, checkpoint=str(tmp_path / "state"), trigger="0 seconds")
    try:
        browser = Browser(console)
        wait_for(lambda: running.summary.counts.events == 201)
        wait_for(lambda: "'big'" in str(RunState(None, str(tmp_path / "state"), job).find("big")))
        found = biggest_of(browser, ends_with="found")
        assert [each["key"] for each in found["keys"]] == ["'big'", *(f"'k{key}'" for key in range(199, 180, -1))]
        assert isinstance(found["batch"], int)
        assert "/state?key=%27k199%27" in browser.get("/state")
        assert json.loads(browser.get("/api/v1/state?key=%27k199%27"))["key"] == "'k199'"
        add_texts(input_, ("later", 1, 1))
        wait_for(lambda: running.summary.counts.events == 202)
    finally:
        running.stop()
