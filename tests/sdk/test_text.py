"""Texts for people, of values that may be anything."""

from typing import Any

import pytest

from amadou import Secret
from amadou.text import shortened, shown_value


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
