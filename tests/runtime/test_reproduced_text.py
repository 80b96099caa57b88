"""Text from data is never code in the tests that `amadou reproduce` writes."""

import ast
import re
import sys
from datetime import datetime, timezone
from decimal import Decimal
from pathlib import Path
from typing import Any
from uuid import UUID

import attrs
import msgpack
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from amadou import Handler, Job, KeyedEvent, MemorySink, MemorySource, Secret, Subject, ValueSpec
from amadou._connectors import secret as _secret
from amadou.engine import StateTable, pack, unpack
from amadou.errors import LoadError, StateDecodeError
from amadou.plugins import DeadLetterReport
from amadou_runtime import TestRun
from amadou_runtime.core.samples import Samples
from amadou_runtime.runs.reproduce import test_of_key as source_for_key
from amadou_runtime.runs.reproduce import test_of_report as source_for_report
from amadou_runtime.runs.source_code import SourceCode, comments
from amadou_runtime.savepoint.block import Block

NOON = datetime(2025, 1, 1, 12, tzinfo=timezone.utc)
CODE = '"""+str(sys.modules.setdefault("injected", sys))+"""'
STATEMENT = "import sys; sys.modules['injected'] = sys"
ODD = [
    CODE,
    f"\n{CODE[3:-3]}\n",
    f"\r{CODE[3:-3]}",
    "a\\N{x",
    "²",
    "",
    "'",
    "\x00",
    "\x0c",
    "\u2028x",
    f"#coding: raw_unicode_escape \\u000a{STATEMENT}\\u000a#",
    f"#coding: unicode_escape \\n{STATEMENT}\\n#",
    "#coding: utf-7",
    "vim: set fileencoding=utf-7",
    "\\",
    "nan",
    "#",
]


class Words(Handler):
    last = ValueSpec(str, default="")

    def key_event(self, record: tuple[str, str]) -> KeyedEvent[str]:
        return KeyedEvent(record[0], NOON, record[1])

    def on_event(self, subject: Subject, event: KeyedEvent[str]) -> None:
        self.last.state_for(subject).value = event.value
        raise ValueError(event.value)


job = Job("words", Words(), {"in": MemorySource()}, {"dead_letters": MemorySink()}, on_error="dead_letter")


def shape(source: str) -> str:
    """Return what a test does, without its texts and its name."""
    tree = ast.parse(source.encode())
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            node.value = ""
        if isinstance(node, ast.FunctionDef):
            node.name = "test"
    return ast.dump(tree)


def for_key(key: str, name: str, tag: str) -> str:
    table = StateTable({key: pack(name)})
    block = Block(0, 1, 1, {"last": table, f"not declared {name}": table}, ([key], [5], [tag or "tag"]))
    origin = f"--key {key} state job.py"
    return source_for_key(key, [block], job, "", "job.py:job", {}, Path("test_key.py"), origin, None)


def for_letter(key: str, text: str) -> str:
    result = TestRun(job).add_record((key, text)).run()
    samples = Samples()
    samples.add_letter(result.dead_letters[0])
    return source_for_report(samples.dead_letters[0], job, {})


def texts() -> Any:
    return st.sampled_from(ODD) | st.text(st.characters(exclude_categories=["Cs"]))


@settings(max_examples=100)
@given(texts(), texts(), texts())
@example(CODE, CODE, CODE)
def test_a_test_with_the_state_of_a_key_is_the_same_for_any_text(key: str, name: str, tag: str) -> None:
    assert shape(for_key(key, name, tag)) == shape(for_key("key", "name", "tag"))


@settings(max_examples=100)
@given(texts(), texts())
@example(CODE, CODE)
def test_a_test_from_a_dead_letter_is_the_same_for_any_text(key: str, text: str) -> None:
    assert shape(for_letter(key, text)) == shape(for_letter("key", "text"))


@pytest.mark.parametrize("text", ODD)
def test_a_test_with_odd_text_runs_nothing_else(text: str) -> None:
    for source in (for_key(text, text, text), for_letter(text, text)):
        names: dict[str, Any] = {"__name__": "reproduced", "__file__": __file__}
        of_module = source.replace("from job import job", f"from {__name__} import job")
        exec(compile(of_module.encode(), "test.py", "exec"), names)
        assert [name for name in names if name.startswith("test_")]
    assert "injected" not in sys.modules


