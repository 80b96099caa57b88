"""Which functions a window calls, and how: methods of the handler, and others as they were given."""

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


class Told(Handler):
    """Records what functions of windows were given."""

    results = SinkSpec(tuple)
    late = SinkSpec(tuple)

    def key_event(self, record: KeyedEvent[Any]) -> KeyedEvent[Any]:
        return record

    def on_event(self, subject: Subject, event: KeyedEvent[Any]) -> None:
        raise NotImplementedError

    def told(self, subject: Subject, window: Window, value: Any) -> None:
        self.results.collect(subject, (*window, value))


class Rules:
    def __init__(self) -> None:
        self.seen: list[Any] = []

    def closed(self, subject: Subject, window: Window, value: Any) -> None:
        subject.handler.told(subject, window, value)

    @staticmethod
    def over(subject: Subject, window: Window, value: Any) -> None:
        subject.handler.told(subject, window, value)


def over(subject: Subject, window: Window, value: Any) -> None:
    subject.handler.told(subject, window, value)


class AtRunTime(Told):
    """Makes its window while it runs, and marks a function."""

    def __init__(self, mark: Callable[[WindowSpec, Handler], Any]) -> None:
        self._mark = mark

    def on_event(self, subject: Subject, event: KeyedEvent[Any]) -> None:
        window = TumblingWindow(SECOND, name="window")
        self._mark(window, self)
        window.add(subject, event)

    def closed(self, subject: Subject, window: Window, value: Any) -> None:
        raise AssertionError("nobody marked it")

    def own(self, subject: Subject, window: Window, value: Any) -> None:
        self.told(subject, window, value)


@pytest.mark.parametrize(
    "mark",
    [
        lambda window, handler: window.on_close(lambda subject, at, value: handler.told(subject, at, value)),
        lambda window, handler: window.on_close(Rules().closed),
        lambda window, handler: window.on_close(Rules.over),
        lambda window, handler: window.on_close(over),
        lambda window, handler: window.on_close(functools.partial(AtRunTime.own, handler)),
        lambda window, handler: window.on_close(handler.own),
        lambda window, handler: window.on_close(AtRunTime.own),
    ],
)
def test_a_function_marked_at_run_time_is_called_as_it_was_given(mark: Any) -> None:
    result = TestRun(job(AtRunTime(mark))).add_record(event(0)).run(flush=True)
    assert results(result) == [(0, 1, 1)]


def doubling(function: Any) -> Any:
    def called(self: Any, subject: Subject, window: Window, value: Any) -> None:
        function(self, subject, window, 2 * value)

    return called


class Decorated(Told):
    """Its methods are marked below and above other decorators."""

    first = TumblingWindow(SECOND)
    second = TumblingWindow(SECOND)
    third = TumblingWindow(SECOND)

    def on_event(self, subject: Subject, event: KeyedEvent[Any]) -> None:
        for window in (self.first, self.second, self.third):
            window.add(subject, event)

    @doubling
    @first.on_close
    def inside(self, subject: Subject, window: Window, value: Any) -> None:
        self.told(subject, window, ("first", value))

    @second.on_close
    @doubling
    def outside(self, subject: Subject, window: Window, value: Any) -> None:
        self.told(subject, window, ("second", value))

    @third.on_close
    @staticmethod
    def alone(subject: Subject, window: Window, value: Any) -> None:
        subject.handler.told(subject, window, ("third", value))


def test_marked_methods_may_have_decorators() -> None:
    result = TestRun(job(Decorated())).add_record(event(0)).run(flush=True)
    assert [value for _, _, value in results(result)] == [("first", 2), ("second", 2), ("third", 1)]


class Inherited(Decorated):
    def outside(self, subject: Subject, window: Window, value: Any) -> None:
        self.told(subject, window, "defined anew")


def test_a_subclass_may_define_a_marked_method_anew() -> None:
    result = TestRun(job(Inherited())).add_record(event(0)).run(flush=True)
    assert [value for _, _, value in results(result)][1] == "defined anew"


@pytest.mark.parametrize(
    ("make", "told"),
    [
        (lambda: TumblingWindow(SECOND, on_close=5), "on_close must be a function, not 5"),  # type: ignore[arg-type]
        (lambda: TumblingWindow(SECOND).on_late("late"), "on_late must be a function, not 'late'"),  # type: ignore[type-var]
        (lambda: TumblingWindow(SECOND, name=5), "name must be a non-empty string, not 5"),  # type: ignore[arg-type]
        (lambda: TumblingWindow(SECOND, name=""), "name must be a non-empty string, not ''"),
        (lambda: AsOfJoin(left="l", right="r", on_match=5), "on_match must be a function, not 5"),
    ],
)
def test_what_cannot_be_called_or_named_is_told_at_once(make: Any, told: str) -> None:
    with pytest.raises(SpecError) as caught:
        make()
    assert str(caught.value) == told


