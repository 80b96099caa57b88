"""scripts/qualify and its parts fit together."""

import importlib
import sys

import pytest
from tests.qualify.command import script

QUALIFY = script("qualify")


@pytest.mark.parametrize("part", list(QUALIFY.MODULES))
def test_a_part_has_the_options_that_it_is_given(
    part: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    module, *words = QUALIFY.MODULES[part]
    monkeypatch.setattr(sys, "argv", [module, *words, "--help"])
    with pytest.raises(SystemExit):
        importlib.import_module("tests.qualify.fuzz.__main__" if module == "fuzz" else f"tests.qualify.{module}").main()
    shown = capsys.readouterr().out
    options = [option for option, (_, parts, _) in QUALIFY.OPTIONS.items() if part in parts]
    assert [option for option in ("--append", "--figures", *options) if option not in shown] == []


def test_the_help_names_every_part() -> None:
    missing = [part for part in QUALIFY.MODULES if f"\n  {part} " not in QUALIFY.__doc__]
    assert missing == []
