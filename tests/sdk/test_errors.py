import pickle
from collections.abc import Callable
from copy import copy, deepcopy
from datetime import datetime, timedelta, timezone
from typing import Any

import pytest

from amadou import errors
from amadou.errors import (
    AmadouError,
    CallbackError,
    CheckpointError,
    EncodeError,
    EngineDifferenceError,
    HandlerAttributeError,
    InPlaceChangeError,
    JobError,
    KeylessError,
    KeyTypeError,
    LoadError,
    LookupAnswerError,
    LookupFailedError,
    LookupKeyError,
    NaiveTimestampError,
    NotRunError,
    ParamError,
    PluginError,
    PortError,
    RecoverError,
    ReferenceKeyError,
    SavepointError,
    SpecError,
    StateDecodeError,
    TimerError,
    TimerLoopError,
    TimestampRangeError,
    TooFarAheadError,
    TooManyDeadLettersError,
    TooManyHeldError,
    UnsupportedTypeError,
    VectorizedPathError,
)

CALLBACK = {
    "handler": "MyHandler",
    "callback": "on_event",
    "error": "ValueError: no",
    "user_traceback": 'Traceback (most recent call last):\n  File "views.py", line 5, in on_event\nValueError: no\n',
    "source": "views",
    "key": ("k", 1),
    "record": "b'record'",
    "watermark": "2025-01-01T00:00:00+00:00",
}
EXAMPLES: list[AmadouError] = [
    JobError("job", ("first", "second")),
    ParamError(("first",)),
    CallbackError(**CALLBACK),  # type: ignore[arg-type]
    NaiveTimestampError(datetime(2025, 1, 1)),
    TimestampRangeError(datetime.max.replace(tzinfo=timezone.utc)),
    TimestampRangeError(datetime.min.replace(tzinfo=timezone.utc), "its minute"),
    EngineDifferenceError("trace", "nothing", "1", ", first in entry 0"),
    VectorizedPathError("window", "outputs", "nothing", "1", ", first in entry 0"),
    HandlerAttributeError("Counter", "seen", "NoneType", None),
    HandlerAttributeError("Counter", "seen", "ValueSpec", "…", "deleted"),
    KeylessError("on_dependency_down"),
    NotRunError("on_event", "generator"),
    LookupFailedError("customer", ["a", "b"], TimeoutError("no answer")),
    LookupAnswerError("the function must return a mapping"),
    ReferenceKeyError("rules", "a"),
    LookupKeyError("customer", "a"),
    LookupKeyError("customer", "a", error="KeyError: 'id'"),
    LookupKeyError("customer", "a", key_of_event="b"),
    InPlaceChangeError("counts", "self.counts.state_for(subject)['a']"),
    TooManyDeadLettersError(7, 0.5, ("7 × on_event: KeyError: 'x'",), "on_event", 7, 12),
    TooManyHeldError("activities", "weather", 11, 10),
    RecoverError("Traffic", "per_minute", "a"),
    SpecError("ttl must be above zero"),
    TooFarAheadError(datetime(2030, 1, 1, tzinfo=timezone.utc), datetime(2025, 1, 1, tzinfo=timezone.utc)),
    KeyTypeError(1.5),
    KeyTypeError((1,), "is nested more than 64 tuples deep"),
    TimerError("MyHandler"),
    TimerLoopError("k", 10_000, datetime.min, timedelta(minutes=1), datetime.max),
    UnsupportedTypeError(complex, "no"),
    UnsupportedTypeError(list[complex], "no"),
    EncodeError("five", int, "no", "spec", "k"),
    EncodeError("five", int | None),
    StateDecodeError("five", list[int], "no", "spec", "k"),
    StateDecodeError(b"", Any),
    PortError("port", ("other",)),
    LoadError("views.py:job", "no"),
    LoadError("views.py:job", "no", "Traceback"),
    PluginError("mine", "no"),
    PluginError("mine", "no", "amadou_run_failed"),
    CheckpointError("dir", "no"),
    SavepointError("dir", "no"),
    *(
        getattr(errors, name)("message")
        for name in ("AmadouError", "EventError", "EventTypeError", "CodecError", "SourceError", "SinkError")
    ),
    errors.PlatformError("message"),
    errors.ProjectError("message"),
    errors.RunError("message"),
]


def pickled(error: AmadouError) -> Any:
    return pickle.loads(pickle.dumps(error))


def public_errors() -> set[type]:
    return {kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, AmadouError)}


def test_every_error_has_an_example_here_and_a_place_in_the_tree_of_the_errors_module() -> None:
    assert {type(example) for example in EXAMPLES} == public_errors()
    assert [kind.__name__ for kind in public_errors() if kind.__name__ not in (errors.__doc__ or "")] == []


class OutsideError(AmadouError):
    """A third party's error. One parameter is keyword-only, one is no attribute, one has another name as attribute."""

    def __init__(self, place: str, *, size: int, unit: str = "m") -> None:
        self.where = place
        self.size = f"{size} {unit}"
        super().__init__(f"{place} is too small: {self.size}")


class OutsideSystemError(AmadouError, OSError):
    def __init__(self, path: str) -> None:
        self.path = path
        super().__init__(f"{path} is not there")


OTHERS = [OutsideError("the room", size=5), OutsideSystemError("a/b")]


@pytest.mark.parametrize("error", [*EXAMPLES, *OTHERS], ids=lambda error: type(error).__name__)
@pytest.mark.parametrize("way", [pickled, copy, deepcopy], ids=lambda way: way.__name__)
def test_a_pickled_or_copied_error_has_the_same_text_and_attributes(
    error: AmadouError, way: Callable[[Any], Any]
) -> None:
    again = way(error)
    assert again is not error
    assert type(again) is type(error)
    assert str(again) == str(error)
    assert again.args == error.args
    assert vars(again) == vars(error)


def test_a_callback_error_shows_the_users_traceback_then_source_key_record_and_watermark() -> None:
    assert str(CallbackError(**CALLBACK)) == (  # type: ignore[arg-type]
        "Traceback (most recent call last):\n"
        '  File "views.py", line 5, in on_event\n'
        "ValueError: no\n"
        "\n"
        "MyHandler.on_event failed: ValueError: no\n"
        "  source    views\n"
        "  key       ('k', 1)\n"
        "  record    b'record'\n"
        "  watermark 2025-01-01T00:00:00+00:00"
    )


def test_a_pickled_callback_error_shows_the_users_traceback() -> None:
    error = CallbackError(**CALLBACK)  # type: ignore[arg-type]
    error.__cause__ = ValueError("no")
    assert "views.py" in str(pickle.loads(pickle.dumps(error)))


def test_a_job_error_lists_its_problems() -> None:
    assert str(JobError("views", ("first", "second"))) == "job 'views' cannot run:\n  - first\n  - second"


def test_long_values_are_cut_in_the_messages_of_errors_and_complete_in_their_attributes() -> None:
    error = EncodeError("x" * 5000, int)
    assert len(str(error)) < 300
    assert error.value == "x" * 5000
