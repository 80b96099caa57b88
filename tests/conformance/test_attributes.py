"""Attributes of handlers: callbacks cannot change them, and a run uses a copy of the handler."""

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
from tests.conformance.handlers import Recorder, StateMethods, at, details, event, job

from amadou import Handler, KeyedEvent, ListSpec, MapSpec, Subject, ValueSpec
from amadou.errors import AmadouError, CallbackError, HandlerAttributeError, JobError
from amadou_runtime import TestRun

Action = Callable[[Any], Any]


class Acting(Recorder):
    """Calls a function in one of its callbacks."""

    total = ValueSpec(int, default=0)
    names = MapSpec(str, int)
    history = ListSpec(int)

    def __init__(self, action: Action, callback: str = "on_event") -> None:
        self.action = action
        self.callback = callback

    def key_event(self, record: KeyedEvent[Any]) -> KeyedEvent[Any]:
        self.act("key_event")
        return record

    def on_event(self, subject: Subject, event: KeyedEvent[Any]) -> None:
        self.act("on_event")
        subject.set_timer(at(1))

    def on_timer_expired(self, subject: Subject, timestamp: Any) -> None:
        self.act("on_timer_expired")

    def act(self, callback: str) -> None:
        if callback == self.callback:
            self.action(self)


def set_attribute(handler: Any) -> None:
    handler.events = 1


def delete_attribute(handler: Any) -> None:
    del handler.callback


def set_in_dict(handler: Any) -> None:
    handler.__dict__["events"] = 1


def delete_from_dict(handler: Any) -> None:
    vars(handler).pop("callback", None)


def fail(test_run: MakeRun, handler: Handler) -> CallbackError:
    run = test_run(job(handler)).add_record(event(0)).add_watermark(at(1))
    with pytest.raises(CallbackError) as caught:
        run.run()
    return caught.value


@pytest.mark.parametrize("callback", ["key_event", "on_event", "on_timer_expired"])
@pytest.mark.rule(26)
def test_setting_a_handler_attribute_in_a_callback_is_an_error_that_names_the_attribute(
    test_run: MakeRun, callback: str
) -> None:
    error = fail(test_run, Acting(set_attribute, callback))
    assert error.callback == callback
    assert error.error.startswith(
        "HandlerAttributeError: a callback set the attribute Acting.events: other workers do not see"
    )
    assert "events = ValueSpec(…) on the class" in error.error
    assert "handler.events = 1" in error.user_traceback


@pytest.mark.rule(26)
def test_deleting_a_handler_attribute_in_a_callback_is_an_error_that_names_the_attribute(test_run: MakeRun) -> None:
    error = fail(test_run, Acting(delete_attribute))
    assert error.error.startswith(
        "HandlerAttributeError: a callback deleted the attribute Acting.callback: other workers do not see"
    )
    error = fail(test_run, Acting(lambda handler: delattr(handler, "total")))
    assert error.error == (
        "HandlerAttributeError: Acting.total is a ValueSpec and cannot be deleted: use "
        "self.total.state_for(subject).clear()"
    )


@pytest.mark.parametrize("callback", ["key_event", "on_event", "on_timer_expired"])
@pytest.mark.parametrize(
    ("action", "message"),
    [
        (set_in_dict, r"a callback set the attribute Acting\.events"),
        (delete_from_dict, r"a callback deleted the attribute Acting\.callback"),
    ],
)
@pytest.mark.rule(26)
def test_changing_a_handler_attribute_through_its_dict_ends_the_run_even_with_dead_letters(
    test_run: MakeRun, callback: str, action: Action, message: str
) -> None:
    run = test_run(job(Acting(action, callback), on_error="dead_letter")).add_record(event(0)).add_watermark(at(1))
    with pytest.raises(AmadouError, match=message):
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
def test_changing_an_attribute_of_a_slotted_handler_ends_the_run(kind: type[Recorder]) -> None:
    run = TestRun(job(kind()), engine="embedded").add_record(event(0))
    with pytest.raises(AmadouError, match=rf"a callback set the attribute {kind.__name__}\.total"):
        run.end_batch().run()


