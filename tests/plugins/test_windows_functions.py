"""The functions that a window calls: methods of the handler and other functions."""

import functools
from collections.abc import Callable
from typing import Any

import pytest
from tests.plugins.windows import SECOND, event, job, results

from amadou import Handler, KeyedEvent, SinkSpec, Subject
from amadou.errors import CallbackError, JobError, SpecError
from amadou_plugins.joins import AsOfJoin
from amadou_plugins.windows import TumblingWindow, Window, WindowSpec
from amadou_runtime import TestRun


class Collecting(Handler):
    """Collects the arguments of functions of windows."""

    results = SinkSpec(tuple)
    late = SinkSpec(tuple)

    def key_event(self, record: KeyedEvent[Any]) -> KeyedEvent[Any]:
        return record

    def on_event(self, subject: Subject, event: KeyedEvent[Any]) -> None:
        raise NotImplementedError

    def collect(self, subject: Subject, window: Window, value: Any) -> None:
        self.results.collect(subject, (*window, value))


class Rules:
    def __init__(self) -> None:
        self.seen: list[Any] = []

    def closed(self, subject: Subject, window: Window, value: Any) -> None:
        subject.handler.collect(subject, window, value)

    @staticmethod
    def over(subject: Subject, window: Window, value: Any) -> None:
        subject.handler.collect(subject, window, value)


def over(subject: Subject, window: Window, value: Any) -> None:
    subject.handler.collect(subject, window, value)


class AtRunTime(Collecting):
    """Makes its window at run time, and marks a function."""

    def __init__(self, mark: Callable[[WindowSpec, Handler], Any]) -> None:
        self._mark = mark

    def on_event(self, subject: Subject, event: KeyedEvent[Any]) -> None:
        window = TumblingWindow(SECOND, name="window")
        self._mark(window, self)
        window.add(subject, event)

    def closed(self, subject: Subject, window: Window, value: Any) -> None:
        raise AssertionError("it is not marked")

    def own(self, subject: Subject, window: Window, value: Any) -> None:
        self.collect(subject, window, value)


@pytest.mark.parametrize(
    "mark",
    [
        lambda window, handler: window.on_close(lambda subject, at, value: handler.collect(subject, at, value)),
        lambda window, handler: window.on_close(Rules().closed),
        lambda window, handler: window.on_close(Rules.over),
        lambda window, handler: window.on_close(over),
        lambda window, handler: window.on_close(functools.partial(AtRunTime.own, handler)),
        lambda window, handler: window.on_close(handler.own),
        lambda window, handler: window.on_close(AtRunTime.own),
    ],
)
def test_each_kind_of_function_can_be_marked_at_run_time(mark: Any) -> None:
    result = TestRun(job(AtRunTime(mark))).add_record(event(0)).run(flush=True)
    assert results(result) == [(0, 1, 1)]


def doubling(function: Any) -> Any:
    def called(self: Any, subject: Subject, window: Window, value: Any) -> None:
        function(self, subject, window, 2 * value)

    return called


class Decorated(Collecting):
    """Has methods with other decorators above and below the mark."""

    first = TumblingWindow(SECOND)
    second = TumblingWindow(SECOND)
    third = TumblingWindow(SECOND)

    def on_event(self, subject: Subject, event: KeyedEvent[Any]) -> None:
        for window in (self.first, self.second, self.third):
            window.add(subject, event)

    @doubling
    @first.on_close
    def inside(self, subject: Subject, window: Window, value: Any) -> None:
        self.collect(subject, window, ("first", value))

    @second.on_close
    @doubling
    def outside(self, subject: Subject, window: Window, value: Any) -> None:
        self.collect(subject, window, ("second", value))

    @third.on_close
    @staticmethod
    def alone(subject: Subject, window: Window, value: Any) -> None:
        subject.handler.collect(subject, window, ("third", value))


def test_marked_methods_can_have_other_decorators() -> None:
    result = TestRun(job(Decorated())).add_record(event(0)).run(flush=True)
    assert [value for _, _, value in results(result)] == [("first", 2), ("second", 2), ("third", 1)]


class Inherited(Decorated):
    def outside(self, subject: Subject, window: Window, value: Any) -> None:
        self.collect(subject, window, "overridden")


