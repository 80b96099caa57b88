from datetime import datetime, timezone
from typing import Any

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.sdk.subjects import new_subject, reloaded, stored

from amadou import Subject, ValueSpec
from amadou.errors import EncodeError, StateDecodeError, UnsupportedTypeError


@attrs.define
class Score:
    best: int
    history: list[int] = attrs.field(factory=list)


class Handler:
    count = ValueSpec(int, default=0)
    maybe = ValueSpec(str)
    score = ValueSpec(Score, default=Score(0))
    names = ValueSpec(list[str], default=[])
    renamed = ValueSpec(int, name="other name")


@pytest.fixture
def subject() -> Subject:
    return new_subject()


def test_a_value_state_is_its_default_until_it_is_set(subject: Subject) -> None:
    count = Handler.count.state_for(subject)
    assert (count.value, count.exists) == (0, False)
    count.value += 5
    assert (count.value, count.exists) == (5, True)


def test_a_value_state_without_a_default_is_none(subject: Subject) -> None:
    assert Handler.maybe.state_for(subject).value is None


def test_a_value_state_is_its_default_after_clear(subject: Subject) -> None:
    count = Handler.count.state_for(subject)
    count.value = 5
    count.clear()
    count.clear()
    assert (count.value, count.exists) == (0, False)
    assert stored(subject) == {}


def test_a_value_that_equals_the_default_is_stored(subject: Subject) -> None:
    Handler.count.state_for(subject).value = 0
    assert Handler.count.state_for(reloaded(subject)).exists


def test_a_value_is_read_in_the_next_batch(subject: Subject) -> None:
    Handler.score.state_for(subject).value = Score(5, [1, 5])
    assert Handler.score.state_for(reloaded(subject)).value == Score(5, [1, 5])


@given(st.lists(st.none() | st.text(max_size=3)))
def test_the_last_value_that_was_set_is_stored(script: list[str | None]) -> None:
    subject, model = new_subject(), None
    for text in script:
        state = Handler.maybe.state_for(subject)
        if text is None:
            state.clear()
        else:
            state.value = text
        model = text
        subject = reloaded(subject)
        assert Handler.maybe.state_for(subject).value == model


def test_changing_a_value_in_place_does_not_change_the_stored_value(subject: Subject) -> None:
    state = Handler.names.state_for(subject)
    state.value.append("lost")
    assert state.value == []
    names = ["stored"]
    state.value = names
    names.append("lost")
    state.value.append("lost")
    assert state.value == ["stored"]
    Handler.score.state_for(subject).value.history.append(1)
    assert Handler.score.state_for(new_subject()).value == Score(0)


def test_a_spec_is_named_after_its_attribute_unless_name_is_set() -> None:
    assert (Handler.count.name, Handler.renamed.name) == ("count", "other name")


def test_a_spec_that_is_created_at_run_time_needs_a_name(subject: Subject) -> None:
    ValueSpec(int, name="made").state_for(subject).value = 1
    assert stored(subject) == {"made": 1}
    with pytest.raises(ValueError, match="has no name"):
        ValueSpec(int).state_for(subject)


def test_the_error_for_a_value_of_another_type_names_spec_and_key(subject: Subject) -> None:
    state = Handler.count.state_for(subject)
    state.value = 1
    with pytest.raises(EncodeError, match="count: cannot store 'five' ") as caught:
        state.value = "five"  # type: ignore[assignment]
    assert (caught.value.spec, caught.value.key, caught.value.value, caught.value.type) == ("count", "k", "five", int)
    assert state.value == 1


def test_the_error_for_stored_state_of_another_type_names_spec_key_and_both_types() -> None:
    subject = new_subject(encoded_values={"count": "five"})
    state = Handler.count.state_for(subject)
    with pytest.raises(StateDecodeError, match="state 'count' of key 'k': found 'five', expected int") as caught:
        _ = state.value
    assert (caught.value.spec, caught.value.key, caught.value.stored, caught.value.type) == ("count", "k", "five", int)
    assert stored(subject) == {"count": "five"}


def test_a_spec_with_its_own_codec_stores_any_type(subject: Subject) -> None:
    class Complex:
        def encode(self, value: complex) -> list[float]:
            return [value.real, value.imag]

        def decode(self, encoded: Any) -> complex:
            return complex(*encoded)

    spec = ValueSpec(complex, 0j, name="z", codec=Complex())
    spec.check()
    state = spec.state_for(subject)
    state.value += 2j
    assert spec.state_for(reloaded(subject)).value == 2j


def test_a_type_that_cannot_be_stored_and_a_default_of_another_type_are_refused() -> None:
    with pytest.raises(UnsupportedTypeError, match="complex"):
        ValueSpec(complex, name="z").check()
    with pytest.raises(EncodeError, match="'zero'"):
        ValueSpec(int, "zero", name="n").check()


def test_the_repr_of_a_value_shows_type_default_and_value(subject: Subject) -> None:
    when = datetime(2025, 1, 1, tzinfo=timezone.utc)
    spec = ValueSpec(datetime | None, when, name="last")  # type: ignore[arg-type]
    assert repr(spec) == "ValueSpec(datetime.datetime | None)"
    assert repr(spec.state_for(subject)) == f"ValueState('last', {when!r})"