class CachingRates(Recorder):
    """Has a cached property, and sets an attribute in a thread."""

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
def test_cached_properties_and_threads_may_set_handler_attributes(test_run: MakeRun) -> None:
    result = test_run(job(CachingRates())).add_records([event(0), event(1)]).run()
    assert details(result) == [(2, 2), (2, 3)]


def test_assigning_a_value_to_a_spec_is_an_error_that_says_how_to_use_the_spec(test_run: MakeRun) -> None:
    error = fail(test_run, Acting(lambda handler: setattr(handler, "total", 5)))
    assert "Acting.total is a ValueSpec and cannot be replaced: use" in error.error
    assert error.error.endswith("use self.total.state_for(subject).value = …")


def test_a_spec_cannot_be_replaced_outside_of_callbacks() -> None:
    with pytest.raises(HandlerAttributeError, match=r"use self\.names\.state_for\(subject\)\[…\] = …"):
        setattr(Acting(set_attribute), "names", {})  # noqa: B010 - type checkers report this assignment
    with pytest.raises(HandlerAttributeError, match=r"use self\.seen\.collect\(subject, …\)"):
        setattr(Acting(set_attribute), "seen", [])  # noqa: B010


@pytest.mark.parametrize(
    ("action", "message"),
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
def test_using_a_spec_as_if_it_were_its_state_is_an_error_that_names_state_for(
    test_run: MakeRun, action: Action, message: str
) -> None:
    assert fail(test_run, Acting(action)).error.endswith(message)


class Connected(Recorder):
    """Opens a connection, and counts events in an attribute that `__init__` creates."""

    connection: Any = None

    def __init__(self) -> None:
        self.received: list[str] = []

    def open(self) -> None:
        assert self.connection is None
        self.connection = sqlite3.connect(":memory:")

    def on_event(self, subject: Subject, event: KeyedEvent[Any]) -> None:
        (one,) = self.connection.execute("SELECT 1").fetchone()
        self.received.append("event")
        self.report("event", subject, event.timestamp, [one, len(self.received)])

    def close(self) -> None:
        self.connection.close()
        self.connection = None


def test_a_run_uses_a_copy_of_the_jobs_handler(test_run: MakeRun) -> None:
    test_job = job(Connected())
    for _ in range(2):
        run = test_run(test_job).add_records([event(0), event(0)]).restart().add_record(event(1))
        assert details(run.run()) == [[1, 1], [1, 2], [1, 1]]
        run.close()
    assert vars(test_job.handler) == {"received": []}


@pytest.mark.on_spark("classes travel")
def test_a_handler_that_cannot_be_pickled_is_an_error_before_the_first_batch(test_run: MakeRun) -> None:
    handler = Connected()
    handler.connection = sqlite3.connect(":memory:")
    with pytest.raises(JobError, match=r"Create connections, locks and similar objects in Connected\.open\(\)"):
        test_run(job(handler)).add_record(event(0)).run()
    handler.connection.close()


def test_a_closed_test_run_continues_with_its_stored_state(test_run: MakeRun) -> None:
    run = test_run(job(StateMethods())).add_record(event(0, "add_one"))
    run.run()
    run.close()
    assert run.add_record(event(1, "add_one")).run().state("total", "k") == 2


@pytest.mark.parametrize(
    ("action", "message"),
    [
        (lambda handler, _: not handler.total, "use self.total.state_for(subject).value"),
        (lambda handler, _: handler.total > 3, "use self.total.state_for(subject).value > …"),
        (
            lambda handler, subject: not handler.total.state_for(subject),
            "the state of total has no truth value: use its .value or .exists",
        ),
    ],
)
def test_a_spec_and_its_state_have_no_truth_value(action: Callable[..., Any], message: str) -> None:
    class UsesTruthValue(Recorder):
        total = ValueSpec(int, default=0)

        def on_event(self, subject: Subject, event: KeyedEvent[Any]) -> None:
            action(self, subject)

    with pytest.raises(CallbackError, match=re.escape(message)):
        TestRun(job(UsesTruthValue()), engine="embedded").add_record(event(0)).run()
