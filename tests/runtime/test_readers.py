"""What may come from somebody else is read, or ends in an amadou error: a few inputs of `scripts/qualify readers`."""

import sys
import time
from collections.abc import Callable, Sequence

import pytest
from tests.qualify.inputs import READERS
from tests.qualify.readers import Answer, answers, failure_of

from amadou.errors import LoadError

SEED, COUNT = 1, 200
pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="limits memory as Linux does")


@pytest.fixture(scope="module")
def found() -> Sequence[Answer]:
    return [*answers(SEED, range(COUNT))]


def test_damaged_and_crafted_inputs_are_read_or_end_in_an_amadou_error(found: Sequence[Answer]) -> None:
    failed = [answer for answer in found if answer.failure is not None]
    assert not failed, "\n".join(f"input {answer.number} of seed {SEED}: {answer}" for answer in failed)


def test_there_are_inputs_of_each_reader(found: Sequence[Answer]) -> None:
    assert [answer.number for answer in found] == [*range(COUNT)]
    assert {answer.reader for answer in found} == {*READERS}


def wait() -> None:
    time.sleep(5)


def lack_memory() -> None:
    try:
        raise MemoryError
    except MemoryError as error:
        raise LoadError("job", "this hides a lack of memory") from error


def stop() -> None:
    raise LoadError("job", "this is an amadou error")


@pytest.mark.parametrize(
    ("make", "kind"),
    [([].pop, "IndexError"), (sys.exit, "SystemExit"), (wait, "HangError"), (lack_memory, "MemoryError")],
)
def test_what_is_no_amadou_error_is_a_failure(make: Callable[[], object], kind: str) -> None:
    failure = failure_of(make, seconds=0.05)
    assert failure is not None
    assert failure.kind == kind


@pytest.mark.parametrize("make", [stop, int])
def test_an_amadou_error_is_no_failure(make: Callable[[], object]) -> None:
    assert failure_of(make) is None
