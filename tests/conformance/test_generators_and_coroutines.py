"""Callbacks that do not run because they return a generator or a coroutine are errors, even behind a decorator."""

import functools
from collections.abc import AsyncIterator, Callable, Iterator
from datetime import datetime
from typing import Any

import pytest
from tests.conformance.conftest import MakeRun
from tests.conformance.handlers import SECOND, Recorder, at, event, job

from amadou import Handler, KeyedEvent, Subject
from amadou.errors import CallbackError, JobError
from amadou_plugins.joins import IntervalJoin
from amadou_plugins.windows import TumblingWindow
from amadou_runtime import TestRun

pytestmark = pytest.mark.rule(33)


def logged(function: Callable[..., Any]) -> Any:
    """Decorate a function so that inspection does not show that the function is a generator or asynchronous."""

    @functools.wraps(function)
    def call(*arguments: Any) -> Any:
        return function(*arguments)

    return call


def unnamed(function: Callable[..., Any]) -> Any:
    return lambda *arguments: function(*arguments)


def yielding(*_: Any) -> Iterator[int]:
    yield 1


async def waiting(*_: Any) -> None: ...


async def streaming(*_: Any) -> AsyncIterator[int]:
    yield 1


MESSAGES = {
    yielding: "returned a generator, so its code did not run: use a plain function without yield",
    waiting: "returned a coroutine, so its code did not run: use a plain function that is not async",
    streaming: "returned an async generator, so its code did not run: use a plain function that is not async",
}


class TimerAtOne(Recorder):
    def on_event(self, subject: Subject, event: KeyedEvent[Any]) -> None:
        subject.set_timer(at(1))


@pytest.mark.parametrize("callback", ["open", "on_event", "on_timer_expired"])
@pytest.mark.parametrize("function", [yielding, waiting, streaming])
def test_a_callback_that_returns_a_generator_or_coroutine_is_an_error(
    test_run: MakeRun, callback: str, function: Callable[..., Any]
) -> None:
    handler: Handler = type("Generated", (TimerAtOne,), {callback: logged(function), "__module__": __name__})()
    run = test_run(job(handler)).add_record(event(0)).add_watermark(at(1))
    with pytest.raises(CallbackError) as caught:
        run.run()
    assert caught.value.callback == callback
    assert caught.value.error.startswith(f"NotRunError: {callback} {MESSAGES[function]}")
    assert caught.value.error.endswith("If a decorator returned this object, the decorator must run it")


@pytest.mark.parametrize("function", [waiting, streaming])
def test_a_key_event_that_returns_a_coroutine_or_async_generator_is_an_error(function: Callable[..., Any]) -> None:
    handler: Handler = type("Generated", (TimerAtOne,), {"key_event": logged(function), "__module__": __name__})()
    with pytest.raises(CallbackError) as caught:
        TestRun(job(handler), engine="embedded").add_record(1).run()
    assert caught.value.error.startswith(f"NotRunError: key_event {MESSAGES[function]}")


class Yielding(TimerAtOne):
    on_timer_expired = logged(yielding)

    @logged
    def on_event(self, subject: Subject, event: KeyedEvent[Any]) -> Any:
        subject.set_timer(at(1))
        return yielding() if event.value else None


def test_a_callback_that_returns_a_generator_is_a_dead_letter_and_its_changes_are_undone(test_run: MakeRun) -> None:
    run = test_run(job(Yielding(), on_error="dead_letter"))
    run.add_records([event(0, None, "good"), event(0, "yield", "bad")]).add_watermark(at(1)).end_batch()
    dead_letters = run.run().dead_letters
    assert [(dead_letter.callback, dead_letter.key) for dead_letter in dead_letters] == [
        ("on_event", "bad"),
        ("on_timer_expired", "good"),
    ]
    assert all(dead_letter.error.startswith("NotRunError: ") for dead_letter in dead_letters)


class AddsToWindow(Recorder):
    window = TumblingWindow(10 * SECOND, on_close=unnamed(yielding), on_late=unnamed(yielding))

    def on_event(self, subject: Subject, event: KeyedEvent[Any]) -> None:
        self.window.add(subject, event)


class AddsToEarlyWindow(Recorder):
    window = TumblingWindow(10 * SECOND, early=1, on_close=unnamed(yielding))

    def on_event(self, subject: Subject, event: KeyedEvent[Any]) -> None:
        self.window.add(subject, event)


class AddsToJoin(Recorder):
    join = IntervalJoin(left="a", right="b", lower=-SECOND, upper=SECOND, on_match=unnamed(yielding))

    def on_event(self, subject: Subject, event: KeyedEvent[Any]) -> None:
        self.join.add(subject, event)


def test_a_function_of_a_window_or_join_that_returns_a_generator_is_an_error(test_run: MakeRun) -> None:
    closing = test_run(job(AddsToWindow())).add_record(event(0)).add_watermark(at(10)).end_batch()
    late = test_run(job(AddsToWindow())).add_watermark(at(10)).add_record(event(0))
    early = test_run(job(AddsToEarlyWindow())).add_record(event(0))
    joining = test_run(job(AddsToJoin(), "a", "b")).add_record(event(0), "a").add_record(event(0), "b")
    for run in (closing, late, early, joining):
        with pytest.raises(CallbackError, match=r"NotRunError: .* returned a generator"):
            run.run()


class ReturnsNumbers(Recorder):
    def on_event(self, subject: Subject, event: KeyedEvent[Any]) -> int:  # type: ignore[override]
        super().on_event(subject, event)
        return 5

    def on_timer_expired(self, subject: Subject, timestamp: datetime) -> int:  # type: ignore[override]
        return 5


def test_other_return_values_of_callbacks_are_ignored(test_run: MakeRun) -> None:
    run = test_run(job(ReturnsNumbers())).add_record(event(0)).set_timer("k", at(1)).add_watermark(at(1)).end_batch()
    assert len(run.run().records("seen")) == 1


def test_a_callback_with_a_yield_is_an_error_when_the_job_is_created() -> None:
    for callback, advice in (
        ("open", "remove the yield, prepare in open.., and clean up in close.."),
        ("on_recover_window", "return the"),
    ):
        handler: Handler = type("Generated", (Recorder,), {callback: yielding, "__module__": __name__})()
        with pytest.raises(JobError, match=f"Generated.{callback} has a yield, so calling it does nothing: {advice}"):
            job(handler)
