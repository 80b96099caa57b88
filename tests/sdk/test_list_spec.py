"""`ListState` behaves like a list, also after its items are stored and read."""

import operator
from collections.abc import MutableSequence
from datetime import datetime
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule
from tests.sdk.subjects import START, new_subject, reloaded, stored

from amadou import ListSpec, ListState, Subject
from amadou.errors import EncodeError, StateDecodeError, UnsupportedTypeError


class Handler:
    numbers = ListSpec(int)
    times = ListSpec(datetime)
    lists = ListSpec(list[int])


@pytest.fixture
def subject() -> Subject:
    return new_subject()


@pytest.fixture
def numbers(subject: Subject) -> ListState[int]:
    return Handler.numbers.state_for(subject)


def test_a_list_state_is_a_mutable_sequence(numbers: ListState[int]) -> None:
    assert isinstance(numbers, MutableSequence)
    assert (list(numbers), len(numbers), bool(numbers), numbers == []) == ([], 0, False, True)
    numbers.extend([3, 1, 2])
    assert (numbers[0], numbers[-1], numbers[1:], 1 in numbers, numbers.index(2)) == (3, 2, [1, 2], True, 2)
    assert numbers == [3, 1, 2] == list(numbers)
    assert numbers != [3, 1]
    assert (numbers.pop(), numbers.pop(0), list(reversed(numbers))) == (2, 3, [1])


def test_reading_or_removing_an_item_that_does_not_exist_raises_an_index_error(numbers: ListState[int]) -> None:
    for touch in (lambda: numbers[0], numbers.pop, lambda: operator.delitem(numbers, 0)):
        with pytest.raises(IndexError):
            touch()


def test_an_item_of_another_type_is_refused(subject: Subject, numbers: ListState[int]) -> None:
    numbers.append(1)
    changes = [
        lambda: numbers.append("2"),  # type: ignore[arg-type]
        lambda: numbers.extend([2, "3"]),  # type: ignore[list-item]
        lambda: numbers.insert(0, None),  # type: ignore[arg-type]
        lambda: operator.setitem(numbers, 0, 1.5),  # type: ignore[call-overload]
        lambda: operator.setitem(numbers, slice(0, 1), [2, b""]),  # type: ignore[call-overload]
    ]
    for change in changes:
        with pytest.raises(EncodeError, match="numbers") as caught:
            change()
        assert (caught.value.spec, caught.value.key) == ("numbers", "k")
    assert numbers == [1]


def test_changing_an_item_after_it_was_added_or_read_does_not_change_the_list(subject: Subject) -> None:
    Handler.times.state_for(subject).append(START)
    inner = [1]
    lists = Handler.lists.state_for(subject)
    lists.append(inner)
    inner.append(2)
    lists[0].append(3)
    again = reloaded(subject)
    assert Handler.times.state_for(again) == [START]
    assert Handler.lists.state_for(again) == [[1]]


def test_an_empty_list_is_not_stored(subject: Subject, numbers: ListState[int]) -> None:
    numbers.append(1)
    assert stored(subject) == {"numbers": [1]}
    numbers.clear()
    assert stored(subject) == {}


@pytest.mark.parametrize(
    "change",
    [
        lambda numbers: numbers.append(9),
        lambda numbers: numbers.extend([9, 9]),
        lambda numbers: numbers.insert(0, 9),
        lambda numbers: numbers.__setitem__(1, 9),
        lambda numbers: numbers.__setitem__(slice(0, 2), [9]),
        lambda numbers: numbers.__delitem__(0),
        lambda numbers: numbers.pop(),
        lambda numbers: numbers.remove(2),
        lambda numbers: numbers.reverse(),
        lambda numbers: numbers.__iadd__([9]),
        lambda numbers: numbers.clear(),
    ],
)
def test_each_method_that_changes_a_list_stores_the_change(
    subject: Subject, numbers: ListState[int], change: Any
) -> None:
    numbers.extend([1, 2, 3])
    again = reloaded(subject)
    change(Handler.numbers.state_for(again))
    expected = [1, 2, 3]
    change(expected)
    assert stored(again).get("numbers", []) == expected


def test_a_list_that_was_only_read_is_not_written_again(subject: Subject) -> None:
    Handler.numbers.state_for(subject).append(1)
    again = reloaded(subject)
    assert Handler.numbers.state_for(again)[0] == 1
    assert again._batch.tables["numbers"].unstored() == []


@pytest.mark.parametrize(("encoded", "reason"), [({}, "found {}, expected list"), (["one"], "'one'")])
def test_the_error_for_stored_items_of_another_type_names_spec_and_key(encoded: Any, reason: str) -> None:
    subject = new_subject(encoded_values={"numbers": encoded})
    with pytest.raises(StateDecodeError, match=reason) as caught:
        list(Handler.numbers.state_for(subject))
    assert (caught.value.spec, caught.value.key) == ("numbers", "k")


def test_a_list_of_a_type_that_cannot_be_stored_is_refused() -> None:
    with pytest.raises(UnsupportedTypeError):
        ListSpec(complex).check()


class LikeAList(RuleBasedStateMachine):
    """Applies the same changes to a list state and to a list."""

    def __init__(self) -> None:
        super().__init__()
        self.subject = new_subject()
        self.model: list[int] = []

    @property
    def state(self) -> ListState[int]:
        return Handler.numbers.state_for(self.subject)

    @rule(number=st.integers())
    def append(self, number: int) -> None:
        self.state.append(number)
        self.model.append(number)

    @rule(index=st.integers(-3, 3), number=st.integers())
    def insert(self, index: int, number: int) -> None:
        self.state.insert(index, number)
        self.model.insert(index, number)

    @rule(start=st.integers(-3, 3), end=st.integers(-3, 3), numbers=st.lists(st.integers(), max_size=3))
    def replace(self, start: int, end: int, numbers: list[int]) -> None:
        self.state[start:end] = numbers
        self.model[start:end] = numbers

    @rule(start=st.integers(-3, 3), end=st.integers(-3, 3))
    def delete(self, start: int, end: int) -> None:
        del self.state[start:end]
        del self.model[start:end]

    @rule()
    def reverse(self) -> None:
        self.state.reverse()
        self.model.reverse()

    @rule()
    def clear(self) -> None:
        self.state.clear()
        self.model.clear()

    @rule()
    def reload(self) -> None:
        self.subject = reloaded(self.subject)

    @invariant()
    def same(self) -> None:
        assert self.state == self.model


TestLikeAList = LikeAList.TestCase
TestLikeAList.settings = settings(max_examples=40)
