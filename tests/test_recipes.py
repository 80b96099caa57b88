"""The recipes in docs/recipes.md do what the page says."""

import importlib
import re
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest

from amadou import Job, KeyedEvent, MemorySink, MemorySource
from amadou_runtime import TestRun

PAGE = (Path(__file__).parents[1] / "docs" / "recipes.md").read_text()
BLOCKS = re.findall(r"^<!-- python\n(.*?)^-->\n```python\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
NOON = datetime(2025, 1, 1, 12, tzinfo=timezone.utc)


@pytest.fixture(scope="module")
def recipe(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[str], Any]]:
    """Imports the code of the recipe that defines a class."""
    folder = tmp_path_factory.mktemp("recipes")

    def imported(name: str) -> Any:
        [code] = [hidden + shown for hidden, shown in BLOCKS if f"class {name}(" in shown]
        (folder / f"recipe_{name}.py").write_text(code)
        return importlib.import_module(f"recipe_{name}")

    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(folder)
        yield imported


def run_of(code: Any, name: str, port: str, delay: int = 0) -> TestRun:
    sources, sinks = {"in": MemorySource(key_event=keyed)}, {port: MemorySink()}
    return TestRun(Job("recipe", getattr(code, name)(), sources, sinks, watermark_delay=timedelta(minutes=delay)))


def keyed(record: tuple[str, float, Any]) -> KeyedEvent[Any]:
    key, minute, value = record
    return KeyedEvent(key, NOON + timedelta(minutes=minute), value)


@pytest.mark.parametrize("cut", [False, True])
def test_a_flag_drops_duplicates_in_order(recipe: Any, cut: bool) -> None:
    code = recipe("Once")
    run = run_of(code, "Once", "payments")
    for minute in (0, 9, 18, 28, 37):
        run.add_record(("p1", minute, code.Payment("p1", minute)))
        if cut:
            run.end_batch()
    assert [payment.cents for payment in run.run().records("payments")] == [0, 28]


@pytest.mark.parametrize("cut", [False, True])
def test_times_are_compared_if_duplicates_can_be_out_of_order(recipe: Any, cut: bool) -> None:
    code = recipe("OnceOutOfOrder")
    run = run_of(code, "OnceOutOfOrder", "payments", delay=code.DELAY // timedelta(minutes=1))
    for minute in (20, 5, 12, 29, 40, 31, 15, 45, 50):
        run.add_record(("p1", minute, code.Payment("p1", minute)))
        if cut:
            run.end_batch()
    assert [payment.cents for payment in run.run().records("payments")] == [20, 5, 40, 50]


@pytest.mark.parametrize("cut", [False, True])
@pytest.mark.parametrize("delay", [0, 60])
def test_every_minute_is_reported_until_there_was_no_view_for_an_hour(recipe: Any, cut: bool, delay: int) -> None:
    run = run_of(recipe("EveryMinute"), "EveryMinute", "reports", delay)
    for channel, minute in (("k", 0), ("k", 0.5), ("k", 3), ("z", 30), ("z", 190), ("k", 190.5), ("z", 400)):
        run.add_record((channel, minute, None))
        if cut:
            run.end_batch()
    result = run.run(flush=True)
    reports = [(each.minute, each.number) for each in result.records("reports") if each.channel == "k"]
    minutes = [*range(64), *range(190, 251)]
    views = {0: 2, 3: 1, 190: 1}
    assert reports == [(NOON + timedelta(minutes=minute), views.get(minute, 0)) for minute in minutes]
    assert result.state("views", "z") == {}


@pytest.mark.parametrize("cut", [False, True])
def test_readings_are_processed_in_the_order_of_their_times(recipe: Any, cut: bool) -> None:
    run = run_of(recipe("Meters"), "Meters", "used", delay=10)
    for minute, reading in ((0, 100), (3, 130), (2, 120), (2, 125), (6, 9), (4, 137), (5, 4), (25, 10)):
        run.add_record(("m", minute, reading))
        if cut:
            run.end_batch()
    run.end_batch().add_record(("m", 1, 110))
    result = run.run(flush=True)
    assert [each.units for each in result.records("used")] == [100, 20, 5, 5, 7, 4, 5, 1]
    assert result.dropped == 1
    assert result.keys() == ["m"]
