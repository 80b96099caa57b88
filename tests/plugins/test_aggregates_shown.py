"""A checkpoint accepts unchanged aggregates, and refuses changed aggregates."""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Flag
from functools import cached_property, partial
from types import MappingProxyType, SimpleNamespace
from typing import Any, NamedTuple

import pytest
from tests.conformance.handlers import SECOND, Recorder, at, event, job
from tests.conformance.test_windows_created_at_run_time import CreatesWindow, closed
from tests.processes import results_in_processes

from amadou import Handler, KeyedEvent, Subject
from amadou.errors import CheckpointError
from amadou_plugins.aggregates import Aggregate, Sum
from amadou_plugins.windows import TumblingWindow, Window
from amadou_runtime import TestRun


def summing(value: Any) -> Recorder:
    class Summing(Recorder):
        window = TumblingWindow(10 * SECOND, value)

        def on_event(self, subject: Subject, event: KeyedEvent[Any]) -> None:
            self.window.add(subject, event)

        @window.on_close
        def closed(self, subject: Subject, window: Window, value: Any) -> None:
            self.report("closed", subject, window.start, value)

    return Summing()


def upgraded(before: Handler, after: Handler) -> list[Any]:
    run = TestRun(job(before)).add_records([event(1, 5), event(2, 7)]).restart(after).add_record(event(3, 1))
    records = run.add_watermark(at(500)).end_batch().run().records("seen")
    return [seen[4] for seen in records if seen[0] == "closed"]


@dataclass
class InEuros:
    rates: dict[str, int] = field(default_factory=dict)

    def __call__(self, event: KeyedEvent[Any]) -> Any:
        self.rates["USD"] = self.rates.get("USD", 0) + 1
        return event.value * self.rates["USD"]


def test_a_callable_object_in_an_aggregate_can_change_its_own_attributes() -> None:
    in_euros = InEuros()
    making = CreatesWindow(lambda **options: TumblingWindow(10 * SECOND, Sum(in_euros), **options))
    run = TestRun(job(making)).add_records([event(1, 5), event(2, 5)]).add_watermark(at(500)).end_batch()
    assert closed(run) == [5 * 1 + 5 * 2]


def price(factor: Any, event: KeyedEvent[Any]) -> Any:
    return event.value * factor


class Prices(Recorder):
    @staticmethod
    def price(event: KeyedEvent[Any]) -> Any:
        return event.value


ACCEPTED: dict[str, tuple[Any, Any, int]] = {
    "lambdas of different places": ((lambda: lambda event: event.value)(), lambda event: event.value, 13),
    "a partial with other arguments": (partial(price, 1), partial(price, 2), 14),
    "functions of the same name": (Prices.price, partial(price, 1), 13),
}


@pytest.mark.parametrize("change", ACCEPTED)
def test_functions_in_aggregates_are_compared_by_name_only(change: str) -> None:
    before, after, value = ACCEPTED[change]
    assert upgraded(summing(Sum(before)), summing(Sum(after))) == [value]


class Weighted(Aggregate[int, int]):
    def __init__(self, weight: Any) -> None:
        self.weight = weight

    @cached_property
    def doubled(self) -> Any:
        return self.weight * 2

    def create(self) -> int:
        return 0

    def add(self, accumulator: int, event: KeyedEvent[Any]) -> int:
        return accumulator + int(event.value * self.doubled)

    def merge(self, left: int, right: int) -> int:
        return left + right

    def result(self, accumulator: int) -> int:
        return accumulator


class Slotted(Weighted):
    __slots__ = ("offset",)

    def __init__(self, offset: int) -> None:
        super().__init__(1)
        self.offset = offset


class Weighing:
    """An aggregate without the base class."""

    mergeable = False

    def __init__(self, weight: int) -> None:
        self.weight = weight

    def create(self) -> int:
        return 0

    def add(self, accumulator: int, event: KeyedEvent[Any]) -> int:
        return accumulator + event.value * self.weight

    def result(self, accumulator: int) -> int:
        return accumulator


@pytest.mark.parametrize("make", [Weighted, Slotted, Weighing])
def test_a_checkpoint_refuses_changed_settings_of_the_users_aggregate(make: Callable[[int], Any]) -> None:
    with pytest.raises(CheckpointError, match=r"the aggregate was .*=1.* and is now .*=100"):
        upgraded(summing(make(1)), summing(make(100)))
    assert upgraded(summing(make(1)), summing(make(1))) == [13 if make is Weighing else 26]


def test_a_checkpoint_refuses_changed_settings_of_an_aggregate_within_another() -> None:
    with pytest.raises(CheckpointError, match="the aggregate was Weighted"):
        upgraded(summing(Weighted(Sum("a"))), summing(Weighted(Sum("b"))))


def test_a_checkpoint_refuses_changes_at_the_end_of_long_settings() -> None:
    def table(value: int) -> Weighted:
        return Weighted({str(number): number for number in range(9_999)} | {"~": value})

    assert len(table(1).structure()) < 400
    with pytest.raises(CheckpointError, match=r"sha256 [0-9a-f]{16}\) and is now"):
        upgraded(summing(table(1)), summing(table(2)))


class Config(NamedTuple):
    countries: frozenset[str]


class Colours(Flag):
    RED = 1
    BLUE = 2


class Shown:
    tags = frozenset("abcdef")

    def __repr__(self) -> str:
        return f"Shown({self.tags})"


TAGS = frozenset("abcdef")
SETTINGS: dict[str, Any] = {
    "named tuple": Config(TAGS),
    "deque": deque([TAGS]),
    "mapping": MappingProxyType({"tags": TAGS}),
    "keys": dict.fromkeys(TAGS).keys(),
    "mapping in the order of a set": dict.fromkeys(TAGS),
    "namespace": SimpleNamespace(tags=TAGS),
    "flags": Colours.RED | Colours.BLUE,
    "own text": Shown(),
    "nothing in particular": object(),
}


def texts() -> dict[str, Any]:
    partials = {f"partial of {name}": Sum(partial(price, value)).structure() for name, value in SETTINGS.items()}
    return {name: Weighted(value).structure() for name, value in SETTINGS.items()} | partials


def test_the_description_of_a_setting_is_the_same_in_each_process() -> None:
    assert results_in_processes(__name__, "texts", "12") == [texts()] * 2