class Hasty(Told):
    """Has a method for early results that do not come."""

    window = TumblingWindow(SECOND)

    def on_event(self, subject: Subject, event: KeyedEvent[Any]) -> None:
        self.window.add(subject, event)

    @window.on_close
    @window.on_early
    def both(self, subject: Subject, window: Window, value: Any) -> None:
        self.told(subject, window, value)


def test_a_method_for_early_results_that_never_come_is_a_mistake_of_the_job() -> None:
    with pytest.raises(JobError, match=r"Hasty.window: on_early is never called: .* early="):
        job(Hasty())
    TumblingWindow(SECOND, name="bounded", max_active=1, on_close=over, on_early=over).check()


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ({}, "no function receives the window's results: mark a method with @window.on_close, or pass on_close="),
        (
            {"on_close": over, "on_early": over},
            "on_early is never called: set early= or max_active=, or remove on_early",
        ),
    ],
)
def test_a_mistake_in_a_window_made_at_run_time_is_told_by_its_first_event(settings: Any, told: str) -> None:
    class Forgetful(Told):
        def on_event(self, subject: Subject, event: KeyedEvent[Any]) -> None:
            TumblingWindow(SECOND, name="window", **settings).add(subject, event)

    with pytest.raises(CallbackError) as caught:
        TestRun(job(Forgetful())).add_record(event(0)).run()
    assert (caught.value.callback, told in caught.value.error) == ("on_event", True)


def test_an_event_of_another_key_is_told() -> None:
    class Mistaken(Hasty):
        window = TumblingWindow(SECOND, on_close=over)

        def on_event(self, subject: Subject, event: KeyedEvent[Any]) -> None:
            self.window.add(subject, event._replace(key="b"))

    with pytest.raises(CallbackError) as caught:
        TestRun(job(Mistaken())).add_record(event(0)).run()
    assert caught.value.error == (
        "WindowEventError: the window 'window' cannot accept the event at 1970-01-01T00:00:00+00:00: its key is 'b', "
        "but the subject has the key 'a': pass an event with this key"
    )


def test_methods_may_share_a_name_or_be_private() -> None:
    def noting(function: Any) -> Any:
        @functools.wraps(function)
        def call(*arguments: Any) -> None:
            function(*arguments)

        return call

    class Shared(Told):
        first = TumblingWindow(SECOND)
        second = TumblingWindow(2 * SECOND)

        def on_event(self, subject: Subject, event: KeyedEvent[Any]) -> None:
            self.first.add(subject, event)
            self.second.add(subject, event)

        @first.on_close
        def _(self, subject: Subject, window: Window, value: Any) -> None:
            self.told(subject, window, "first")

        @noting
        @second.on_close
        def _(self, subject: Subject, window: Window, value: Any) -> None:
            self.told(subject, window, "second")

    class Private(Told):
        window = TumblingWindow(SECOND)

        def on_event(self, subject: Subject, event: KeyedEvent[Any]) -> None:
            self.window.add(subject, event)

        @noting
        @window.on_close
        def __closed(self, subject: Subject, window: Window, value: Any) -> None:
            self.told(subject, window, "private")

    for handler, expected in ((Shared(), ["first", "second"]), (Private(), ["private"])):
        found = results(TestRun(job(handler)).add_record(event(0)).run(flush=True))
        assert [value for *_, value in found] == expected


def yielding(*_: Any) -> Any:
    yield


async def waiting(*_: Any) -> None: ...


@pytest.mark.parametrize(("function", "told"), [(yielding, "yielding has a yield"), (waiting, "waiting is async")])
def test_a_function_that_does_nothing_when_it_is_called_is_refused(function: Callable[..., Any], told: str) -> None:
    window = TumblingWindow(SECOND, name="window")
    with pytest.raises(SpecError, match=f"{told}, so calling it does nothing: on_close must be a plain function"):
        window.on_close(function)
    with pytest.raises(SpecError, match=f"{told}, so calling it does nothing: on_late must be a plain function"):
        TumblingWindow(SECOND, on_late=function)
