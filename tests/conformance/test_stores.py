"""The stores of conformance tests without Spark have the forms that their names promise."""

import pytest
from tests.conformance.handlers import TimerSetter, at, event, job
from tests.conformance.stores import LoggedState, embedded_on

from amadou_runtime import TestRun


@pytest.mark.parametrize(("store", "kinds"), [("log-packed", {b"p"}), ("log-by-key", {b"k", b"m"})])
def test_key_groups_of_the_log_have_the_forced_form(store: str, kinds: set[bytes]) -> None:
    with embedded_on(store) as states, TestRun(job(TimerSetter())) as run:
        for batch in range(3):
            run.add_records(event(batch, [100], f"key {number}") for number in range(4)).end_batch()
        run.run()
        (state,) = states
        assert isinstance(state, LoggedState)
        assert {id_[2:3] for id_ in state.ids()} == kinds
        assert len(state.ids()) == (1 if kinds == {b"p"} else 5)


@pytest.mark.parametrize("store", ["log-packed", "log-by-key"])
def test_state_that_a_script_sets_has_the_forced_form_at_once(store: str) -> None:
    with embedded_on(store) as states, TestRun(job(TimerSetter())) as run:
        run.add_record(event(0, [100])).end_batch().run()
        run.restart()
        run.set_timer("other", at(50))
        run.end_batch().run()
        last = states[-1]
        assert isinstance(last, LoggedState)
        assert (b"p" in {id_[2:3] for id_ in last.ids()}) == (store == "log-packed")
