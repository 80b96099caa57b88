import pickle
import traceback
from datetime import timedelta
from typing import Any

import pytest

from amadou import Param, Secret
from amadou.errors import ParamError, SinkError


def test_what_is_given_wins_over_the_environment_and_that_over_the_default(monkeypatch: pytest.MonkeyPatch) -> None:
    param = Param("AMADOU_TEST_LIMIT", default=1, type=int)
    assert param.value({}) == 1
    monkeypatch.setenv("AMADOU_TEST_LIMIT", "2")
    assert param.value({}) == 2
    assert param.value({"AMADOU_TEST_LIMIT": "3"}) == 3


@pytest.mark.parametrize(
    ("type_", "text", "value"),
    [
        (str, "", ""),
        (int, " 5 ", 5),
        (float, "1e3", 1000.0),
        (bool, "true", True),
        (bool, "No", False),
        (bool, "0", False),
        (timedelta, "1.5", timedelta(seconds=1.5)),
        (str.upper, "a", "A"),
    ],
)
def test_a_text_is_read_as_the_type(type_: Any, text: str, value: Any) -> None:
    assert Param("P", type=type_).value({"P": text}) == value


@pytest.mark.parametrize(
    ("type_", "text", "told"),
    [
        (int, "five", "'five' is not a valid int for parameter P: "),
        (bool, "maybe", "'maybe' is not a valid bool for parameter P: use true or false"),
        (timedelta, "1h", "'1h' is not a valid timedelta for parameter P: "),
        (timedelta, "1e300", "'1e300' is not a valid timedelta for parameter P: "),
    ],
)
def test_a_text_that_cannot_be_read_is_told(type_: Any, text: str, told: str) -> None:
    with pytest.raises(ParamError) as caught:
        Param("P", type=type_).value({"P": text})
    (problem,) = caught.value.problems
    assert problem.startswith(told)


def test_a_missing_parameter_says_how_to_give_it() -> None:
    with pytest.raises(ParamError, match=r"P is not set: use -p P=VALUE or environment variable P"):
        Param("P").value({})


def test_a_default_may_be_none() -> None:
    assert Param("P", default=None).value({}) is None


def test_a_secret_is_not_shown() -> None:
    secret = Param("P", secret=True).value({"P": "hunter-2-of-params"})
    assert secret.reveal() == "hunter-2-of-params"
    assert [str(secret), repr(secret), f"{secret}"] == ["***"] * 3
    assert pickle.loads(pickle.dumps(secret)) == secret != Secret("another-secret")
    error = SinkError("no login with hunter-2-of-params")
    assert [str(error), repr(error)] == ["no login with ***", "SinkError('no login with ***')"]


def test_a_secret_that_cannot_be_read_is_not_told() -> None:
    with pytest.raises(ParamError) as caught:
        Param("P", type=int, secret=True).value({"P": "no-number-of-params"})
    assert caught.value.problems == ("the value of parameter P is not a valid int",)
    assert "ValueError" not in "".join(traceback.format_exception(caught.value))


def test_the_default_of_a_secret_is_one() -> None:
    param = Param("P", default="for-development", secret=True)
    assert param.value({}) == Secret("for-development")
    assert "for-development" not in repr(param)
    assert Param("P", default=None, secret=True).value({}) is None


def test_a_secret_hides_where_another_is_part_of_it() -> None:
    Secret("short-secret")
    Secret("short-secret-and-more")
    Secret("abc")
    assert str(SinkError("short-secret-and-more, short-secret, abc")) == "***, ***, abc"
