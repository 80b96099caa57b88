"""What comes of a script: the same as in the model, a difference, an error, or it is left out."""

import traceback
from typing import Any

import attrs
from tests.qualify.fuzz.known import LeftOut, Rules
from tests.qualify.fuzz.model import results_of_model
from tests.qualify.fuzz.script_run import differences, results_of
from tests.qualify.fuzz.scripts import Script
from tests.qualify.fuzz.shrink import shrunk


@attrs.frozen
class Outcome:
    """What comes of a script.

    :param left_out: the name of what it was left out for
    :param kind: `error` and the type, or `difference` and where; empty if all is the same
    :param lines: what differs, or the error
    """

    left_out: str = ""
    kind: str = ""
    lines: tuple[str, ...] = ()


def outcome(script: Script, rules: Rules, engine: dict[str, Any]) -> Outcome:
    """Run a script, and compare.

    :param engine: arguments of `TestRun`
    """
    try:
        expected = results_of_model(script, rules)
    except LeftOut as left_out:
        return Outcome(left_out=left_out.name)
    try:
        actual = results_of(script, **engine)
    except Exception as error:  # whatever it is, it is shown
        return Outcome(kind=f"error {type(error).__name__}", lines=tuple(traceback.format_exc().splitlines()[-12:]))
    lines = differences(actual, expected, in_order=engine["engine"] == "embedded")
    kind = f"difference in {' '.join(lines[0].split()[1:-1])}" if lines else ""
    return Outcome(kind=kind, lines=tuple(lines))


def smallest(script: Script, rules: Rules, engine: dict[str, Any]) -> tuple[Script, Outcome]:
    """A failing script made smaller, and what comes of it."""
    kind = outcome(script, rules, engine).kind

    def fails(candidate: Script) -> bool:
        try:
            return outcome(candidate, rules, engine).kind == kind
        except Exception:  # the model cannot run what is left of the script
            return False

    small = shrunk(script, fails)
    return small, outcome(small, rules, engine)
