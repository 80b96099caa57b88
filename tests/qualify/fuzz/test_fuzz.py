"""A few random scripts, the same each time: `python -m tests.qualify.fuzz` runs as many as one likes.

Each store runs others. A failure prints the script, made smaller, and what differs.
"""

from pathlib import Path

import pytest
from tests.qualify.fuzz import known
from tests.qualify.fuzz.__main__ import run_file
from tests.qualify.fuzz.engines import engine_on
from tests.qualify.fuzz.features import features_of
from tests.qualify.fuzz.generate import script_of
from tests.qualify.fuzz.known import Rules
from tests.qualify.fuzz.model import results_of_model
from tests.qualify.fuzz.outcome import outcome, smallest
from tests.qualify.fuzz.scripts import Component, Script, Source, Stage, from_json, listing, to_json

from amadou_plugins.windows import CountWindow

SEED = 44
SCRIPTS = {
    "memory": range(60),
    "groups": range(60, 90),
    "log-packed": range(90, 110),
    "log-by-key": range(110, 140),
}


@pytest.mark.parametrize("store", SCRIPTS)
def test_random_jobs_give_what_the_model_of_the_semantics_says(store: str) -> None:
    rules = Rules()
    with engine_on(store, None) as engine:
        for number in SCRIPTS[store]:
            script = script_of(SEED, number)
            result = outcome(script, rules, engine)
            if result.kind:
                script, result = smallest(script, rules, engine)
                pytest.fail(
                    f"script {number} on {store}:\n{listing(script)}\n" + "\n".join(result.lines), pytrace=False
                )


def test_few_scripts_are_left_out_for_known_faults() -> None:
    numbers = range(100)
    left_out = 0
    for number in numbers:
        try:
            results_of_model(script_of(SEED, number), Rules())
        except known.LeftOut:
            left_out += 1
    assert left_out < len(numbers) / 5


def test_a_script_is_the_same_each_time_it_is_made_and_as_json() -> None:
    one, other = (script_of(SEED, 7) for _ in range(2))
    assert one == other == from_json(to_json(one))


def test_scripts_cover_the_kinds_of_windows_joins_and_steps() -> None:
    covered: set[str] = set()
    for number in range(400):
        covered |= features_of(script_of(SEED, number))
    kinds = {"tumbling", "hopping", "session", "sliding", "count", "running", "interval", "as_of", "latest", "windowed"}
    steps = {
        "record",
        "many",
        "update",
        "watermark",
        "clock",
        "restart",
        "crash",
        "snapshot",
        "savepoint",
        "run",
        "flush",
    }
    assert covered >= kinds | {f"step {name}" for name in steps}
    assert covered >= {
        "3 stages",
        "reference",
        "on_reference_changed",
        "lookup, on_failure=dead_letter",
        "ttl of names",
    }


def test_a_difference_is_found_and_made_smaller(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The fault is planted: of overlapping count windows, none emits early results."""
    monkeypatch.setattr(CountWindow, "_emits_early", lambda window, number: False)
    window = Component("w0", "count", {"size": 3, "hop": 1, "value": "sum", "early": ["count", 2]})
    steps = [["record", "s0", "in", "", 0, second, {"v": 0, "id": second, "do": []}] for second in range(6)]
    script = Script([Stage("s0", "machine", [Source("in")], [window])], steps)
    with engine_on("memory", None) as engine:
        small, result = smallest(script, Rules(), engine)
    assert result.kind == "difference in outputs"
    assert len(small.steps) < 5
    file = tmp_path / "script.json"
    file.write_text(to_json(small))
    assert run_file(file, ["memory", "log-by-key"], Rules()) == 1
    assert "log-by-key: difference in outputs" in capsys.readouterr().out


def test_names_of_what_is_left_out_are_checked() -> None:
    with pytest.raises(ValueError, match="unknown: nothing; use names of lost-at-once"):
        Rules({"nothing"})