SECRETS = ["test", "2025", "None", "datetime", "KeyedEvent", "sesame'", "'sesame"]


@pytest.mark.parametrize("secret", SECRETS)
def test_hiding_a_secret_leaves_the_code_of_a_test_as_it_is(secret: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_secret, "_revealing", set())
    code = "+__import__('sys').modules.setdefault('injected', 1))#"
    expected = shape(for_letter("key", code))
    Secret(secret)
    assert shape(for_letter(secret.strip("'"), code)) == expected
    source = for_letter(f"my {secret}", f"{secret} and {secret}")
    assert "key='my ***'" in source
    assert "value='*** and ***'" in source


def test_secrets_in_values_of_all_types_are_hidden() -> None:
    number = Decimal("20250101.5")
    values = ["a sesame", b"\xffsesame", 1234567, {"sesame": [number]}, UUID(int=7), 1, True, None, NOON]
    source = SourceCode(lambda text: re.sub("sesame|1234567|20250101|0007|True|None", "***", text))
    shown = ast.unparse(ast.parse(source.of(values)))
    texts = "['a ***', b'\\xff***', '***', {'***': ['***.5']}, '00000000-0000-0000-0000-00000000***', 1, True, None, "
    assert shown.startswith(texts)


@pytest.mark.parametrize("end", ["\n", "\r\n", "\u2028"])
def test_the_heading_has_one_line_so_that_it_cannot_name_requirements(end: str) -> None:
    text = end.join(["", "# /// script", "/// script", 'dependencies = ["evil"]', "///", ""])
    lines = for_key(text, text, "").splitlines()
    assert sum(line.startswith("#") for line in lines) == 2


def crafted(**parts: Any) -> DeadLetterReport:
    """Return a dead letter some of whose parts are as an attacker writes them."""
    samples = Samples()
    samples.add_letter(TestRun(job).add_record(("k", "text")).run().dead_letters[0])
    report = samples.dead_letters[0]
    assert report.packed is not None
    return attrs.evolve(report, packed=pack({**unpack(report.packed), **parts}))


ODD_PARTS = [b"tag", 5, 1.5, None, True, ["tag"], {"tag": 1}, NOON, KeyedEvent("k", NOON, CODE)]


@pytest.mark.parametrize("odd", ODD_PARTS, ids=repr)
@pytest.mark.parametrize(
    "place",
    [
        lambda odd: {"timers": [[5, odd]]},
        lambda odd: {"timers": [[[odd], "tag"]]},
        lambda odd: {"state": {"last": [odd]}},
        lambda odd: {"next_timers": {"last": [odd]}},
    ],
    ids=["tag", "time", "state", "next timer"],
)
def test_a_dead_letter_with_objects_in_other_places_is_refused(odd: Any, place: Any) -> None:
    with pytest.raises(LoadError, match="the data of the dead letter cannot be read"):
        source_for_report(crafted(**place(odd)), job, {})


def test_bytes_cannot_name_the_class_of_objects_as_they_are_stored() -> None:
    code = "x:__import__('sys').modules.setdefault('injected', 1) or str"
    stored = pack(["amadou._state.encoding:StoredObject", {"packed": b"", "type": code, "encoded": {}}])
    extension = msgpack.packb(msgpack.ExtType(9, stored))
    with pytest.raises(StateDecodeError, match=r"the class amadou._state.encoding:StoredObject is not known"):
        unpack(extension)


def test_state_of_an_unknown_class_is_named_and_left_out() -> None:
    stored = pack(["nowhere:Missing", {}])
    table = StateTable({"k": msgpack.packb(msgpack.ExtType(9, stored))})
    block = Block(0, 1, 1, {"last": table}, ([], [], []))
    source = source_for_key("k", [block], job, "", "job.py:job", {}, Path("test_key.py"), "", None)
    assert "# the state of 'last' cannot be read, so this test begins without it: " in source
    assert "set_state" not in source


def test_what_has_no_expression_is_written_as_text() -> None:
    class Odd:
        def __repr__(self) -> str:
            return "__import__('os')"

    assert ast.literal_eval(SourceCode().of([Odd(), 1, "a"])) == ["__import__('os')", 1, "a"]


def test_comments_have_each_line_of_text() -> None:
    assert comments("one\ntwo\x00\r\nnaïve\u2028x") == ["# one", "# two\\x00", "# naïve", "# x"]
