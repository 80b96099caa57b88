"""Test runs find values of state that a callback changes in place, which is not stored, and class attributes that a
callback changes.
"""

import math
from array import array
from collections import deque
from collections.abc import Callable
from copy import deepcopy
from dataclasses import dataclass, field
from datetime import date, datetime, timedelta, timezone
from decimal import Decimal
from enum import Enum
from fractions import Fraction
from itertools import count
from types import SimpleNamespace
from typing import Any, NamedTuple

import attrs
import numpy
import pytest
from tests.conformance.handlers import SECOND, EventHandler, at, event, job

from amadou import (
    Handler,
    KeyedEvent,
    ListSpec,
    Lookup,
    MapSpec,
    ReferenceChange,
    ReferenceSpec,
    SinkSpec,
    Subject,
    ValueSpec,
)
from amadou._state.structured import StructuredCodec
from amadou.components import VectorizedHandler
from amadou.errors import CallbackError, HandlerAttributeError
from amadou_plugins.aggregates import Collect, RunningSpec
from amadou_plugins.joins import IntervalJoin
from amadou_plugins.windows import CountWindow, TumblingWindow, Window
from amadou_runtime import TestRun

HOUR = 3600 * SECOND

Do = Callable[[Any], object]
"""What a callback does with the state of its subject."""


@attrs.define
class Profile:
    visits: int = 0
    pages: list[str] = attrs.Factory(list)


@dataclass
class Visitor:
    visits: int = 0


def visit(visitor: Any) -> None:
    visitor.visits += 1


class Visits(EventHandler):
    """The event `store` stores two visitors in each state; at the event `do`, the handler does what a test asks for.

    :param do: function of the subject's state: an object with an attribute for each spec
    """

    pages = ValueSpec(list[str], default=[])
    profile = ValueSpec(Profile, default=Profile())
    visitor = ValueSpec(Visitor, default=Visitor())
    by_page = MapSpec(str, Profile)
    items = ListSpec(Profile)

    def __init__(self, do: Do) -> None:
        self.do = do

    def on_event(self, subject: Subject, event: KeyedEvent[Any]) -> None:
        names = ("pages", "profile", "visitor", "by_page", "items")
        of = SimpleNamespace(**{name: getattr(self, name).state_for(subject) for name in names})
        if event.value == "store":
            of.pages.value, of.profile.value, of.visitor.value = ["home"], Profile(1), Visitor(1)
            of.by_page.update(home=Profile(1), shop=Profile(1))
            of.items.extend([Profile(1), Profile(1)])
        else:
            self.do(of)


class ExpiringVisits(Visits):
    pages = ValueSpec(list[str], default=[], ttl=HOUR)
    profile = ValueSpec(Profile, default=Profile(), ttl=HOUR)
    visitor = ValueSpec(Visitor, default=Visitor(), ttl=HOUR)
    by_page = MapSpec(str, Profile, ttl=HOUR)
    items = ListSpec(Profile, ttl=HOUR)


kinds = pytest.mark.parametrize("kind", [Visits, ExpiringVisits], ids=["without ttl", "with ttl"])


def error_of(handler: Handler, *events: KeyedEvent[Any], **settings: Any) -> CallbackError:
    """Return the error with which a test run of a handler ends."""
    with TestRun(job(handler, **settings)) as run, pytest.raises(CallbackError) as caught:
        run.add_records(events).run(flush=True)
    return caught.value


def check_nothing_is_found(handler: Handler, *events: KeyedEvent[Any]) -> None:
    """Check that a test run of a handler ends without an error."""
    with TestRun(job(handler)) as run:
        run.add_records(events).run(flush=True)


def then(*steps: Do) -> Do:
    def do(of: Any) -> None:
        for step in steps:
            step(of)

    return do


def visit_in_assigned_value(of: Any) -> None:
    of.profile.value = profile = Profile()
    visit(profile)


def visit_in_assigned_entry(of: Any) -> None:
    of.by_page["new"] = profile = Profile()
    visit(profile)


def visit_in_appended_item(of: Any) -> None:
    profile = Profile()
    of.items.append(profile)
    visit(profile)


def visit_in_inserted_item(of: Any) -> None:
    profile = Profile()
    of.items.insert(0, profile)
    visit(profile)


def visit_in_extending_items(of: Any) -> None:
    profiles = [Profile(), Profile()]
    of.items.extend(profiles)
    visit(profiles[1])


def visit_in_assigned_slice(of: Any) -> None:
    profiles = [Profile()]
    of.items[1:] = profiles
    visit(profiles[0])


