"""What a handler keeps in attributes: settings, which a test run leaves alone and callbacks cannot change."""

import operator
import re
import sqlite3
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from threading import Thread
from typing import Any

import attrs
import pytest
from tests.conformance.conftest import MakeRun
from tests.conformance.handlers import Recorder, at, event, job

from amadou import Handler, KeyedEvent, ListSpec, MapSpec, Subject, ValueSpec
from amadou.errors import AmadouError, CallbackError, HandlerAttributeError, JobError
from amadou_runtime import TestRun

Deed = Callable[[Any], Any]


class Doing(Recorder):
    """Does what it was given in one of its callbacks."""

    total = ValueSpec(int, default=0)
    names = MapSpec(str, int)
    history = ListSpec(int)

    def __init__(self, deed: Deed, callback: str = "on_event") -> None:
        self.deed = deed
        self.callback = callback

    def key_event(self, record: KeyedEvent[Any]) -> KeyedEvent[Any]:
        self.do("key_event")
        return record

    def on_event(self, subject: Subject, event: KeyedEvent[Any]) -> None:
        self.do("on_event")
        subject.set_timer(at(1))

    def on_timer_expired(self, subject: Subject, timestamp: Any) -> None:
        self.do("on_timer_expired")

    def do(self, callback: str) -> None:
        if callback == self.callback:
            self.deed(self)


def count(handler: Any) -> None:
    handler.events = 1


def forget(handler: Any) -> None:
    del handler.callback


def set_past_it(handler: Any) -> None:
    handler.__dict__["events"] = 1


def forget_past_it(handler: Any) -> None:
    vars(handler).pop("callback", None)


def fail(test_run: MakeRun, handler: Handler) -> CallbackError:
    run = test_run(job(handler)).add_record(event(0)).add_watermark(at(1))
    with pytest.raises(CallbackError) as caught:
        run.run()
    return caught.value


@pytest.mark.parametrize("callback", ["key_event", "on_event", "on_timer_expired"])
@pytest.mark.rule(26)
def test_an_attribute_that_a_callback_sets_is_an_error_that_names_it(test_run: MakeRun, callback: str) -> None:
    error = fail(test_run, Doing(count, callback))
    assert error.callback == callback
    assert error.error.startswith(
        "HandlerAttributeError: a callback set the attribute Doing.events: other workers do not see"
    )
    assert "events = ValueSpec(…) on the class" in error.error
    assert "handler.events = 1" in error.user_traceback


@pytest.mark.rule(26)
def test_an_attribute_that_a_callback_deletes_is_an_error_that_names_it(test_run: MakeRun) -> None:
    error = fail(test_run, Doing(forget))
    assert error.error.startswith(
        "HandlerAttributeError: a callback deleted the attribute Doing.callback: other workers do not see"
    )
    error = fail(test_run, Doing(lambda handler: delattr(handler, "total")))
    assert error.error == (
        "HandlerAttributeError: Doing.total is a ValueSpec and cannot be deleted: use "
        "self.total.state_for(subject).clear()"
    )


@pytest.mark.parametrize("callback", ["key_event", "on_event", "on_timer_expired"])
@pytest.mark.parametrize(
    ("deed", "told"),
    [
        (set_past_it, r"a callback set the attribute Doing\.events"),
        (forget_past_it, r"a callback deleted the attribute Doing\.callback"),
    ],
)
@pytest.mark.rule(26)
def test_an_attribute_that_a_callback_changes_past_the_handler_ends_the_run(
    test_run: MakeRun, callback: str, deed: Deed, told: str
) -> None:
    run = test_run(job(Doing(deed, callback), on_error="dead_letter")).add_record(event(0)).add_watermark(at(1))
    with pytest.raises(AmadouError, match=told):
        run.end_batch().run()


@attrs.define
class Converting(Recorder):
    total: int = attrs.field(default=0, converter=int)

    def on_event(self, subject: Subject, event: KeyedEvent[Any]) -> None:
        self.total += 1


@attrs.frozen
class Frozen(Recorder):
    total: int = 0

    def on_event(self, subject: Subject, event: KeyedEvent[Any]) -> None:
        object.__setattr__(self, "total", self.total + 1)


@dataclass(slots=True)
class Slotted(Recorder):
    total: int = 0

    def on_event(self, subject: Subject, event: KeyedEvent[Any]) -> None:
        object.__setattr__(self, "total", self.total + 1)


@pytest.mark.parametrize("kind", [Converting, Frozen, Slotted])
@pytest.mark.rule(26)
def test_so_does_one_in_a_slot(kind: type[Recorder]) -> None:
    run = TestRun(job(kind()), engine="embedded").add_record(event(0))
    with pytest.raises(AmadouError, match=rf"a callback set the attribute {kind.__name__}\.total"):
        run.end_batch().run()


class Caching(Recorder):
    """Keeps what it works out, and what a thread of its own brings."""

    def open(self) -> None:
        self.rates = 1

    @cached_property
    def factor(self) -> int:
        return 2

    def on_event(self, subject: Subject, event: KeyedEvent[Any]) -> None:
        thread = Thread(target=lambda: setattr(self, "rates", self.rates + 1))
        thread.start()
        thread.join()
        self.report("event", subject, event.timestamp, (self.factor, self.rates))


@pytest.mark.rule(26)
def test_what_is_worked_out_once_and_what_a_thread_brings_may_be_kept(test_run: MakeRun) -> None:
    result = test_run(job(Caching())).add_records([event(0), event(1)]).run()
    assert [seen[4] for seen in result.records("seen")] == [(2, 2), (2, 3)]


