import json
import pickle
import traceback
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from amadou import Handler, Job, KeyedEvent, MemorySource, Param, Secret, Subject
from amadou.errors import ParamError, SinkError


class Holder(Handler):
    """Has a parameter as an attribute."""

    def __init__(self, setting: Any) -> None:
        self.setting = setting

    def key_event(self, record: Any) -> None:
        return None

    def on_event(self, subject: Subject, event: KeyedEvent) -> None:
        pass


def test_an_argument_overrides_the_environment_which_overrides_the_default(monkeypatch: pytest.MonkeyPatch) -> None:
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
def test_the_text_of_a_parameter_is_converted_to_its_type(type_: Any, text: str, value: Any) -> None:
    assert Param("P", type=type_).value({"P": text}) == value


@pytest.mark.parametrize(
    ("type_", "text", "reason"),
    [
        (int, "five", "'five' is not a valid int for parameter P: "),
        (bool, "maybe", "'maybe' is not a valid bool for parameter P: use true or false"),
        (timedelta, "1h", "'1h' is not a valid timedelta for parameter P: "),
        (timedelta, "1e300", "'1e300' is not a valid timedelta for parameter P: "),
    ],
)
def test_the_error_for_an_invalid_text_names_text_type_and_parameter(type_: Any, text: str, reason: str) -> None:
    with pytest.raises(ParamError) as caught:
        Param("P", type=type_).value({"P": text})
    (problem,) = caught.value.problems
    assert problem.startswith(reason)


def test_the_error_for_a_missing_parameter_says_how_to_set_it() -> None:
    with pytest.raises(ParamError, match=r"P is not set: use -p P=VALUE or environment variable P"):
        Param("P").value({})


def test_the_default_of_a_parameter_can_be_none() -> None:
    assert Param("P", default=None).value({}) is None


def test_the_repr_of_a_secret_and_messages_of_errors_hide_its_value() -> None:
    secret = Param("P", secret=True).value({"P": "hunter-2-of-params"})
    assert secret.reveal() == "hunter-2-of-params"
    assert [str(secret), repr(secret), f"{secret}"] == ["***"] * 3
    assert pickle.loads(pickle.dumps(secret)) == secret != Secret("another-secret")
    error = SinkError("no login with hunter-2-of-params")
    assert [str(error), repr(error)] == ["no login with ***", "SinkError('no login with ***')"]


def test_messages_hide_the_parts_of_a_secret_that_was_parsed() -> None:
    text = '{"port": 5432, "keys": ["first-key", ["b"]]}'
    login = Param("LOGIN", type=json.loads, secret=True).value({"LOGIN": text})
    assert login.reveal() == {"port": 5432, "keys": ["first-key", ["b"]]}
    assert str(SinkError("first-key is no key of b at 5432")) == "*** is no key of b at 5432"


def test_the_error_for_an_invalid_secret_does_not_show_its_value() -> None:
    with pytest.raises(ParamError) as caught:
        Param("P", type=int, secret=True).value({"P": "no-number-of-params"})
    assert caught.value.problems == ("the value of parameter P is not a valid int",)
    assert "ValueError" not in "".join(traceback.format_exception(caught.value))


def test_the_default_of_a_secret_parameter_is_a_secret() -> None:
    param = Param("P", default="for-development", secret=True)
    assert param.value({}) == Secret("for-development")
    assert "for-development" not in repr(param)
    assert Param("P", default=None, secret=True).value({}) is None


def test_a_secret_is_hidden_completely_if_another_secret_is_part_of_it() -> None:
    Secret("short-secret")
    Secret("short-secret-and-more")
    Secret("abc")
    assert str(SinkError("short-secret-and-more, short-secret, abc")) == "***, ***, abc"


@pytest.mark.parametrize("content", ["sesame-open", "sesame-open\n", "sesame-open\r\n"])
def test_a_secret_can_be_read_from_a_file(content: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "password").write_bytes(content.encode())
    param = Param("AMADOU_TEST_PASSWORD", secret=True)
    assert param.value({"AMADOU_TEST_PASSWORD_FILE": str(tmp_path / "password")}) == Secret("sesame-open")
    monkeypatch.setenv("AMADOU_TEST_PASSWORD_FILE", str(tmp_path / "password"))
    assert param.value({}) == Secret("sesame-open")
    monkeypatch.setenv("AMADOU_TEST_PASSWORD", "another")
    assert param.value({}) == Secret("another")
    assert param.value({"AMADOU_TEST_PASSWORD_FILE": str(tmp_path / "password")}) == Secret("sesame-open")


def test_only_one_newline_at_the_end_of_a_secrets_file_is_removed(tmp_path: Path) -> None:
    (tmp_path / "key").write_text("first\n\n")
    assert Param("KEY", secret=True).value({"KEY_FILE": str(tmp_path / "key")}).reveal() == "first\n"


def test_the_error_for_a_secrets_file_that_cannot_be_read_names_the_file_without_its_content(tmp_path: Path) -> None:
    (tmp_path / "binary").write_bytes(b"sesame\xff")
    param = Param("PASSWORD", secret=True)
    with pytest.raises(ParamError, match=r"^parameter PASSWORD: PASSWORD_FILE is '/nowhere', which .*: No such file"):
        param.value({"PASSWORD_FILE": "/nowhere"})
    with pytest.raises(ParamError) as caught:
        param.value({"PASSWORD_FILE": str(tmp_path / "binary")})
    assert str(caught.value).endswith("/binary', which cannot be read: it is not UTF-8")
    assert "sesame" not in "".join(traceback.format_exception(caught.value))


def test_the_error_for_a_missing_secret_says_that_it_can_be_in_a_file() -> None:
    with pytest.raises(ParamError, match=r"environment variable P, or P_FILE for a file with the value$"):
        Param("P", secret=True).value({})


def test_only_secrets_are_read_from_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "path").write_text("content")
    monkeypatch.setenv("AMADOU_TEST_INPUT_FILE", str(tmp_path / "path"))
    assert Param("AMADOU_TEST_INPUT", default="default").value({}) == "default"
    job = Job("job", Holder(Param("AMADOU_TEST_INPUT", default="x")), {"records": MemorySource()}, {})
    with pytest.raises(ParamError, match="has no parameter AMADOU_TEST_INPUT_FILE"):
        job.with_params({"AMADOU_TEST_INPUT_FILE": "path"})


def test_with_params_reads_the_file_of_a_secret(tmp_path: Path) -> None:
    (tmp_path / "password").write_text("sesame-open\n")
    job = Job("job", Holder(Param("PASSWORD", secret=True)), {"records": MemorySource()}, {})
    filled = job.with_params({"PASSWORD_FILE": str(tmp_path / "password")})
    assert filled.handler.setting == Secret("sesame-open")