def visit_while_iterating(of: Any) -> None:
    for profile in of.items:
        visit(profile)


CHANGES: dict[str, tuple[Do, str, str]] = {
    "append to a value": (lambda of: of.pages.value.append("shop"), "pages", ".value"),
    "attribute of an attrs object": (lambda of: visit(of.profile.value), "profile", ".value"),
    "attribute of a dataclass object": (lambda of: visit(of.visitor.value), "visitor", ".value"),
    "part of a value": (lambda of: of.profile.value.pages.append("home"), "profile", ".value"),
    "value after its assignment": (visit_in_assigned_value, "profile", ".value"),
    "value read earlier": (then(lambda of: visit(of.profile.value), lambda of: of.profile.value), "profile", ".value"),
    "new entry of setdefault": (lambda of: visit(of.by_page.setdefault("new", Profile())), "by_page", "['new']"),
    "old entry of setdefault": (lambda of: visit(of.by_page.setdefault("home", Profile())), "by_page", "['home']"),
    "entry by key": (lambda of: visit(of.by_page["home"]), "by_page", "['home']"),
    "entry of get": (lambda of: visit(of.by_page.get("home")), "by_page", "['home']"),
    "entry of values": (lambda of: visit(next(iter(of.by_page.values()))), "by_page", "['home']"),
    "entry of items": (lambda of: visit(dict(of.by_page.items())["shop"]), "by_page", "['shop']"),
    "entry after its assignment": (visit_in_assigned_entry, "by_page", "['new']"),
    "item by index": (lambda of: visit(of.items[0]), "items", "[0]"),
    "item by negative index": (lambda of: visit(of.items[-1]), "items", "[1]"),
    "item of a slice": (lambda of: visit(of.items[1:][0]), "items", "[1]"),
    "item of an iteration": (visit_while_iterating, "items", "[0]"),
    "item after append": (visit_in_appended_item, "items", "[2]"),
    "item after insert": (visit_in_inserted_item, "items", "[0]"),
    "item after extend": (visit_in_extending_items, "items", "[3]"),
    "item after the assignment of a slice": (visit_in_assigned_slice, "items", "[1]"),
    "item that moved": (then(lambda of: visit(of.items[1]), lambda of: of.items.pop(0)), "items", "[0]"),
}


@kinds
@pytest.mark.parametrize(("do", "state", "part"), CHANGES.values(), ids=CHANGES)
@pytest.mark.rule(14)
def test_a_change_in_place_is_an_error_that_names_the_assignment(
    kind: type[Visits], do: Do, state: str, part: str
) -> None:
    error = error_of(kind(do), event(0, "store"), event(2, "do"))
    assert error.error.startswith(f"InPlaceChangeError: a value of the state {state!r} was changed in place")
    assert f"assign the value again (self.{state}.state_for(subject){part} = …)" in str(error)
    assert (error.handler, error.callback, error.source) == (kind.__name__, "on_event", "events")
    assert (error.key, error.record) == ("k", "'do'")


@kinds
@pytest.mark.parametrize(
    ("do", "state"),
    [
        (lambda of: of.pages.value.append("home"), "pages"),
        (lambda of: visit(of.profile.value), "profile"),
        (lambda of: visit(of.visitor.value), "visitor"),
    ],
    ids=["list", "attrs object", "dataclass object"],
)
@pytest.mark.rule(14)
def test_a_change_in_place_of_a_default_is_an_error(kind: type[Visits], do: Do, state: str) -> None:
    assert f"self.{state}.state_for(subject).value = …" in str(error_of(kind(do), event(0, "do")))


@pytest.mark.rule(14)
def test_a_change_in_place_names_the_key_of_a_map_as_it_is_written_in_python() -> None:
    class ByDay(EventHandler):
        days = MapSpec(date, list[str])
        names = MapSpec(tuple[str, int], list[str])

        def on_event(self, subject: Subject, event: KeyedEvent[Any]) -> None:
            if event.value == "day":
                self.days.state_for(subject).setdefault(date(2025, 1, 31), []).append("home")
            else:
                self.names.state_for(subject).setdefault(("a", 1), []).append("home")

    assert "self.days.state_for(subject)[datetime.date(2025, 1, 31)] = …" in str(error_of(ByDay(), event(0, "day")))
    assert "self.names.state_for(subject)[('a', 1)] = …" in str(error_of(ByDay(), event(0, "name")))


@pytest.mark.rule(14)
def test_a_change_in_place_is_an_error_even_if_failed_callbacks_are_dead_letters() -> None:
    handler = Visits(lambda of: visit(of.profile.value))
    error = error_of(handler, event(0, "do"), on_error="dead_letter")
    assert error.error.startswith("InPlaceChangeError")


