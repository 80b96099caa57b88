"""Key groups: what a batch leaves is what the next one finds."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from amadou import Key
from amadou.errors import StateDecodeError
from amadou_runtime._group import KeyGroup

KEYS = st.sampled_from(["a", b"a", 1, ("a", 1)])
TIMERS = st.tuples(KEYS, st.integers(-2, 2), st.sampled_from(["", "x"]))
STEPS = st.one_of(
    st.tuples(st.just("add"), TIMERS), st.tuples(st.just("discard"), TIMERS), st.tuples(st.just("store"), st.none())
)


@given(st.lists(STEPS))
def test_timers_are_a_set_over_many_batches(script: list[tuple[str, Any]]) -> None:
    group = KeyGroup(None)
    model: set[tuple[Key, int, str]] = set()
    for step, timer in script:
        if step == "add":
            group.timers.add(*timer)
            model.add(timer)
        elif step == "discard":
            assert group.timers.discard(*timer) is (timer in model)
            model.discard(timer)
        else:
            group = stored_and_read(group)
            earliest = {key: min(micros for other, micros, _ in model if other == key) for key, _, _ in model}
            assert group.timers.earliest == earliest
    for key in ("a", b"a", 1, ("a", 1)):
        assert group.timers.of(key) == sorted((micros, tag) for other, micros, tag in model if other == key)
    assert group.timers.pending == len(model)
    assert set(stored_and_read(group).keys()) == {key for key, _, _ in model}


def test_a_key_with_one_plain_timer_costs_no_set() -> None:
    group = KeyGroup(None)
    group.timers.add("a", 1, "")
    group.timers.add("a", 2, "x")
    assert list(stored_and_read(group).timers.several) == ["a"]
    group.timers.discard("a", 2, "x")
    assert not stored_and_read(group).timers.several


def test_nothing_is_stored_of_nothing() -> None:
    group = KeyGroup(None)
    group.timers.add("a", 1, "x")
    assert group.pack() is not None
    group.timers.discard("a", 1, "x")
    assert group.pack() is None


def test_state_of_another_release_is_told() -> None:
    from amadou._wire import pack

    with pytest.raises(StateDecodeError, match="this release reads version 1"):
        KeyGroup(pack([2, {}]))


def stored_and_read(group: KeyGroup) -> KeyGroup:
    group.timers.store()
    return KeyGroup(group.pack())
