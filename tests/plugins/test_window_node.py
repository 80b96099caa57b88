"""The window node: messages, errors and pipes."""

import copy
import json
import os
import pickle
import random
import resource
import selectors
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from amadou import Job, MemorySink, MemorySource, from_millis
from amadou_plugins.window_node import MessageError, MessageWindows, Node, _pipe
from amadou_plugins.window_node._envelope import MOST_BYTES
from amadou_plugins.window_node._handler import Added, Closed
from amadou_plugins.window_node._requests import Assign, Close
from amadou_runtime import LocalRunner, TestRun
from amadou_runtime.command.cli import app

PAGE = (Path(__file__).parents[2] / "docs" / "window-node.md").read_text()
COMMAND = [str(Path(sys.executable).with_name("amadou")), "window-node"]
TEN = "2024-01-15T10:00:00Z"
AT_TEN = 1705312800000
MINUTE = 60_000
NAN, INFINITY = float("nan"), float("inf")
HALF = "\ud800"  # half of a surrogate pair, which Python's json writes and UTF-8 does not have
HUGE = 10**310  # more than a float has
Ask = Callable[..., Any]


@pytest.fixture
def node() -> Node:
    return Node(LocalRunner("window-node", MessageWindows()))


@pytest.fixture
def ask(node: Node) -> Ask:
    """Returns a function that sends a message and returns the reply."""
    return lambda type=None, **body: replies(node, {"type": type, **body} if type else body)[0]


def replies(node: Node, *messages: Any) -> list[Any]:
    """Send messages together: objects, or lines of bytes. Return the replies."""
    lines = [message if isinstance(message, bytes) else json.dumps(message).encode() for message in messages]
    answered = node.answer(lines)
    assert len(answered) == len(lines)
    assert all(line.endswith(b"\n") and line.count(b"\n") == 1 for line in answered)
    return [json.loads(line) for line in answered]


def event(id: Any = 1, timestamp: Any = TEN) -> dict[str, Any]:
    return {"id": id, "timestamp": timestamp}


def assign(id: Any = 1, timestamp: Any = TEN, size: Any = MINUTE, **more: Any) -> dict[str, Any]:
    return {"type": "assign", "events": [event(id, timestamp)], "window_size_ms": size, **more}


def process(*events: Any, size: Any = MINUTE, **more: Any) -> dict[str, Any]:
    return {"type": "process_window", "events": list(events), "window_size_ms": size, **more}


def close(start: int = AT_TEN, **more: Any) -> dict[str, Any]:
    return {"type": "close", "window_id": f"window-{start}", **more}


LIST = {"type": "list"}


@pytest.mark.parametrize("number", [0, 1])
def test_the_window_node_gives_the_replies_of_the_acceptance_cases(
    number: int, node: Node, shared_data: Callable[[str], Path]
):
    case = json.loads(shared_data("vectors/window_node.json").read_text())["cases"][number]

    (reply,) = replies(node, case["request"])

    assert reply["src"] == case["request"]["dest"]
    assert reply["dest"] == case["request"]["src"]
    assert reply["body"] == with_right_ids(case["reply_body"])


def with_right_ids(body: Any) -> Any:
    """Return a reply of the acceptance cases with correct ids: their ids name 08:00, but their bounds are 10:00."""
    two_hours = 2 * 60 * MINUTE
    for window in [body, *body.get("windows", [])]:
        if "window_id" in window:
            window["window_id"] = f"window-{int(window['window_id'].removeprefix('window-')) + two_hours}"
    return body


# assign