@pytest.mark.rule(14)
def test_the_trace_shows_which_callback_changed_a_value_in_place() -> None:
    run = TestRun(job(Visits(lambda of: visit(of.profile.value))))
    with pytest.raises(CallbackError):
        run.add_records([event(0, "store", "a"), event(1, "do", "b")]).run()
    entries = run.trace_text().split("+00:00  on_event ")[1:]
    assert [("key='b'" in entry, "✗ InPlaceChangeError" in entry) for entry in entries] == [(False,) * 2, (True,) * 2]


class Changing(EventHandler):
    """Changes state in place in a callback that a subclass defines."""

    pages = ValueSpec(list[str], default=[])
    out = SinkSpec(object)

    def on_event(self, subject: Subject, event: KeyedEvent[Any]) -> None:
        self.add(subject, event)

    def add(self, subject: Subject, event: KeyedEvent[Any]) -> None:
        raise NotImplementedError

    def change(self, subject: Subject, *_: Any) -> None:
        self.pages.state_for(subject).value.append("home")


class ChangingInTimer(Changing):
    def add(self, subject: Subject, event: KeyedEvent[Any]) -> None:
        subject.set_timer(event.timestamp)

    def on_timer_expired(self, subject: Subject, timestamp: datetime) -> None:
        self.change(subject)


class ChangingInOnClose(Changing):
    window = TumblingWindow(HOUR, on_close=lambda subject, *_: subject.handler.change(subject))

    def add(self, subject: Subject, event: KeyedEvent[Any]) -> None:
        self.window.add(subject, event)


class ChangingInOnEarly(ChangingInOnClose):
    window = TumblingWindow(
        HOUR,
        early=SECOND,
        on_close=lambda *_: None,
        on_early=lambda subject, *_: subject.handler.change(subject),
    )


class ChangingInOnCloseOfFullWindow(Changing):
    window = CountWindow(1, on_close=lambda subject, *_: subject.handler.change(subject))

    def add(self, subject: Subject, event: KeyedEvent[Any]) -> None:
        self.window.add(subject, event)


class ChangingInOnMatch(Changing):
    join = IntervalJoin(
        left="events",
        right="others",
        lower=-HOUR,
        upper=HOUR,
        how="left",
        on_match=lambda subject, *_: subject.handler.change(subject),
    )

    def add(self, subject: Subject, event: KeyedEvent[Any]) -> None:
        self.join.add(subject, event)


@pytest.mark.parametrize(
    ("handler", "callback"),
    [
        (ChangingInTimer(), "on_timer_expired"),
        (ChangingInOnClose(), "window"),
        (ChangingInOnEarly(), "window"),
        (ChangingInOnCloseOfFullWindow(), "on_event"),
        (ChangingInOnMatch(), "join"),
    ],
    ids=lambda each: type(each).__name__ if isinstance(each, Handler) else each,
)
@pytest.mark.rule(14)
def test_a_change_in_place_in_any_callback_is_an_error(handler: Changing, callback: str) -> None:
    with TestRun(job(handler, "events", "others")) as run:
        run.add_record(event(1, "first"), "events").add_watermark(at(3)).add_record(event(4, "second"), "events")
        with pytest.raises(CallbackError, match="InPlaceChangeError") as caught:
            run.run(flush=True)
    assert (caught.value.callback, caught.value.key) == (callback, "k")
    assert "(self.pages.state_for(subject).value = …)" in str(caught.value)


@pytest.mark.rule(14)
def test_a_change_in_place_in_on_reference_changed_is_an_error() -> None:
    class Watching(Changing):
        limits = ReferenceSpec(str, int, source="limits")

        def add(self, subject: Subject, event: KeyedEvent[Any]) -> None:
            self.limits.watch(subject)

        def on_reference_changed(self, subject: Subject, change: ReferenceChange) -> None:
            self.change(subject)

    with TestRun(job(Watching(), "events", "limits")) as run:
        run.add_record(event(1), "events").end_batch().add_record(event(2, 5, "a"), "limits")
        with pytest.raises(CallbackError, match="InPlaceChangeError") as caught:
            run.run()
    assert (caught.value.callback, caught.value.key) == ("on_reference_changed", "k")


def assign_value_again(of: Any) -> None:
    of.profile.value = with_visit(of.profile.value)


def assign_entry_again(of: Any) -> None:
    of.by_page["home"] = with_visit(of.by_page["home"])


