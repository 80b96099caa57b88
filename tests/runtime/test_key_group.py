"""Key groups that a batch stores and the next batch reads."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from amadou import Key
from amadou.engine import pack
from amadou.errors import StateDecodeError
from amadou_runtime.core.key_group import KeyGroup
from amadou_runtime.store.packed_group import PackedGroup, joined, packed_group

KEYS = st.sampled_from(["a", b"a", 1, ("a", 1)])
TIMERS = st.tuples(KEYS, st.integers(-2, 2), st.sampled_from(["", "x"]))
STEPS = st.one_of(
    st.tuples(st.sampled_from(["add", "discard", "look"]), TIMERS), st.tuples(st.just("store"), st.none())
)


@given(st.lists(STEPS))
def test_timers_of_a_key_group_are_a_set_over_many_batches(script: list[tuple[str, Any]]) -> None:
    group = KeyGroup(PackedGroup(None))
    model: set[tuple[Key, int, str]] = set()
    for step, timer in script:
        if step == "add":
            group.timers.add(*timer)
            model.add(timer)
        elif step == "discard":
            assert group.timers.discard(*timer) is (timer in model)
            model.discard(timer)
        elif step == "look":
            assert group.timers.of(timer[0]) == sorted((micros, tag) for key, micros, tag in model if key == timer[0])
        else:
            group = stored_and_read(group)
            assert group.timers.next_time() == min((micros for _, micros, _ in model), default=None)
            assert group.timers.due(0) == sorted({micros for _, micros, _ in model if micros <= 0})
    for key in ("a", b"a", 1, ("a", 1)):
        assert group.timers.of(key) == sorted((micros, tag) for other, micros, tag in model if other == key)
    assert group.timers.pending == len(model)
    assert set(stored_and_read(group).keys()) == {key for key, _, _ in model}


def test_a_key_group_without_timers_and_state_is_not_stored() -> None:
    group = KeyGroup(PackedGroup(None))
    group.timers.add("a", 1, "x")
    assert packed_group(group) is not None
    group.timers.discard("a", 1, "x")
    assert packed_group(group) is None


def test_the_error_for_state_of_another_release_says_which_release_reads_it() -> None:
    from amadou._state.encoding import pack

    with pytest.raises(
        StateDecodeError, match=r"this release reads only version 6 .* use the release of amadou that stored the state"
    ):
        KeyGroup(PackedGroup(joined(pack([1, {}]), None)))


def stored_and_read(group: KeyGroup) -> KeyGroup:
    return KeyGroup(PackedGroup(packed_group(group)))


def test_a_damaged_structure_of_a_component_is_an_error() -> None:
    group = KeyGroup(PackedGroup(None))
    with pytest.raises(StateDecodeError, match=r"a structure is damaged .* use a savepoint from before the damage"):
        group.take_structures({"sums": [pack({"kind": "TumblingWindow"})]})
    assert not group.structures