@pytest.mark.parametrize(
    ("timestamp", "size", "start", "bounds"),
    [
        ("2024-01-15T10:00:10Z", 60_000, AT_TEN, ("2024-01-15T10:00:00Z", "2024-01-15T10:01:00Z")),
        ("2024-01-15T10:00:00Z", 60_000, AT_TEN, ("2024-01-15T10:00:00Z", "2024-01-15T10:01:00Z")),
        ("2024-01-15T10:00:59.999Z", 60_000, AT_TEN, ("2024-01-15T10:00:00Z", "2024-01-15T10:01:00Z")),
        ("2024-01-15T10:00:59.999999Z", 60_000, AT_TEN, ("2024-01-15T10:00:00Z", "2024-01-15T10:01:00Z")),
        ("2024-01-15T12:00:10+02:00", 60_000, AT_TEN, ("2024-01-15T10:00:00Z", "2024-01-15T10:01:00Z")),
        ("2024-01-15T05:30:10-04:30", 60_000, AT_TEN, ("2024-01-15T10:00:00Z", "2024-01-15T10:01:00Z")),
        (AT_TEN + 10_000, 60_000, AT_TEN, ("2024-01-15T10:00:00Z", "2024-01-15T10:01:00Z")),
        (TEN, 60_000.0, AT_TEN, ("2024-01-15T10:00:00Z", "2024-01-15T10:01:00Z")),
        ("2024-01-15T10:00:00.7Z", 250, AT_TEN + 500, ("2024-01-15T10:00:00.500Z", "2024-01-15T10:00:00.750Z")),
        ("1970-01-01T00:00:00Z", 60_000, 0, ("1970-01-01T00:00:00Z", "1970-01-01T00:01:00Z")),
        ("1969-12-31T23:59:59.999Z", 60_000, -60_000, ("1969-12-31T23:59:00Z", "1970-01-01T00:00:00Z")),
        ("1969-12-31T23:59:59.9999Z", 1, -1, ("1969-12-31T23:59:59.999Z", "1970-01-01T00:00:00Z")),
        (-1, 1000, -1000, ("1969-12-31T23:59:59Z", "1970-01-01T00:00:00Z")),
        ("0001-01-01T00:00:30Z", 60_000, -62135596800000, ("0001-01-01T00:00:00Z", "0001-01-01T00:01:00Z")),
        ("9999-12-31T23:58:59Z", 60_000, 253402300680000, ("9999-12-31T23:58:00Z", "9999-12-31T23:59:00Z")),
    ],
)
def test_assign_returns_the_window_of_an_event(
    timestamp: Any, size: Any, start: int, bounds: tuple[str, str], node: Node
):
    assert replies(node, assign(1, timestamp, size, msg_id=7)) == [
        {
            "type": "assigned",
            "in_reply_to": 7,
            "window_id": f"window-{start}",
            "window_start": bounds[0],
            "window_end": bounds[1],
        }
    ]


def test_assign_accepts_several_events_of_one_window(node: Node):
    reply, closed = replies(node, {**assign(), "events": [event("a"), event("b")]}, close())

    assert reply["window_id"] == f"window-{AT_TEN}"
    assert closed["events"] == ["a", "b"]


@pytest.mark.parametrize("events", [[], [event(), event(2, "2024-01-15T10:01:00Z")]], ids=["none", "of two windows"])
def test_assign_refuses_no_events_and_events_of_two_windows(events: Any, node: Node):
    reply, listed = replies(node, {**assign(), "events": events}, LIST)

    assert reply["code"] == "bad_events"
    assert listed["windows"] == []


# process_window


def test_process_window_returns_windows_by_start_and_events_in_order_of_arrival(node: Node):
    later, before = event("c", "2024-01-15T10:01:00Z"), event("d", "2024-01-15T09:59:59Z")

    (reply,) = replies(node, process(event("b"), later, event("a"), before))

    assert reply["windows"] == [
        {"window_id": f"window-{AT_TEN - MINUTE}", "count": 1, "events": ["d"]},
        {"window_id": f"window-{AT_TEN}", "count": 2, "events": ["b", "a"]},
        {"window_id": f"window-{AT_TEN + MINUTE}", "count": 1, "events": ["c"]},
    ]


def test_process_window_returns_events_of_its_message_and_close_returns_all_events(node: Node):
    first, second, third, closed = replies(node, assign(1), process(event(2), event(3)), process(event(4)), close())

    assert first["type"] == "assigned"
    assert [second["windows"][0]["events"], third["windows"][0]["events"]] == [[2, 3], [4]]
    assert (closed["count"], closed["events"]) == (4, [1, 2, 3, 4])


def test_process_window_without_events_returns_no_windows(ask: Ask):
    assert ask(**process()) == {"type": "window_result", "in_reply_to": None, "windows": []}