def assign_new_entry_again(of: Any) -> None:
    of.by_page["new"] = with_visit(of.by_page.setdefault("new", Profile()))


def assign_item_again(of: Any) -> None:
    of.items[0] = with_visit(of.items[0])


def assign_each_item_again(of: Any) -> None:
    for index, profile in enumerate(of.items):
        of.items[index] = with_visit(profile)


def assign_each_entry_again(of: Any) -> None:
    for page, profile in [*of.by_page.items()]:
        of.by_page[page] = with_visit(profile)


def assign_all_items_again(of: Any) -> None:
    of.items[:] = [with_visit(profile) for profile in of.items]


def extend_value_and_assign(of: Any) -> None:
    of.pages.value += ["shop"]


def move_entry(of: Any) -> None:
    of.by_page["new"] = with_visit(of.by_page.pop("home"))


def move_item(of: Any) -> None:
    of.items.append(with_visit(of.items.pop(0)))


def delete_entry(of: Any) -> None:
    visit(of.by_page["home"])
    del of.by_page["home"]


def delete_item(of: Any) -> None:
    visit(of.items[0])
    del of.items[0]


def replace_value(of: Any) -> None:
    visit(of.profile.value)
    of.profile.value = Profile(9)


def undo_change(of: Any) -> None:
    pages = of.pages.value
    pages.append("shop")
    pages.pop()


def with_visit(profile: Any) -> Any:
    visit(profile)
    return profile


NO_CHANGES: dict[str, Do] = {
    "value assigned again": assign_value_again,
    "value extended and assigned": extend_value_and_assign,
    "entry assigned again": assign_entry_again,
    "new entry of setdefault assigned again": assign_new_entry_again,
    "each entry assigned again": assign_each_entry_again,
    "item assigned again": assign_item_again,
    "each item assigned again": assign_each_item_again,
    "all items assigned again": assign_all_items_again,
    "value replaced": replace_value,
    "value cleared": then(lambda of: visit(of.profile.value), lambda of: of.profile.clear()),
    "entry popped": lambda of: visit(of.by_page.pop("home")),
    "last entry popped": lambda of: visit(of.by_page.popitem()[1]),
    "entry moved": move_entry,
    "entry deleted": delete_entry,
    "entries cleared": then(lambda of: visit(of.by_page["home"]), lambda of: of.by_page.clear()),
    "item popped": lambda of: visit(of.items.pop()),
    "item moved": move_item,
    "item deleted": delete_item,
    "items cleared": then(lambda of: visit(of.items[0]), lambda of: of.items.clear()),
    "items reversed": lambda of: of.items.reverse(),
    "items compared": lambda of: Profile(1) in of.items and of.items.index(Profile(1)),
    "copy changed": lambda of: visit(deepcopy(of.profile.value)),
    "shallow copy changed": lambda of: list(of.pages.value).append("shop"),
    "change undone": undo_change,
    "values read": lambda of: [of.profile.value, *of.by_page.values(), *of.items, of.pages.value, of.visitor.value],
    "representations read": lambda of: [repr(getattr(of, name)) for name in ("profile", "by_page", "items")],
}


@kinds
@pytest.mark.parametrize("do", NO_CHANGES.values(), ids=NO_CHANGES)
@pytest.mark.rule(14)
def test_a_change_that_is_stored_or_lost_on_purpose_is_not_an_error(kind: type[Visits], do: Do) -> None:
    check_nothing_is_found(kind(do), event(0, "store"), event(1, "do"))


class Color(Enum):
    RED = "red"
    BLUE = 2


class Point(NamedTuple):
    x: float
    tags: tuple[str, ...] = ()


@dataclass
class Order:
    price: Decimal
    day: date
    colors: list[Color] = field(default_factory=list)


@attrs.define
class Account:
    profile: Profile
    by_name: dict[str, Profile | None]
    seen: set[Color]
    orders: list[Order] = attrs.Factory(list)


def sparse() -> set[int]:
    """Return a set whose order is not that of an equal set."""
    numbers = set(range(100))
    numbers -= set(range(100)) - {1, 16}
    assert [*numbers] != [*set(numbers)]
    return numbers


