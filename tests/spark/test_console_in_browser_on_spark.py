"""The console of a job that runs on Spark, in a browser."""

import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from attrs import evolve
from selenium.webdriver.common.keys import Keys
from tests.browser import Chromium
from tests.spark.moving import Place
from tests.spark.shops import Shop, order
from tests.waits import wait_for

from amadou_plugins.console import Console
from amadou_runtime import start
from amadou_runtime.jobs.load_job import load_job

pytestmark = pytest.mark.spark


@pytest.fixture
def place(tmp_path: Any, spark: Any) -> Place:
    return Place(tmp_path)


@pytest.fixture
def port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


@contextmanager
def running_console(place: Place, port: int, spark: Any) -> Iterator[str]:
    """Run the job until it has processed the input, and yield the address of its console."""
    console = Console(port)
    job = evolve(place.job(), plugins=[console])
    running = start(job, spark, checkpoint=place.path("state"), trigger="0 seconds")
    try:
        wait_for(lambda: running.summary.counts.events == 2)
        assert console.url is not None
        yield console.url
    finally:
        running.stop()


def find(key: str, total: int, chromium: Chromium) -> None:
    """Type a key into the form of the page State, and wait for its value; Spark commits it a moment later."""

    def shows_total() -> bool:
        field = chromium.driver.find_element("id", "key")
        field.clear()
        field.send_keys(key, Keys.ENTER)
        return f"total ValueSpec int\n{total}\n" in chromium.text("main")

    chromium.click("link text", "State")
    chromium.wait(shows_total)


@pytest.mark.qualify  # tests/spark/test_console_on_spark.py has this test without a browser
def test_a_key_is_found_while_the_job_runs_and_after_a_restart(
    place: Place, port: int, spark: Any, chromium: Chromium
) -> None:
    place.add("k0", "k1")
    with running_console(place, port, spark) as url:
        chromium.open(url)
        assert chromium.text("h1") == "moving everything running"
        find("k0", 1, chromium)
        assert "Timers\n2025-01-01 00:00:01" in chromium.text("main")
    chromium.wait(lambda: "The console does not answer" in chromium.text())
    place.add("k0", "k1", second=1)
    with running_console(place, port, spark) as again:
        assert again.partition("?")[0] == url.partition("?")[0]
        chromium.open(again)
        assert all("ERR_CONNECTION_REFUSED" in each or "401" in each for each in chromium.problems())
        assert chromium.text("h1") == "moving everything running"
        find("k0", 2, chromium)
        assert chromium.path == "/state?key=k0"


@pytest.mark.qualify  # test_stored_runs.py has this test without a browser
def test_a_dead_letter_leads_to_a_test_that_fails_with_its_error(
    tmp_path: Path, spark: Any, chromium: Chromium
) -> None:
    shop, console = Shop(tmp_path), Console()
    shop.add(order("a", cents=3), order("b"))
    job = evolve(load_job(str(shop.file)), key_groups=4, plugins=[console])
    running = start(job, spark, checkpoint=str(shop.checkpoint), trigger="0 seconds", params=shop.params)
    try:
        wait_for(lambda: running.summary.counts.events == 2)
        assert console.url is not None
        chromium.open(console.url)
        chromium.click("link text", "Dead letters and late events")
        chromium.click("link text", "KeyError: 'cents'")
        assert "in on_event" in chromium.text("pre.error")
        chromium.click("xpath", "//button[text()='Show a test that fails with this error']")
        printed = shop.test(chromium.text("pre.source"))
        assert "1 failed" in printed
        assert "KeyError: 'cents'" in printed
        chromium.click("link text", "Back to the dead letter")
        chromium.click("link text", "'b'")
        assert "Nothing is stored for the key 'b'." in chromium.text("main")
    finally:
        running.stop()
