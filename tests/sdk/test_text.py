"""Texts for people, of values that may be anything."""

import html
import json
import time
from collections.abc import Callable
from typing import Any
from urllib.parse import quote, quote_plus

import orjson
import pytest

from amadou import Secret
from amadou.text import redacted, shortened, shown_value


class Failing:
    def __repr__(self) -> str:
        raise RuntimeError("no")


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (1.5, "1.5"),
        ("1234567", "'1234567'"),
        ("12345678", "'12345678…"),
        ("\ud800", "'\\ud800'"),
        (Failing(), "<Failing,…"),
    ],
)
def test_the_text_of_a_long_value_is_cut_at_the_limit(value: Any, shown: str) -> None:
    assert shown_value(value, 9) == shown


def test_the_text_of_a_value_is_complete_without_a_limit() -> None:
    assert shown_value("x" * 5000) == repr("x" * 5000)
    assert shown_value(Failing()) == "<Failing, whose repr failed: RuntimeError>"


def test_a_secret_is_hidden_before_the_text_of_a_value_is_cut() -> None:
    Secret("a-long-passphrase")
    assert shortened("with a-long-passphrase", 11) == "with ***"
    assert shown_value("with a-long-passphrase", 11) == "'with ***'"
    assert shortened("with a-long-passphrase and more", 11) == "with *** an…"


SECRETS = [
    *(
        'pä"ss',
        "pä\\ss",
        "p\\\\ss\\",
        'p"ss',
        "it's\"x",
        "it's",
        "a\nbcd\t",
        "\0\x07\x1f\x7f",
        "\u2028abc",
        '\\"a\\\n\\ü\\\\"',
        '{\\"a\\": \\"b\\"}',
        "\U0001f600abc",
    ),
    *("p@ss/w:rd", "100% + more", "<&amp;>", "-_.~", "plain-1"),
]
WRITTEN: dict[str, Callable[[str], str]] = {
    "as such": str,
    "repr": repr,
    "ascii": ascii,
    "with both quotes": lambda text: repr(f"'\"{text}"),
    "bytes": lambda text: repr(text.encode()),
    "JSON in ASCII": json.dumps,
    "JSON in UTF-8": lambda text: orjson.dumps(text).decode(),
    "part of a URL": lambda text: quote(text, safe=""),
    "path": lambda text: quote(text),
    "query": lambda text: quote_plus(text),
    "percent signs in lower case": lambda text: quote(text, safe="").replace("%C3%A4", "%c3%a4"),
    "HTML": html.escape,
    "error": lambda text: repr(ValueError(text)),
    "error in an error": lambda text: repr(ValueError(repr(KeyError(text)))),
    "errors in an error in JSON": lambda text: json.dumps(repr(ValueError(repr(KeyError(repr({"a": text})))))),
    "bytes in an error": lambda text: repr(ValueError(repr(text.encode()))),
    "URL that is encoded again": lambda text: quote(quote(text, safe="")),
}


@pytest.mark.parametrize("write", WRITTEN.values(), ids=WRITTEN)
@pytest.mark.parametrize("secret", SECRETS, ids=ascii)
def test_a_secret_is_hidden_in_each_form_in_which_it_is_written(secret: str, write: Callable[[str], str]) -> None:
    Secret(secret)
    without = redacted(f"before {write(secret)} after")
    assert without.startswith("before ")
    assert without.endswith(" after")
    assert "***" in without


def test_secret_bytes_are_hidden_as_text_and_as_bytes() -> None:
    secret = b"bytes-\xffsesame"
    Secret(secret)
    assert redacted(f"{secret!r} {secret.decode('latin-1')}") == "b'***' ***"


def test_a_secret_with_a_lone_surrogate_is_hidden() -> None:
    Secret("ab\ud800c")
    assert redacted("ab\ud800c ab\\ud800c") == "*** ***"


def test_text_that_resembles_a_secret_does_not_take_long() -> None:
    Secret('{\\"a\\": \\"b\\", \\"c\\": \\"d\\", \\"e\\": \\"hunter2\\"}')
    backslashes = "\\" * 16
    text = backslashes.join(["{", '"a', '": ', '"b', '", ', '"c', '": ', '"d', '", ', '"e', '": ', '"other'])
    began = time.perf_counter()
    assert redacted(text * 50) == text * 50
    assert time.perf_counter() - began < 5


def test_other_texts_than_secrets_are_shown() -> None:
    Secret("p@ss/w:rd")
    Secret("C:\\temp")
    text = "p@ss/w and pass/w:rd, C:temp, p%41ss/w:rd, \\\\"
    assert redacted(text) == text


def test_a_secret_that_contains_another_is_hidden_as_a_whole() -> None:
    Secret("p@ss")
    Secret("p@ss/w:rd")
    assert redacted("p%40ss%2Fw%3Ard, p%40ss") == "***, ***"
