"""The errors of the runtime and of the built-in plugins."""

import pickle
from collections.abc import Iterator
from copy import copy
from datetime import datetime, timezone
from importlib import import_module
from pkgutil import walk_packages

import pytest

import amadou_plugins
import amadou_runtime
from amadou import AmadouError
from amadou_plugins.aggregates._errors import AggregateError, MissingFieldError, NotAnAggregateError, ValueKindError
from amadou_plugins.connectors.kafka.kafka_source import KafkaHeadersError, KafkaTimestampError
from amadou_plugins.dependencies._errors import DependencyError, MarkerError
from amadou_plugins.joins import JoinSourceError
from amadou_plugins.window_node import MessageError
from amadou_plugins.windows._errors import WindowEventError
from amadou_plugins.windows._windowed import RecordError
from amadou_runtime.core.key_group import RetiredNameError

TIME = datetime(2025, 1, 1, tzinfo=timezone.utc)
EXAMPLES: list[AmadouError] = [
    AggregateError("Sum()", "cannot go on"),
    DependencyError("no such dependency"),
    JoinSourceError("join", "x", ("l", "r")),
    KafkaTimestampError("views", 1, 7, None),
    KafkaHeadersError("views", 1, 7),
    MarkerError("weather", TIME, 1),
    MessageError("bad_message", "a message must be a JSON object"),
    MissingFieldError("Sum('price')", "price", "dict", ("cost",)),
    NotAnAggregateError("Count", "is a class"),
    RecordError("key", "there is none"),
    RetiredNameError("the name is retired"),
    ValueKindError("Sum()", "five", "numbers"),
    WindowEventError("window", TIME, "no"),
]


def own_errors(root: type[AmadouError] = AmadouError) -> Iterator[type[AmadouError]]:
    """Yield the error classes of the runtime and its plugins."""
    for kind in root.__subclasses__():
        if kind.__module__.startswith(("amadou_runtime.", "amadou_plugins.")):
            yield kind
        yield from own_errors(kind)


def test_every_error_class_of_the_runtime_and_the_plugins_has_an_example_here() -> None:
    for package in (amadou_runtime, amadou_plugins):
        for module in walk_packages(package.__path__, f"{package.__name__}."):
            import_module(module.name)
    assert {type(example) for example in EXAMPLES} == set(own_errors())


@pytest.mark.parametrize("error", EXAMPLES, ids=lambda error: type(error).__name__)
def test_pickled_and_copied_errors_have_the_same_text_and_attributes(error: AmadouError) -> None:
    for again in (pickle.loads(pickle.dumps(error)), copy(error)):
        assert type(again) is type(error)
        assert str(again) == str(error)
        assert vars(again) == vars(error)