def test_a_subclass_can_override_a_marked_method() -> None:
    result = TestRun(job(Inherited())).add_record(event(0)).run(flush=True)
    assert [value for _, _, value in results(result)][1] == "overridden"


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (lambda: TumblingWindow(SECOND, on_close=5), "on_close must be a function, not 5"),  # type: ignore[arg-type]
        (lambda: TumblingWindow(SECOND).on_late("late"), "on_late must be a function, not 'late'"),  # type: ignore[type-var]
        (lambda: TumblingWindow(SECOND, name=5), "name must be a non-empty string, not 5"),  # type: ignore[arg-type]
        (lambda: TumblingWindow(SECOND, name=""), "name must be a non-empty string, not ''"),
        (lambda: AsOfJoin(left="l", right="r", on_match=5), "on_match must be a function, not 5"),
    ],
)
def test_functions_and_names_of_windows_are_checked_when_the_window_is_made(make: Any, reason: str) -> None:
    with pytest.raises(SpecError) as caught:
        make()
    assert str(caught.value) == reason


class UnusedEarly(Collecting):
    """Has a method for early results, but no early results."""

    window = TumblingWindow(SECOND)

    def on_event(self, subject: Subject, event: KeyedEvent[Any]) -> None:
        self.window.add(subject, event)

    @window.on_close
    @window.on_early
    def both(self, subject: Subject, window: Window, value: Any) -> None:
        self.collect(subject, window, value)


def test_a_method_for_early_results_of_a_window_without_them_is_an_error_of_the_job() -> None:
    with pytest.raises(JobError, match=r"UnusedEarly.window: on_early is never called: .* early="):
        job(UnusedEarly())
    TumblingWindow(SECOND, name="bounded", max_active=1, on_close=over, on_early=over).check()


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({}, "no function receives the window's results: mark a method with @window.on_close, or pass on_close="),
        (
            {"on_close": over, "on_early": over},
            "on_early is never called: set early= or max_active=, or remove on_early",
        ),
    ],
)
def test_the_first_event_of_an_invalid_window_that_is_made_at_run_time_is_an_error(settings: Any, reason: str) -> None:
    class Forgetful(Collecting):
        def on_event(self, subject: Subject, event: KeyedEvent[Any]) -> None:
            TumblingWindow(SECOND, name="window", **settings).add(subject, event)

    with pytest.raises(CallbackError) as caught:
        TestRun(job(Forgetful())).add_record(event(0)).run()
    assert (caught.value.callback, reason in caught.value.error) == ("on_event", True)


def test_adding_an_event_with_another_key_to_a_window_is_an_error() -> None:
    class Mistaken(UnusedEarly):
        window = TumblingWindow(SECOND, on_close=over)

        def on_event(self, subject: Subject, event: KeyedEvent[Any]) -> None:
            self.window.add(subject, event._replace(key="b"))

    with pytest.raises(CallbackError) as caught:
        TestRun(job(Mistaken())).add_record(event(0)).run()
    assert caught.value.error == (
        "WindowEventError: the window 'window' cannot accept the event at 1970-01-01T00:00:00+00:00: its key is 'b', "
        "but the subject has the key 'a': pass an event with this key"
    )


def test_marked_methods_can_share_a_name_or_be_private() -> None:
    def wrapping(function: Any) -> Any:
        @functools.wraps(function)
        def call(*arguments: Any) -> None:
            function(*arguments)

        return call

    class Shared(Collecting):
        first = TumblingWindow(SECOND)
        second = TumblingWindow(2 * SECOND)

        def on_event(self, subject: Subject, event: KeyedEvent[Any]) -> None:
            self.first.add(subject, event)
            self.second.add(subject, event)

        @first.on_close
        def _(self, subject: Subject, window: Window, value: Any) -> None:
            self.collect(subject, window, "first")

        @wrapping
        @second.on_close
        def _(self, subject: Subject, window: Window, value: Any) -> None:
            self.collect(subject, window, "second")

    class Private(Collecting):
        window = TumblingWindow(SECOND)

        def on_event(self, subject: Subject, event: KeyedEvent[Any]) -> None:
            self.window.add(subject, event)

        @wrapping
        @window.on_close
        def __closed(self, subject: Subject, window: Window, value: Any) -> None:
            self.collect(subject, window, "private")

    for handler, expected in ((Shared(), ["first", "second"]), (Private(), ["private"])):
        collected = results(TestRun(job(handler)).add_record(event(0)).run(flush=True))
        assert [value for *_, value in collected] == expected


def yielding(*_: Any) -> Any:
    yield


async def waiting(*_: Any) -> None: ...


@pytest.mark.parametrize(("function", "reason"), [(yielding, "yielding has a yield"), (waiting, "waiting is async")])
def test_generators_and_async_functions_are_refused_as_functions_of_a_window(
    function: Callable[..., Any], reason: str
) -> None:
    window = TumblingWindow(SECOND, name="window")
    with pytest.raises(SpecError, match=f"{reason}, so calling it does nothing: on_close must be a plain function"):
        window.on_close(function)
    with pytest.raises(SpecError, match=f"{reason}, so calling it does nothing: on_late must be a plain function"):
        TumblingWindow(SECOND, on_late=function)
