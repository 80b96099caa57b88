"""Values of state that callbacks change in place, and class attributes that callbacks change, are found in test runs,
however the state is stored.
"""

from datetime import datetime
from typing import Any

import attrs
import pytest
from tests.conformance.conftest import MakeRun
from tests.conformance.handlers import SECOND, EventHandler, at, event, job

from amadou import KeyedEvent, ListSpec, MapSpec, SinkSpec, Subject, ValueSpec
from amadou.errors import AmadouError, CallbackError

HOUR = 3600 * SECOND


@attrs.define
class Profile:
    visits: int = 0
    pages: list[str] = attrs.Factory(list)


class Visits(EventHandler):
    """Stores profiles at the event `store`. Another event names the state whose profile is changed, and not assigned
    again; a timer does the same with its tag.
    """

    profile = ValueSpec(Profile, default=Profile())
    by_page = MapSpec(str, Profile)
    items = ListSpec(Profile, ttl=HOUR)
    seen = SinkSpec(list)

    def on_event(self, subject: Subject, event: KeyedEvent[Any]) -> None:
        if event.value == "store":
            self.profile.state_for(subject).value = Profile(1)
            self.by_page.state_for(subject)["home"] = Profile(1)
            self.items.state_for(subject)[:] = [Profile(1)]
        elif event.value == "read":
            self.seen.collect(subject, [profile.visits for profile in self.profiles(subject).values()])
        elif event.value == "timer":
            subject.set_timer(at(100), "by_page")
        else:
            self.visit(subject, event.value)

    def on_timer_expired(self, subject: Subject, timestamp: datetime) -> None:
        self.visit(subject, subject.timer_tag)

    def visit(self, subject: Subject, state: str) -> None:
        self.profiles(subject)[state].visits += 1

    def profiles(self, subject: Subject) -> dict[str, Profile]:
        return {
            "profile": self.profile.state_for(subject).value,
            "by_page": self.by_page.state_for(subject)["home"],
            "items": self.items.state_for(subject)[0],
        }


@pytest.mark.parametrize("cut", [False, True], ids=["in one batch", "across batches"])
@pytest.mark.parametrize(
    ("value", "callback", "part"),
    [
        ("profile", "on_event", "profile.state_for(subject).value"),
        ("by_page", "on_event", "by_page.state_for(subject)['home']"),
        ("items", "on_event", "items.state_for(subject)[0]"),
        ("timer", "on_timer_expired", "by_page.state_for(subject)['home']"),
    ],
)
@pytest.mark.rule(14)
def test_a_stored_value_that_a_callback_changes_in_place_is_an_error(
    test_run: MakeRun, cut: bool, value: str, callback: str, part: str
) -> None:
    run = test_run(job(Visits())).add_records([event(0, "store", key) for key in ("a", "k", "z")])
    if cut:
        run.end_batch()
    run.add_record(event(1, value)).add_watermark(at(200))
    with pytest.raises(CallbackError, match="InPlaceChangeError: a value of the state") as caught:
        run.run()
    assert (caught.value.callback, caught.value.key) == (callback, "k")
    assert f"assign the value again (self.{part} = …)" in str(caught.value)


@pytest.mark.rule(14)
def test_the_batch_of_a_change_in_place_is_discarded_and_the_test_run_can_continue(test_run: MakeRun) -> None:
    run = test_run(job(Visits(), on_error="dead_letter")).add_record(event(0, "store")).end_batch()
    run.run()
    with pytest.raises(CallbackError, match="InPlaceChangeError"):
        run.add_records([event(1, "timer"), event(2, "profile")]).run()
    result = run.add_record(event(3, "read")).run()
    assert (result.records("seen"), result.timers("k"), result.dead_letters) == ([[1, 1, 1]], [], [])


@pytest.mark.rule(14)
def test_stored_values_that_callbacks_only_read_are_not_an_error(test_run: MakeRun) -> None:
    run = test_run(job(Visits())).add_records([event(0, "store"), event(1, "read")]).end_batch()
    run.add_record(event(2, "read")).restart().add_record(event(3, "read")).crash(0)
    assert run.run().records("seen") == [[1, 1, 1]] * 3


@pytest.mark.parametrize("boundary", ["end_batch", "restart", "crash"])
@pytest.mark.rule(26)
def test_a_class_attribute_that_a_callback_changes_is_an_error(test_run: MakeRun, boundary: str) -> None:
    class Remembering(EventHandler):
        users: set[str] = set()

        def on_event(self, subject: Subject, event: KeyedEvent[Any]) -> None:
            self.users.add(event.value)

    run = test_run(job(Remembering())).add_record(event(0, "ann"))
    with pytest.raises(AmadouError, match=r"changed the class attribute Remembering\.users: "):
        getattr(run, boundary)().run()


@pytest.mark.rule(14)
@pytest.mark.rule(26)
def test_a_handler_can_turn_off_both_checks(test_run: MakeRun) -> None:
    class Unchecked(Visits):
        check_in_place = False
        number = 0

        def on_event(self, subject: Subject, event: KeyedEvent[Any]) -> None:
            type(self).number += 1
            super().on_event(subject, event)

    run = test_run(job(Unchecked())).add_records([event(0, "store"), event(1, "profile"), event(2, "read")])
    assert run.run().records("seen") == [[1, 1, 1]]