ACCOUNT = Account(
    Profile(1, ["home"]), {"a": Profile(), "b": None}, {*Color}, [Order(Decimal("1.0"), date(2025, 1, 1))]
)
VALUES: dict[str, tuple[Any, Any]] = {
    "NaN": (list[float], [math.nan, 1, -0.0]),
    "NaN in Any": (Any, {"a": [math.nan, (1, 2)]}),
    "set": (set[int], sparse()),
    "set in Any": (Any, [sparse(), frozenset({"b", "a"})]),
    "sets in dict": (dict[str, frozenset[str]], {"b": frozenset("xyz"), "a": frozenset()}),
    "dict with other keys": (dict[int, list[date]], {2: [date(2025, 1, 1)], 1: []}),
    "nested classes": (Account, ACCOUNT),
    "nested classes in Any": (Any, [ACCOUNT]),
    "enum": (Color, Color.RED),
    "enums": (list[Color], [Color.BLUE, Color.RED]),
    "named tuple": (Point, Point(1, ("a",))),
    "union": (int | list[int], [1, 2]),
    "time in another zone": (list[datetime], [at(1).astimezone(timezone(HOUR))]),
}


@pytest.mark.parametrize(("type_", "given"), VALUES.values(), ids=VALUES)
@pytest.mark.rule(14)
def test_a_value_that_is_only_assigned_and_read_is_not_an_error(type_: Any, given: Any) -> None:
    class Reading(EventHandler):
        value = ValueSpec(type_)
        default = ValueSpec(type_, default=given)
        by_name = MapSpec(str, type_, ttl=HOUR)
        items = ListSpec(type_)

        def on_event(self, subject: Subject, event: KeyedEvent[Any]) -> None:
            value, by_name = self.value.state_for(subject), self.by_name.state_for(subject)
            items = self.items.state_for(subject)
            if event.value == "store":
                value.value = by_name["a"] = given
                items.append(given)
            assert value.value is not None
            assert (len([*by_name.values()]), len([*items])) == (1, 1)
            assert self.default.state_for(subject).value is not None

    with TestRun(job(Reading())) as run:
        run.add_records([event(0, "store"), event(1, "read")]).end_batch().add_record(event(2, "read")).run()


@pytest.mark.rule(14)
@pytest.mark.rule(17)
def test_state_of_an_older_version_that_is_only_read_is_not_an_error() -> None:
    class Older(EventHandler):
        pages = ValueSpec(list[str], default=[])
        by_page = MapSpec(str, list[str])
        items = ListSpec(list[str])

        def on_event(self, subject: Subject, event: KeyedEvent[Any]) -> None:
            self.pages.state_for(subject).value = self.by_page.state_for(subject)["home"] = ["home"]
            self.items.state_for(subject).append(["home"])

    def migrate(stored: list[str], version: int) -> Profile:
        return Profile(version, stored)

    class Newer(EventHandler):
        pages = ValueSpec(Profile, version=1, migrate=migrate)
        by_page = MapSpec(str, Profile, version=1, migrate=migrate)
        items = ListSpec(Profile, version=1, migrate=migrate)

        def on_event(self, subject: Subject, event: KeyedEvent[Any]) -> None:
            expected = Profile(0, ["home"])
            assert self.pages.state_for(subject).value == expected
            assert dict(self.by_page.state_for(subject)) == {"home": expected}
            assert list(self.items.state_for(subject)) == [expected]
            if event.value == "change":
                visit(self.by_page.state_for(subject)["home"])

    run = TestRun(job(Older())).add_record(event(0)).restart(Newer()).add_record(event(1))
    run.run()
    with pytest.raises(CallbackError, match=r"self\.by_page\.state_for\(subject\)\['home'\] = …"):
        run.add_record(event(2, "change")).run()


def value_of(event: KeyedEvent[Any]) -> Any:
    return event.value


@pytest.mark.rule(14)
def test_results_of_running_values_windows_and_kept_lookups_may_be_changed() -> None:
    class Owning(EventHandler):
        running = RunningSpec(Collect())
        window = TumblingWindow(HOUR, Collect())
        customers: Lookup[str, Profile] = Lookup(
            lambda keys: {key: Profile() for key in keys}, key=value_of, keep=True, type=Profile
        )
        out = SinkSpec(object)

        def on_event(self, subject: Subject, event: KeyedEvent[Any]) -> None:
            self.running.add(subject, event).append("changed")
            self.running.state_for(subject).value.append("changed")
            self.window.add(subject, event)
            customer = self.customers.get(subject, event.value)
            visit(customer)
            self.out.collect(subject, [customer, self.running.result(subject)])

        @window.on_close
        def closed(self, subject: Subject, window: Window, values: list[str]) -> None:
            values.append("changed")

    result = TestRun(job(Owning())).add_records([event(0, "a"), event(1, "a")]).run(flush=True)
    assert result.records("out") == [[Profile(1), ["a"]], [Profile(1), ["a", "a"]]]


