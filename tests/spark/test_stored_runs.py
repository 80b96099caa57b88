"""The console's pages about runs on Spark after a restart, a kill or an error, and without a run."""

import json
import shutil
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from attrs import evolve
from tests.plugins.test_console import Browser
from tests.spark.shops import Shop, order
from tests.waits import wait_for

from amadou import Job
from amadou.errors import CallbackError
from amadou_plugins.console import Console
from amadou_runtime import start
from amadou_runtime.jobs.load_job import load_job
from amadou_runtime.runs.files import LocalFiles
from amadou_runtime.runs.history import read_history

pytestmark = pytest.mark.spark


class At(Browser):
    """Asks the console at an address."""

    def __init__(self, url: str) -> None:
        console = Console()
        console.url = url
        super().__init__(console)


@pytest.fixture
def shop(tmp_path: Path, spark: Any) -> Shop:
    return Shop(tmp_path)


def job_of(shop: Shop, **settings: Any) -> Job:
    return evolve(load_job(str(shop.file)), key_groups=4, **settings)


@contextmanager
def running(shop: Shop, spark: Any) -> Iterator[tuple[Any, Browser]]:
    console = Console()
    job = job_of(shop, plugins=[console])
    found = start(job, spark, checkpoint=str(shop.checkpoint), trigger="0 seconds", params=shop.params)
    try:
        yield found, Browser(console)
    finally:
        found.stop()


def numbers(browser: Browser) -> list[int]:
    return [batch["number"] for batch in browser.document("batches")["batches"]]


def test_a_restarted_run_shows_the_batches_and_dead_letters_of_the_run_before_it(shop: Shop, spark: Any) -> None:
    shop.add(order("a", cents=3), order("b"))
    with running(shop, spark) as (run, browser):
        wait_for(lambda: run.summary.counts.events == 2)
        (letter,) = browser.document("letters")["dead_letters"]
        assert (letter["error"], letter["key"], letter["source"]) == ("KeyError: 'cents'", "'b'", "orders")
        before = numbers(browser)  # a batch without events may follow
    with running(shop, spark) as (run, browser):
        assert numbers(browser)[-len(before) :] == before
        assert browser.document("letters")["dead_letters"] == [letter]
        code = browser.document(f"letters/{letter['id']}/test")["test"]
        printed = shop.test(code)
        assert "1 failed" in printed
        assert "KeyError: 'cents'" in printed
        shop.add(order("a", cents=4))
        wait_for(lambda: run.summary.counts.events == 1)
        assert numbers(browser)[-len(before) :] == before
        pipeline = browser.document("pipeline")
        assert pipeline["sources"]["orders"]["records"] == 1
        assert pipeline["description"]["handler"] == "customers.Shop"
    shop.file.write_text(shop.file.read_text().replace('event.value["cents"]', 'event.value.get("cents", 0)'))
    assert "1 passed" in shop.test(code)


@pytest.mark.qualify  # the test of a restarted run has the history of the run before it
def test_a_stopped_run_is_shown_from_its_checkpoint(shop: Shop, spark: Any) -> None:
    shop.add(order("a", cents=3), order("b"))
    with running(shop, spark) as (run, browser):
        wait_for(lambda: run.summary.counts.events == 2)
        with shop.program("console", "state", "--job", "customers.py", "-p", f"ORDERS={shop.orders}") as (_, url):
            other = At(url)
            assert other.document("overview")["status"] == "running"
            shop.add(order("a", cents=4))
            wait_for(lambda: run.summary.counts.events == 3)
            wait_for(lambda: other.document("overview")["totals"]["events"] == 3)
            wait_for(lambda: numbers(other) == numbers(browser))  # the checkpoint is written and read a moment later
            assert other.document("pipeline")["description"] == browser.document("pipeline")["description"]
            assert other.document("letters") == browser.document("letters")
            run.stop()
            wait_for(lambda: other.document("overview")["status"] == "ended")
            assert other.document("state?key=a")["state"]["total"]["text"] == "7"
            assert "KeyError" in other.document("letters/0-0/test")["test"]
            assert "Hour before the last batch" in other.get("/")
    with shop.program("console", "state") as (process, url):
        status, _, text = At(url).ask("/letters/0-0/test", Authorization=f"Bearer {At(url).token}")
        assert (status, "start it with --job" in text) == (404, True)
        assert At(url).document("state?key=a")["state"]["total"]["text"] == "7"
        process.send_signal(signal.SIGINT)
        assert process.wait(180) == 0


def test_a_failed_run_shows_its_error(shop: Shop, spark: Any) -> None:
    shop.add(order("a", cents=3))
    failing = job_of(shop, on_error="fail")
    settings = {"checkpoint": str(shop.checkpoint), "params": shop.params, "trigger": "available-now"}
    start(failing, spark, **settings).await_termination()
    shop.add(order("b"))
    with pytest.raises(CallbackError):
        start(failing, spark, **settings).await_termination()
    with shop.program("console", "state") as (_, url):
        overview = At(url).document("overview")
        assert overview["status"] == "failed"
        assert "in on_event" in overview["error"]
        newest = At(url).document("batches")["batches"][0]
        assert newest["error"] == "Shop.on_event failed: KeyError: 'cents'"
        assert "KeyError" in At(url).get("/batches")


def test_a_run_that_was_killed_has_a_history(shop: Shop, spark: Any, tmp_path: Path) -> None:
    shop.add(order("a", cents=3), order("b"))
    left = tmp_path / "left"
    with running(shop, spark) as (run, _):
        wait_for(lambda: run.summary.counts.events == 2)
        wait_for(shop.checkpoint.joinpath("history", "0").exists)
        is_partial = shutil.ignore_patterns(".*")
        shutil.copytree(shop.checkpoint / "history", left / "history", ignore=is_partial)  # as a killed run leaves it
    assert next(batch.number for batch in read_history(LocalFiles(str(left), left))) == 0
    assert json.loads(left.joinpath("history", "job").read_text())["trigger"] == "0 seconds"


@pytest.mark.qualify
def test_a_run_is_stopped_and_saved_from_its_console(shop: Shop, spark: Any) -> None:
    shop.add(order("a", cents=3))
    arguments = ("run", "customers.py", "-p", f"ORDERS={shop.orders}", "--checkpoint", "state", "--trigger", "1 second")
    with shop.program(*arguments, "--console", "--console-actions") as (process, url):
        browser = At(url)
        bearer = {"Authorization": f"Bearer {browser.token}"}
        wait_for(lambda: browser.document("overview")["totals"]["events"] == 1)
        status, _, text = browser.ask("/api/v1/savepoint", "POST", **bearer)
        assert (status, str(shop.checkpoint / "savepoints") in text) == (200, True)
        wait_for(lambda: list(shop.checkpoint.glob("savepoints/*/savepoint.json")) != [])
        assert browser.ask("/api/v1/stop", "POST", **bearer)[0] == 200
        assert process.wait(180) == 0