def test_a_value_in_the_place_of_a_spec_is_told_how_the_spec_is_used(test_run: MakeRun) -> None:
    error = fail(test_run, Doing(lambda handler: setattr(handler, "total", 5)))
    assert "Doing.total is a ValueSpec and cannot be replaced: use" in error.error
    assert error.error.endswith("use self.total.state_for(subject).value = …")


def test_a_spec_keeps_its_place_outside_of_callbacks_too() -> None:
    with pytest.raises(HandlerAttributeError, match=r"use self\.names\.state_for\(subject\)\[…\] = …"):
        setattr(Doing(count), "names", {})  # noqa: B010 - a type checker would find it
    with pytest.raises(HandlerAttributeError, match=r"use self\.seen\.collect\(subject, …\)"):
        setattr(Doing(count), "seen", [])  # noqa: B010


@pytest.mark.parametrize(
    ("deed", "told"),
    [
        (lambda handler: handler.total.value, "use self.total.state_for(subject).value"),
        (lambda handler: setattr(handler.total, "value", 5), "use self.total.state_for(subject).value"),
        (lambda handler: handler.names.get("a"), "use self.names.state_for(subject).get"),
        (lambda handler: handler.history.append(1), "use self.history.state_for(subject).append"),
        (lambda handler: handler.total + 1, "use self.total.state_for(subject).value + …"),
        (lambda handler: operator.iadd(handler.total, 1), "use self.total.state_for(subject).value += …"),
        (lambda handler: handler.total["a"], "use self.total.state_for(subject).value[…]"),
        (lambda handler: handler.names["a"], "use self.names.state_for(subject)[…]"),
        (lambda handler: operator.setitem(handler.names, "a", 1), "use self.names.state_for(subject)[…] = …"),
        (lambda handler: operator.delitem(handler.names, "a"), "use del self.names.state_for(subject)[…]"),
        (lambda handler: "a" in handler.names, "use … in self.names.state_for(subject)"),
        (lambda handler: list(handler.names), "use for … in self.names.state_for(subject)"),
        (lambda handler: "some" if handler.names else "none", "use len(self.names.state_for(subject))"),
        (lambda handler: len(handler.history), "use len(self.history.state_for(subject))"),
        (lambda handler: handler.history[-1], "use self.history.state_for(subject)[…]"),
        (lambda handler: operator.iadd(handler.history, [1]), "use self.history.state_for(subject).extend(…)"),
    ],
)
def test_a_spec_that_is_taken_for_state_says_state_for(test_run: MakeRun, deed: Deed, told: str) -> None:
    assert fail(test_run, Doing(deed)).error.endswith(told)


class Connected(Recorder):
    """Opens a connection, and counts what it sees in an attribute that it made before."""

    connection: Any = None

    def __init__(self) -> None:
        self.here: list[str] = []

    def open(self) -> None:
        assert self.connection is None
        self.connection = sqlite3.connect(":memory:")

    def on_event(self, subject: Subject, event: KeyedEvent[Any]) -> None:
        (one,) = self.connection.execute("SELECT 1").fetchone()
        self.here.append("event")
        self.report("event", subject, event.timestamp, [one, len(self.here)])

    def close(self) -> None:
        self.connection.close()
        self.connection = None


@pytest.mark.on_spark("classes travel")
def test_a_run_plays_a_copy_and_leaves_the_jobs_handler_as_it_is(test_run: MakeRun) -> None:
    test_job = job(Connected())
    for _ in range(2):
        run = test_run(test_job).add_records([event(0), event(0)]).restart().add_record(event(1))
        assert [seen[4] for seen in run.run().records("seen")] == [[1, 1], [1, 2], [1, 1]]
        run.close()
    assert vars(test_job.handler) == {"here": []}


@pytest.mark.on_spark("classes travel")
def test_what_cannot_travel_is_told_before_the_first_batch(test_run: MakeRun) -> None:
    handler = Connected()
    handler.connection = sqlite3.connect(":memory:")
    with pytest.raises(JobError, match=r"Create connections, locks and similar objects in Connected\.open\(\)"):
        test_run(job(handler)).add_record(event(0)).run()
    handler.connection.close()


def test_a_run_that_was_closed_goes_on_with_what_it_stored(test_run: MakeRun) -> None:
    class Counter(Recorder):
        total = ValueSpec(int, default=0)

        def on_event(self, subject: Subject, event: KeyedEvent[Any]) -> None:
            self.total.state_for(subject).value += 1

    run = test_run(job(Counter())).add_record(event(0))
    run.run()
    run.close()
    assert run.add_record(event(1)).run().state("total", "k") == 2


@pytest.mark.parametrize(
    ("deed", "told"),
    [
        (lambda handler, _: not handler.total, "use self.total.state_for(subject).value"),
        (lambda handler, _: handler.total > 3, "use self.total.state_for(subject).value > …"),
        (
            lambda handler, subject: not handler.total.state_for(subject),
            "the state of total has no truth value: use its .value or .exists",
        ),
    ],
)
def test_a_value_is_not_taken_for_true_where_its_spec_or_state_is_asked(deed: Callable[..., Any], told: str) -> None:
    class Asking(Recorder):
        total = ValueSpec(int, default=0)

        def on_event(self, subject: Subject, event: KeyedEvent[Any]) -> None:
            deed(self, subject)

    with pytest.raises(CallbackError, match=re.escape(told)):
        TestRun(job(Asking()), engine="embedded").add_record(event(0)).run()