def test_an_event_that_is_sent_twice_counts_twice(node: Node):
    assert replies(node, process(event(1), event(1)), assign(1), close())[-1]["events"] == [1, 1, 1]


# close and list


def test_close_returns_the_window_and_removes_it(node: Node):
    _, closed, again = replies(node, assign("x"), close(msg_id="m"), close(msg_id="n"))

    assert closed == {
        "type": "closed",
        "in_reply_to": "m",
        "window_id": f"window-{AT_TEN}",
        "window_start": "2024-01-15T10:00:00Z",
        "window_end": "2024-01-15T10:01:00Z",
        "count": 1,
        "events": ["x"],
    }
    assert (again["type"], again["in_reply_to"], again["code"]) == ("error", "n", "unknown_window")
    assert replies(node, LIST)[0]["windows"] == []


def test_an_event_after_a_close_opens_the_window_again(node: Node):
    closed = replies(node, assign(1), close(), assign(2), close())

    assert [reply.get("events") for reply in closed] == [None, [1], None, [2]]


def test_close_needs_the_size_if_two_windows_have_the_same_id(node: Node):
    replies(node, assign("minute"), assign("second", size=1000))

    (unclear,) = replies(node, close())
    second, closed, minute = replies(node, close(window_size_ms=1000), close(window_size_ms=1000), close())

    assert unclear["code"] == "ambiguous_window"
    assert "1000, 60000" in unclear["text"]
    assert (second["events"], second["window_end"]) == (["second"], "2024-01-15T10:00:01Z")
    assert closed["code"] == "unknown_window"
    assert minute["events"] == ["minute"]


@pytest.mark.parametrize("window_id", ["window-5", "window--0", "window-007", "window-", "window", "", "window-1e3"])
def test_closing_a_window_that_is_not_open_is_an_error(window_id: str, ask: Ask):
    assert ask("close", window_id=window_id)["code"] in ("unknown_window", "bad_window_id")


@pytest.mark.parametrize("window_id", ["window-00", "window--0", "window-0 ", "0"])
def test_an_id_of_a_window_in_another_form_is_an_error(window_id: str, node: Node):
    _, error, closed = replies(node, assign(1, 0), {"type": "close", "window_id": window_id}, close(0))

    assert (error["code"], closed["type"]) == ("bad_window_id", "closed")


def test_list_returns_open_windows_by_start_and_size(node: Node):
    replies(node, assign(1), assign(2), assign(3, size=1000), process(event(4, "1969-12-31T23:59:30Z")))

    _, _, listed = replies(node, assign(5), close(window_size_ms=1000), {**LIST, "msg_id": 9})

    assert listed == {
        "type": "windows",
        "in_reply_to": 9,
        "windows": [
            {
                "window_id": "window--60000",
                "window_start": "1969-12-31T23:59:00Z",
                "window_end": "1970-01-01T00:00:00Z",
                "window_size_ms": 60000,
                "count": 1,
            },
            {
                "window_id": f"window-{AT_TEN}",
                "window_start": "2024-01-15T10:00:00Z",
                "window_end": "2024-01-15T10:01:00Z",
                "window_size_ms": 60000,
                "count": 3,
            },
        ],
    }


def test_replies_do_not_depend_on_which_messages_are_sent_together(node: Node):
    random_ = random.Random(4)
    messages = [some_message(random_) for _ in range(400)]
    alone = Node(LocalRunner("alone", MessageWindows()))

    assert replies(node, *messages) == [replies(alone, message)[0] for message in messages]


