"""The codec of `TypedDict`s."""

from datetime import datetime, timezone
from typing import Any, Generic, TypeVar

import pytest
from typing_extensions import NotRequired, ReadOnly, Required, TypedDict

from amadou import Handler, Job, KeyedEvent, MapSpec, MemorySink, MemorySource, SinkSpec, Subject, ValueSpec
from amadou.datatypes import datatype, structure_of
from amadou.errors import EncodeError, StateDecodeError, UnsupportedTypeError
from amadou.plugins import codec_for
from amadou_runtime import TestRun

NOON = datetime(2025, 1, 1, 12, tzinfo=timezone.utc)
T = TypeVar("T")


class View(TypedDict):
    channel: str
    at: datetime
    seconds: NotRequired[int]
    replies: "list[View]"


class Open(View, total=False):
    note: str
    id: Required[ReadOnly[int]]


class Pair(TypedDict, Generic[T]):
    first: T
    second: T


class Other(TypedDict):
    number: int


VIEW: View = {"channel": "news", "at": NOON, "replies": [{"channel": "b", "at": NOON, "seconds": 3, "replies": []}]}


@pytest.mark.parametrize(
    ("type_", "value"),
    [
        (View, VIEW),
        (Open, {**VIEW, "id": 1}),
        (Open, {**VIEW, "id": 1, "note": "x", "seconds": 2}),
        (Pair[datetime], {"first": NOON, "second": NOON}),
        (Pair, {"first": [1], "second": {2}}),
        (View | None, VIEW),
        (View | int, VIEW),
        (dict[str, list[View]], {"a": [VIEW]}),
    ],
)
def test_values_are_read_as_they_were_stored(type_: Any, value: Any) -> None:
    codec = codec_for(type_)
    assert codec.decode(codec.encode(value)) == value


@pytest.mark.parametrize(
    ("value", "why"),
    [
        ({"channel": "news", "at": NOON}, "the key 'replies' is missing"),
        ({**VIEW, "other": 1}, "the key 'other' is not one of the type's"),
        ({**VIEW, 3: 1}, "the key 3 is not one of the type's"),
        ({**VIEW, "channel": 3}, "cannot store 3"),
        ({**VIEW, "seconds": "3"}, "cannot store '3'"),
        (["channel"], "as View"),
    ],
)
def test_a_value_that_does_not_fit_is_an_error_that_says_why(value: Any, why: str) -> None:
    with pytest.raises(EncodeError, match=why):
        codec_for(View).encode(value)


def test_stored_values_without_a_required_key_are_an_error_and_removed_keys_are_ignored() -> None:
    codec = codec_for(View)
    with pytest.raises(StateDecodeError, match="'at' is missing"):
        codec.decode({"channel": "news"})
    assert codec.decode({**codec.encode(VIEW), "removed": 1}) == VIEW


def test_the_structure_of_a_typed_dict_has_its_keys() -> None:
    structure = structure_of(datatype(Open))
    assert structure["is"] == {"class": "Open"}
    fields = structure["classes"]["Open"]
    assert {name: is_required for name, (_, is_required) in fields.items()} == {
        "channel": True,
        "at": True,
        "seconds": False,
        "replies": True,
        "note": False,
        "id": True,
    }
    assert fields["id"][0] == "int"


def test_a_union_can_have_one_dict() -> None:
    with pytest.raises(UnsupportedTypeError, match="the union has more than one dict"):
        codec_for(View | Other)


class LastViews(Handler):
    last = ValueSpec(View)
    by_channel = MapSpec(str, View)
    views = SinkSpec(View)

    def key_event(self, record: View) -> KeyedEvent:
        return KeyedEvent("all", record["at"], record)

    def on_event(self, subject: Subject, event: KeyedEvent) -> None:
        before = self.last.state_for(subject).value
        if before is not None:
            self.views.collect(subject, before)
        self.last.state_for(subject).value = event.value
        self.by_channel.state_for(subject)[event.value["channel"]] = event.value


def test_state_and_ports_can_have_typed_dicts() -> None:
    run = TestRun(Job("views", LastViews(), {"in": MemorySource()}, {"views": MemorySink()}))
    result = run.add_record(VIEW).restart().add_record({**VIEW, "channel": "b"}).run()
    assert result.records("views") == [VIEW]
    assert result.state(LastViews.by_channel, "all") == {"news": VIEW, "b": {**VIEW, "channel": "b"}}