@pytest.mark.rule(14)
def test_values_that_did_not_change_are_not_encoded_again(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = 0

    def encode(self: StructuredCodec[Any], value: Any, encode: Any = StructuredCodec.encode) -> Any:
        nonlocal calls
        calls += 1
        return encode(self, value)

    monkeypatch.setattr(StructuredCodec, "encode", encode)

    class Reading(EventHandler):
        profile = ValueSpec(Profile)
        by_name = MapSpec(str, Profile, ttl=HOUR)

        def on_event(self, subject: Subject, event: KeyedEvent[Any]) -> None:
            if event.value == "store":
                self.profile.state_for(subject).value = self.by_name.state_for(subject)["a"] = Profile(1, ["home"])
            assert self.profile.state_for(subject).value == self.by_name.state_for(subject)["a"]

    TestRun(job(Reading())).add_records([event(0, "store"), event(1), event(2)]).run()
    assert calls == 2


@pytest.mark.rule(14)
def test_a_test_may_change_the_state_that_it_reads_from_a_result() -> None:
    run = TestRun(job(Visits(lambda of: of.profile.value))).add_record(event(0, "store"))
    result = run.run()
    visit(result.state("profile", "k"))
    result.state("items", "k").clear()
    result = run.add_record(event(1, "do")).run()
    assert (result.state("profile", "k"), len(result.state("items", "k"))) == (Profile(1), 2)


@pytest.mark.rule(14)
def test_values_are_not_checked_if_a_handler_or_its_base_class_turns_it_off() -> None:
    class Off(Visits):
        check_in_place = False

    class OffToo(Off): ...

    for handler in (Off, OffToo):
        check_nothing_is_found(handler(lambda of: visit(of.profile.value)), event(0, "store"), event(1, "do"))


def sharing(do: Callable[[Any], object], **attributes: Any) -> Any:
    """Return a handler of a new class with class attributes, some of them in its base class.

    :param do: function that `on_event` calls with the handler
    """

    class Base(EventHandler):
        base_names = ["ann"]
        base_count = 0
        base_share = 0.5

    class Sharing(Base):
        pages = ["home"]
        by_page: dict[str, Any] = {"home": {"visits": [1]}}
        users = {"ann"}
        newest = deque([1])
        raw = bytearray(b"a")
        numbers = array("i", [1])
        matrix = numpy.zeros((2, 2))
        total = Decimal(0)
        ratio = Fraction(0)
        phase = 0j
        number = numpy.int64(0)
        newest_time = at(0)
        slowest = timedelta(0)
        seen_names = frozenset({"ann"})
        color = Color.RED
        profile = Profile()
        oldest_time = None
        base_share = 1.0
        count = 0
        last = "home"
        share = 0.5
        is_open = False

        def on_event(self, subject: Subject, event: KeyedEvent[Any]) -> None:
            do(self)

    return type("Sharing", (Sharing,), attributes)() if attributes else Sharing()


def setting(name: str, value: Any) -> Callable[[Any], object]:
    return lambda handler: setattr(type(handler), name, value)


SHARED: dict[str, tuple[Callable[[Any], object], str]] = {
    "item of a list": (lambda handler: handler.pages.append("shop"), "pages"),
    "nested list": (lambda handler: handler.by_page["home"]["visits"].append(1), "by_page"),
    "entry of a dict": (lambda handler: handler.by_page.clear(), "by_page"),
    "order of a dict": (lambda handler: handler.by_page.update(a=handler.by_page.pop("home")), "by_page"),
    "item of a set": (lambda handler: handler.users.add("bob"), "users"),
    "item of a deque": (lambda handler: handler.newest.append(2), "newest"),
    "byte": (lambda handler: handler.raw.extend(b"b"), "raw"),
    "item of an array": (lambda handler: handler.numbers.append(2), "numbers"),
    "element of a NumPy array": (lambda handler: handler.matrix.__iadd__(1), "matrix"),
    "Decimal": (setting("total", Decimal(1)), "total"),
    "Fraction": (setting("ratio", Fraction(1, 2)), "ratio"),
    "complex": (setting("phase", 1j), "phase"),
    "NumPy scalar": (setting("number", numpy.int64(1)), "number"),
    "datetime": (setting("newest_time", at(1)), "newest_time"),
    "timedelta": (setting("slowest", SECOND), "slowest"),
    "frozenset": (setting("seen_names", frozenset()), "seen_names"),
    "Enum": (setting("color", Color.BLUE), "color"),
    "object": (setting("profile", Profile(1)), "profile"),
    "datetime for None": (setting("oldest_time", at(1)), "oldest_time"),
    "Decimal for None": (setting("oldest_time", Decimal(1)), "oldest_time"),
    "hidden attribute of a base class": (
        lambda handler: setattr(type(handler).__base__, "base_share", 1),
        "base_share",
    ),
    "int": (setting("count", 1), "count"),
    "type of an int": (setting("count", False), "count"),
    "str": (setting("last", "shop"), "last"),
    "float": (setting("share", 0.25), "share"),
    "bool": (setting("is_open", True), "is_open"),
    "deleted": (lambda handler: delattr(type(handler), "count"), "count"),
    "new": (setting("new", 1), "new"),
    "list of a base class": (lambda handler: handler.base_names.append("bob"), "base_names"),
    "int of a base class": (lambda handler: setattr(type(handler).__base__, "base_count", 1), "base_count"),
    "in place of that of a base class": (setting("base_count", 1), "base_count"),
}


@pytest.mark.parametrize(("do", "attribute"), SHARED.values(), ids=SHARED)
@pytest.mark.parametrize("settings", [{}, {"on_error": "dead_letter"}], ids=["fail", "dead_letter"])
@pytest.mark.rule(26)
def test_a_callback_that_changes_a_class_attribute_is_an_error(
    do: Callable[[Any], object], attribute: str, settings: dict[str, Any]
) -> None:
    run = TestRun(job(sharing(do), **settings)).add_record(event(0))
    with pytest.raises(HandlerAttributeError, match=f"changed the class attribute Sharing.{attribute}: ") as caught:
        run.run()
    assert (caught.value.handler, caught.value.attribute, caught.value.did) == ("Sharing", attribute, "changed")
    assert "set check_in_place = False on the class" in str(caught.value)


@pytest.mark.parametrize("boundary", ["end_batch", "crash", "restart"])
@pytest.mark.rule(26)
def test_a_class_attribute_that_a_callback_changes_is_found_in_each_kind_of_batch(boundary: str) -> None:
    run = TestRun(job(sharing(lambda handler: handler.pages.append("shop")))).end_batch().add_record(event(0))
    with pytest.raises(HandlerAttributeError, match=r"Sharing\.pages"):
        getattr(run, boundary)().run()


@pytest.mark.rule(26)
def test_key_event_that_changes_a_class_attribute_is_an_error() -> None:
    class Counting(EventHandler):
        number = 0

        def key_event(self, record: KeyedEvent[Any]) -> KeyedEvent[Any]:
            type(self).number += 1
            return record

        def on_event(self, subject: Subject, event: KeyedEvent[Any]) -> None: ...

    with pytest.raises(HandlerAttributeError, match=r"changed the class attribute Counting\.number: "):
        TestRun(job(Counting())).add_record(event(0)).run()


@pytest.mark.rule(26)
def test_class_attributes_that_callbacks_only_read_are_not_an_error() -> None:
    class Reading(EventHandler):
        pages = ["home", None, math.nan, Profile(), Color.RED, len]
        by_page = {"home": [Profile], ("shop", 1): {1, 2}}
        limit = math.nan
        profile = Profile()
        of_pages = staticmethod(sorted)
        seen = SinkSpec(int)

        def on_event(self, subject: Subject, event: KeyedEvent[Any]) -> None:
            found = [*self.pages, *self.by_page, self.limit, self.profile, self.of_pages([2, 1])]
            self.seen.collect(subject, len(found))

    run = TestRun(job(Reading())).add_record(event(0)).end_batch().add_record(event(1)).restart().add_record(event(2))
    assert run.run().records("seen") == [11] * 3


@pytest.mark.rule(26)
def test_a_class_attribute_that_is_set_to_an_equal_number_or_text_is_not_an_error() -> None:
    def set_again(handler: Any) -> None:
        type(handler).count = int("0")
        type(handler).share = float("0.5")
        type(handler).last = "".join(["ho", "me"])
        handler.by_page["home"] = handler.by_page["home"]

    check_nothing_is_found(sharing(set_again), event(0), event(1))


@pytest.mark.rule(26)
def test_functions_of_lookups_may_change_class_attributes_but_key_event_may_not() -> None:
    class Counting(EventHandler):
        calls = 0
        keyed = 0
        counts_records = False
        names: Lookup[str, str] = Lookup(key=value_of)

        @names.fetched_by
        def fetch(self, keys: list[str]) -> dict[str, str]:
            type(self).calls += 1
            return {key: key for key in keys}

        def key_event(self, record: KeyedEvent[Any]) -> KeyedEvent[Any]:
            type(self).keyed += self.counts_records
            return record

        def on_event(self, subject: Subject, event: KeyedEvent[Any]) -> None:
            self.names.get(subject, event.value)

    check_nothing_is_found(Counting(), event(0, "a"), event(1, "b"))
    assert Counting.calls > 0
    Counting.counts_records = True
    with pytest.raises(HandlerAttributeError, match=r"Counting\.keyed"):
        TestRun(job(Counting())).add_record(event(0, "a")).run()


@pytest.mark.rule(26)
def test_class_attributes_are_not_checked_if_a_handler_or_its_base_class_turns_it_off() -> None:
    append = lambda handler: handler.pages.append("shop")  # noqa: E731
    off = sharing(append, check_in_place=False)
    inheriting = type("Inheriting", (type(off),), {})()
    for handler in (off, inheriting):
        check_nothing_is_found(handler, event(0), event(1))
        assert handler.pages == ["home", "shop", "shop"]
        handler.pages.clear()
        handler.pages.append("home")


class Increasing(VectorizedHandler):
    """Counts the results of a window in a class attribute."""

    number = 0
    delegates_to = "window"
    window = TumblingWindow(HOUR)

    def key_event(self, record: KeyedEvent[Any]) -> KeyedEvent[Any]:
        return record

    def on_event(self, subject: Subject, event: KeyedEvent[Any]) -> None:
        self.window.add(subject, event)

    @window.on_close
    def closed(self, subject: Subject, window: Window, count: int) -> None:
        type(self).number += 1


@pytest.mark.rule(26)
def test_a_vectorized_handler_that_changes_a_class_attribute_gets_the_same_error() -> None:
    with pytest.raises(HandlerAttributeError, match=r"changed the class attribute Increasing\.number: "):
        TestRun(job(Increasing())).add_record(event(0)).run(flush=True)


@pytest.mark.rule(26)
def test_a_class_attribute_of_a_base_class_that_is_no_handler_is_checked() -> None:
    class Named:
        names = ["ann"]

    class Appending(Named, EventHandler):
        def on_event(self, subject: Subject, event: KeyedEvent[Any]) -> None:
            self.names.append("bob")

    with pytest.raises(HandlerAttributeError, match=r"Appending\.names"):
        TestRun(job(Appending())).add_record(event(0)).run()


@pytest.mark.rule(26)
def test_open_may_change_class_attributes() -> None:
    class Opening(EventHandler):
        models: dict[str, str] = {}

        def open(self) -> None:
            self.models["home"] = "loaded once in each worker"

        def on_event(self, subject: Subject, event: KeyedEvent[Any]) -> None: ...

    check_nothing_is_found(Opening(), event(0))


@pytest.mark.rule(26)
def test_a_test_may_change_class_attributes_between_batches() -> None:
    handler = sharing(lambda handler: handler.count)
    run = TestRun(job(handler)).add_record(event(0))
    run.run()
    type(handler).count = 5
    run.add_record(event(1)).run()


@pytest.mark.rule(14)
def test_a_new_field_whose_default_is_different_each_time_is_not_an_error() -> None:
    numbers = count()

    @attrs.define
    class Numbered:
        visits: int = 0
        number: int = attrs.Factory(lambda: next(numbers))

    class Older(EventHandler):
        visitor = ValueSpec(Visitor)

        def on_event(self, subject: Subject, event: KeyedEvent[Any]) -> None:
            self.visitor.state_for(subject).value = Visitor(1)

    class Newer(EventHandler):
        visitor = ValueSpec(Numbered)

        def on_event(self, subject: Subject, event: KeyedEvent[Any]) -> None:
            value = self.visitor.state_for(subject).value
            assert value is not None
            assert value.visits == 1

    TestRun(job(Older())).add_record(event(0)).restart(Newer()).add_record(event(1)).run()


@pytest.mark.rule(14)
def test_a_default_that_is_changed_in_place_and_cleared_is_not_an_error() -> None:
    do = then(lambda of: visit(of.profile.value), lambda of: of.profile.clear())
    check_nothing_is_found(Visits(do), event(0, "do"))


class OfVisits:
    """Stores profiles as numbers."""

    def encode(self, value: Profile) -> int:
        return value.visits

    def decode(self, encoded: Any) -> Profile:
        return Profile(encoded)


@pytest.mark.rule(14)
def test_an_item_that_was_equal_to_another_one_and_is_assigned_again_is_not_an_error() -> None:
    class Numbers(Visits):
        items = ListSpec(Profile, codec=OfVisits())

    check_nothing_is_found(Numbers(assign_item_again), event(0, "store"), event(1, "do"))