def test_windows_have_the_events_of_a_simple_computation(node: Node):
    random_ = random.Random(5)
    expected: dict[tuple[int, int], list[int]] = {}
    messages = []
    for number in range(3000):
        millis, size = random_.randrange(-(10**7), 10**7), random_.choice([1000, 60_000, 7])
        messages.append(assign(number, millis, size))
        expected.setdefault((millis // size * size, size), []).append(number)

    replies(node, *messages[:1000])
    replies(node, *messages[1000:])
    closed = replies(node, *(close(start, window_size_ms=size) for start, size in expected))

    assert [reply["events"] for reply in closed] == list(expected.values())


def test_the_handler_of_the_window_node_works_in_a_test_run():
    ports = ("added", "closed", "refused", "listed")
    job = Job("windows", MessageWindows(), {"in": MemorySource()}, {port: MemorySink() for port in ports})
    run = TestRun(job)

    run.add_record([(0, Assign(1000, {0: ["a"]})), (1, Assign(1000, {0: ["b"]}))]).end_batch()
    run.restart().add_record([(0, Close(0, None))])

    result = run.run()
    assert result.records("added") == [Added(0, 1000, [0, 1], ["a", "b"])]
    assert result.records("closed") == [Closed(0, 0, 1000, ["a", "b"])]
    assert result.keys() == []


def test_messages_are_combined_into_events_up_to_a_close():
    add = Assign(1, {0: ["a"]})

    keyed = MessageWindows().key_event([(0, add), (1, Close(0, None)), (2, add), (3, add)])

    assert [event.value for event in keyed] == [
        ["add", 1, [0], ["a"]],
        ["close", 1, None],
        ["add", 1, [2, 3], ["a", "a"]],
    ]


# envelopes


def test_a_reply_is_addressed_to_the_sender_of_the_message(node: Node):
    (reply,) = replies(node, {"src": "c1", "dest": "n1", "body": {**LIST, "msg_id": 3}})

    assert reply == {"src": "n1", "dest": "c1", "body": {"type": "windows", "in_reply_to": 3, "windows": []}}


@pytest.mark.parametrize("msg_id", [0, -1, 2**64 - 1, "a", 1.5, None, False, [1], {"a": "b"}])
def test_a_reply_has_the_msg_id_of_its_message_for_any_value(msg_id: Any, ask: Ask):
    assert ask("list", msg_id=msg_id)["in_reply_to"] == msg_id
    assert ask("close", msg_id=msg_id)["in_reply_to"] == msg_id


def test_the_reply_to_a_message_without_a_msg_id_has_null(ask: Ask):
    assert ask("list") == {"type": "windows", "in_reply_to": None, "windows": []}


@pytest.mark.parametrize("body", ["[]", "null", "1", '"list"'])
def test_the_reply_to_an_envelope_with_an_invalid_body_is_an_envelope(body: str, node: Node):
    (reply,) = replies(node, f'{{"src": "c", "dest": "n", "body": {body}}}'.encode())

    assert (reply["src"], reply["dest"], reply["body"]["code"]) == ("n", "c", "bad_message")


def test_a_reply_leaves_out_a_msg_id_that_is_nested_too_deeply(node: Node):
    deep = b"[" * 500 + b"]" * 500

    (reply,) = replies(node, b'{"src": "c", "body": {"type": "list", "msg_id": %b}}' % deep)

    assert reply == {"src": None, "dest": "c", "body": {"type": "windows", "in_reply_to": None, "windows": []}}


@pytest.mark.parametrize("value", [NAN, -INFINITY, HALF, HUGE, {"a": [HALF]}, {HALF: 1}], ids=lambda it: ascii(it)[:20])
def test_a_reply_leaves_out_values_that_json_in_utf8_cannot_represent(value: Any, node: Node):
    (reply,) = replies(node, {"src": value, "dest": "n", "body": {**LIST, "msg_id": value}})
    (bare,) = replies(node, close(msg_id=value))

    assert reply == {"src": "n", "dest": None, "body": {"type": "windows", "in_reply_to": None, "windows": []}}
    assert bare["in_reply_to"] is None


@pytest.mark.parametrize("value", [NAN, INFINITY, HALF, HUGE], ids=lambda it: ascii(it)[:20])
def test_an_unknown_field_can_have_values_that_only_pythons_json_accepts(value: Any, node: Node):
    first = assign(2**64 - 1, unread=value, msg_id=-(2**63))
    assigned, closed = replies(node, {"src": "c", "dest": "n", "body": first}, close())

    assert (assigned["dest"], assigned["body"]["type"], assigned["body"]["in_reply_to"]) == ("c", "assigned", -(2**63))
    assert closed["events"] == [2**64 - 1]


# errors

NO_JSON = [b"", b" ", b"\r", b"x", b"{", b'{"type": "list"', b"{'type': 'list'}", b'{"type": nan}', b"\xff", b"\x00"]
NO_JSON += [
    b'{"type": NaN',
    b'{"type": "\xc3("}',
    b'{"type": "\xed\xa0\x80"}',
    b'{"type": "\\ud800", "msg_id": 1}\xff',
    b"[" * 100_000,
    b'{"a":' * 100_000,
    b"\xef\xbb\xbf{}",
    '{"type": "list"}'.encode("utf-16"),
]
MISTAKES: list[tuple[Any, str]] = [
    *((line, "malformed_json") for line in NO_JSON),
    *((line, "bad_message") for line in (b"[]", b"1", b"null", b'"list"', b"true", b"NaN", b"1" * 5000)),
    ({}, "missing_field"),
    ({"type": None}, "missing_field"),
    *(({"type": kind}, "unknown_type") for kind in ("open", "", "LIST", 1, [], {}, True, NAN, HALF)),
    *(({**assign(), field: None}, "missing_field") for field in ("events", "window_size_ms")),
    *(({**assign(), "events": [{**event(), field: None}]}, "missing_field") for field in ("id", "timestamp")),
    ({"type": "close"}, "missing_field"),
    *((assign(size=size), "bad_window_size") for size in
      (0, -1, -60000, "60000", True, False, 0.5, 1.5, [], {}, -0.0, NAN, INFINITY, -INFINITY, HUGE, HALF)),
    *((b'{"type": "process_window", "events": [], "window_size_ms": %b}' % size, "bad_window_size") for size in
      (b"1e30", b"100000000000000000000000", b"-9223372036854775809", b"9223372036854775808.0")),
    *((assign(size=size), "window_out_of_range") for size in (2**63, 2**64 - 1, 10**15)),
    *(({**assign(), "events": events}, "bad_events") for events in ("x", 1, {}, True, [1], [None], [[]], ["a"])),
    *((assign(id), "bad_events") for id in (1.5, True, [], {}, 10**30, HUGE, NAN, HALF, f"é{HALF}")),
    *((assign(1, timestamp), "bad_timestamp") for timestamp in
      ("", "x", "10:00", "2024-01-15", "2024-01-15T10:00:00", "2024-13-01T00:00:00Z", "2024-01-15T10:00:60Z",
       "2024-02-30T00:00:00Z", "10000-01-01T00:00:00Z", "2024-01-15T10:00:00+25:00", "x" * 10_000, True, 1.5, [], {},
       10**15, -(10**15), 2**63, 1e300, HUGE, NAN, -INFINITY, HALF)),
    (assign(1, "9999-12-31T23:59:30Z"), "window_out_of_range"),
    (assign(1, "0001-01-01T00:00:00+01:00"), "window_out_of_range"),
    (assign(1, "0001-01-01T00:00:30Z", 7 * 24 * 60 * MINUTE), "window_out_of_range"),
    *(({"type": "close", "window_id": window_id}, "bad_window_id") for window_id in
      (1, True, [], {}, 1.5, "x", NAN, f"window-{HALF}")),
    (close(), "unknown_window"),
    (close(10**15), "bad_window_id"),
    *((close(window_size_ms=size), "bad_window_size") for size in (0, -1, "x", True, 1.5, NAN, HUGE)),
]  # fmt: skip


@pytest.mark.parametrize("midnight", ["2024-01-14T24:00:00Z", "2024-01-15t00:00:00z"])
def test_midnight_can_be_hour_24_and_letters_of_times_lower_case(midnight: str, node: Node):
    [reply] = replies(node, assign(1, midnight))
    assert reply == replies(node, assign(1, "2024-01-15T00:00:00Z"))[0]


@pytest.mark.parametrize(("message", "code"), MISTAKES)
def test_the_reply_to_an_invalid_message_has_an_error_code_and_changes_no_window(message: Any, code: str, node: Node):
    if isinstance(message, dict):
        message = {**message, "msg_id": 5}

    error, listed = replies(node, message, LIST)

    assert (error["type"], error["code"]) == ("error", code)
    assert error["in_reply_to"] == (5 if isinstance(message, dict) else None)
    assert 10 < len(error["text"]) < 300
    assert listed["windows"] == []
    assert f"`{code}`" in PAGE


def test_a_message_with_one_invalid_event_changes_no_window(node: Node):
    error, listed = replies(node, process(event(1), event(2), event(3, "soon")), LIST)

    assert error["code"] == "bad_timestamp"
    assert listed["windows"] == []


def test_messages_before_and_after_an_invalid_message_are_processed(node: Node):
    answered = replies(node, assign(1), b"x", assign(2), assign(size=0), close())

    assert [reply["type"] for reply in answered] == ["assigned", "error", "assigned", "error", "closed"]
    assert answered[-1]["events"] == [1, 2]


def test_a_long_line_is_processed_and_a_line_that_is_too_long_is_an_error(node: Node):
    ids = [f"{number:07}" for number in range(100_000)]

    (result, closed) = replies(node, process(*map(event, ids)), close())
    (error,) = replies(node, b'"' + b"x" * MOST_BYTES + b'"')

    assert result["windows"][0]["events"] == closed["events"] == ids
    assert error["code"] == "too_long"


def test_an_internal_error_affects_only_its_message(caplog: pytest.LogCaptureFixture):
    class Failing(MessageWindows):
        def _add(self, subject: Any, size: int, requests: list[int], events: list[Any]) -> None:
            super()._add(subject, size, requests, events)
            if "fail" in events:
                raise RuntimeError("broken")

    node = Node(LocalRunner("window-node", Failing()))
    others = [assign(number, number * MINUTE) for number in range(30)]
    answered = replies(node, *others, assign("fail", 15 * MINUTE, msg_id=2), *others)
    closed = replies(node, *(close(number * MINUTE) for number in range(30)))

    assert [reply["type"] for reply in answered] == [*["assigned"] * 30, "error", *["assigned"] * 30]
    assert (answered[30]["code"], answered[30]["in_reply_to"]) == ("internal", 2)
    assert [reply["events"] for reply in closed] == [[number, number] for number in range(30)]
    assert "broken" in caplog.text
    assert "`internal`" in PAGE


def test_a_message_error_can_be_pickled():
    error = pickle.loads(pickle.dumps(MessageError("code", "text")))

    assert (error.code, error.text) == ("code", "text")


# fuzz


def some_message(random_: random.Random) -> Any:
    """Return a message that is mostly valid."""
    size = random_.choice([1000, 60_000, 60_000])
    start = random_.randrange(-3, 3) * 60_000
    events = [event(random_.randrange(100), random_.randrange(-3 * 60_000, 3 * 60_000)) for _ in range(3)]
    return random_.choice(
        [
            assign(random_.randrange(100), events[0]["timestamp"], size, msg_id=random_.randrange(100)),
            assign("a", from_millis(events[0]["timestamp"]).isoformat(), size),
            {"src": "c", "dest": "n", "body": process(*events[: random_.randrange(4)], size=size, msg_id="p")},
            close(start, msg_id=1),
            close(start, window_size_ms=size),
            LIST if random_.random() < 0.03 else close(start, msg_id=[1]),
        ]
    )


STRANGE = [None, True, 0, -1, 1.5, 2**63, -(2**63), 2**64, 1e308, "", "x", "\0", "é", "1e9", [], [[]], {}, TEN, "close"]
STRANGE += [NAN, INFINITY, -INFINITY, HUGE, HALF]


def some_line(random_: random.Random) -> bytes:
    """Return a line that is valid, or has changed values or bytes."""
    message = copy.deepcopy(some_message(random_))
    for _ in range(random_.choice([0, 0, 1, 2])):
        _change_value(message, random_)
    line = json.dumps(message).encode()
    how = random_.randrange(8)
    if how == 0:
        return random_.randbytes(random_.randrange(60)).replace(b"\n", b"")
    if how == 1:
        return line[: random_.randrange(len(line))]
    if how == 2:
        at = random_.randrange(len(line))
        return line[:at] + random_.randbytes(random_.randrange(3)).replace(b"\n", b"") + line[at + 1 :]
    return line


def _change_value(message: Any, random_: random.Random) -> None:
    """Change or delete a random value."""
    place: Any = message
    while place:
        key = random_.choice(list(place)) if isinstance(place, dict) else random_.randrange(len(place))
        if isinstance(place[key], dict | list) and place[key] and random_.random() < 0.7:
            place = place[key]
            continue
        if isinstance(place, dict) and random_.random() < 0.2:
            del place[key]
        else:
            place[key] = copy.deepcopy(random_.choice(STRANGE))
        return


def msg_id_of(line: bytes) -> Any:
    """Return the `msg_id` that Python's json reads in a line, if it is a text or a number that a reply can have."""
    try:
        message = json.loads(line.decode())
        body = message.get("body", message)
        msg_id = body.get("msg_id")
        str(msg_id).encode()
    except (ValueError, AttributeError):  # no JSON, no object, or no UTF-8
        return None
    return msg_id if isinstance(msg_id, str) or (isinstance(msg_id, int) and -(2**63) <= msg_id < 2**64) else None


CODES = {code for _, code in MISTAKES} | {"ambiguous_window"}


def test_each_of_many_random_lines_gets_a_reply_with_its_msg_id(node: Node):
    random_ = random.Random(7)
    kinds: dict[str, int] = {}
    identified = 0
    left = 20_000
    while left:
        lines = [some_line(random_) for _ in range(min(left, random_.choice([1, 10, 1000, 5000])))]
        left -= len(lines)
        for line, reply in zip(lines, replies(node, *lines), strict=True):
            body = reply.get("body", reply)
            kind = f"error {body['code']}" if body["type"] == "error" else body["type"]
            kinds[kind] = kinds.get(kind, 0) + 1
            msg_id = msg_id_of(line)
            assert body["in_reply_to"] == msg_id or msg_id is None, line
            identified += msg_id is not None

    assert {"assigned", "window_result", "closed", "windows"} <= kinds.keys()
    assert {kind.removeprefix("error ") for kind in kinds if kind.startswith("error ")} <= CODES
    assert sum(kinds.values()) == 20_000
    assert identified > 4_000
    assert min(kinds[kind] for kind in ("assigned", "window_result", "closed", "windows")) > 20


# pipes


def _accept_ctrl_c() -> None:
    """Accept Ctrl-C: background jobs of shells ignore it, and the parent process can have blocked it."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())


@pytest.fixture
def started() -> Iterator[subprocess.Popen[bytes]]:
    pipe = subprocess.PIPE
    with subprocess.Popen(
        COMMAND,
        stdin=pipe,
        stdout=pipe,
        stderr=pipe,
        bufsize=0,
        preexec_fn=_accept_ctrl_c,
    ) as process:
        yield process
        process.kill()


def send(process: subprocess.Popen[bytes], text: bytes) -> None:
    assert process.stdin is not None
    process.stdin.write(text)


def receive(process: subprocess.Popen[bytes]) -> Any:
    """Return the next reply, which must arrive soon."""
    assert process.stdout is not None
    with selectors.DefaultSelector() as selector:
        selector.register(process.stdout, selectors.EVENT_READ)
        assert selector.select(timeout=20)
    return json.loads(process.stdout.readline())


def line(message: Any) -> bytes:
    return json.dumps(message).encode() + b"\n"


def test_the_window_node_replies_at_once_while_its_input_stays_open(started: subprocess.Popen[bytes]):
    for number in range(5):
        send(started, line(assign(number, msg_id=number)))
        assert receive(started)["in_reply_to"] == number
    send(started, line(close()) + line(LIST) + b'{"type": "li')
    assert receive(started)["events"] == [0, 1, 2, 3, 4]
    assert receive(started)["windows"] == []
    send(started, b'st", "msg_id": 9}')
    assert started.stdin is not None
    started.stdin.close()

    assert receive(started)["in_reply_to"] == 9  # the last line needs no newline
    assert started.wait(timeout=20) == 0
    assert started.stderr is not None
    assert started.stderr.read() == b""


def test_the_window_node_ends_without_an_error_message_if_its_output_is_closed(started: subprocess.Popen[bytes]):
    send(started, line(LIST))
    receive(started)
    assert started.stdout is not None
    assert started.stderr is not None
    started.stdout.close()
    send(started, line(LIST))

    assert started.wait(timeout=20) == 1
    assert started.stderr.read() == b""


def test_the_window_node_ends_without_an_error_message_at_ctrl_c(started: subprocess.Popen[bytes]):
    send(started, line(LIST))
    receive(started)
    started.send_signal(signal.SIGINT)

    assert started.wait(timeout=20) == 130
    assert started.stderr is not None
    assert started.stderr.read() == b""


def test_the_window_node_replies_to_messages_of_a_pipe_in_their_order():
    messages = b"".join(line(assign(number, AT_TEN + number * 7, msg_id=number)) for number in range(30_000))

    done = subprocess.run(COMMAND, input=messages + b"x", capture_output=True, check=True, timeout=60)

    answered = [json.loads(reply) for reply in done.stdout.splitlines()]
    assert [reply["in_reply_to"] for reply in answered] == [*range(30_000), None]
    assert all(
        reply["window_id"] == f"window-{(AT_TEN + number * 7) // MINUTE * MINUTE}"
        for number, reply in enumerate(answered[:-1])
    )


def test_many_empty_lines_take_little_memory():
    read, write = os.pipe()
    limit = partial(resource.setrlimit, resource.RLIMIT_AS, (2**30, 2**30))

    with subprocess.Popen(COMMAND, stdin=read, stdout=subprocess.DEVNULL, preexec_fn=limit) as node:
        os.close(read)
        with os.fdopen(write, "wb") as lines:
            lines.write(b"\n" * 200_000)

    assert node.returncode == 0


def test_the_window_node_prints_nothing_for_an_empty_input():
    done = subprocess.run(COMMAND, input=b"", capture_output=True, check=True, timeout=60)

    assert (done.stdout, done.stderr) == (b"", b"")


def test_lines_of_a_pipe_do_not_depend_on_the_size_of_reads():
    text = b"".join(b"%d\n" % (number**9) for number in range(300)) + b"\n\nend"
    for most in (1, 2, 7, 1000):
        assert [each for lines in read_lines(text, most) for each in lines] == text.split(b"\n")


def test_only_the_beginning_of_a_line_that_is_too_long_is_stored():
    text = b"a" * 10 + b"\n" + b"b" * 100 + b"\nc"
    (first, second, third) = (each for lines in read_lines(text, 4, longest=10) for each in lines)

    assert (first, third) == (b"a" * 10, b"c")
    assert 10 < len(second) <= 14


def read_lines(text: bytes, most: int, **settings: int) -> Iterator[list[bytes]]:
    """Yield the lines of a text that is read a few bytes at a time, as `arriving` with these settings does."""
    read, write = os.pipe()
    os.set_blocking(write, False)
    try:
        assert os.write(write, text) == len(text)
        os.close(write)
        yield from _pipe.arriving(read, read_size=most, **settings)
    finally:
        os.close(read)


def test_the_help_of_the_window_node_has_an_example():
    shown = CliRunner().invoke(app, ["window-node", "--help"]).output

    assert "amadou window-node" in shown
    assert '"assign"' in shown


def test_the_example_on_the_page_of_the_window_node_runs():
    block = next(block for block in PAGE.split("```")[1::2] if block.startswith("console"))
    command, _, expected = block.partition("\n")[2].partition("amadou window-node\n")
    script = f'{command.removeprefix("$ ")}"{COMMAND[0]}" window-node'

    done = subprocess.run(["bash", "-c", script], capture_output=True, text=True, check=True, timeout=60)

    assert done.stdout == expected


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full, which Linux has")
def test_the_window_node_prints_an_error_if_its_output_cannot_be_written():
    with Path("/dev/full").open("wb") as full:
        done = subprocess.run(COMMAND, input=b"{}\n", stdout=full, stderr=subprocess.PIPE, timeout=60, check=False)
    assert done.returncode == 1
    assert done.stderr == b"window-node: standard input or output cannot be used: No space left on device\n"
