"""docs/trust.md, which is made from the figures of scripts/qualify."""

from pathlib import Path

from tests.qualify.figures import FILE, Piece, read
from tests.qualify.page import PAGE, page_of


def test_the_page_on_trust_has_the_stored_figures() -> None:
    assert PAGE.read_text() == page_of(read(FILE)), "run scripts/qualify --page"


def test_appended_figures_are_added_and_others_replace_those_of_their_part(tmp_path: Path) -> None:
    file = tmp_path / "figures.json"
    for part, append, count in (("kills", False, 3), ("soak", False, 1), ("kills", True, 4)):
        Piece(file, part, append=append, seed=count).tried({"driver": count}, runs=1, lost=0)
    assert "**7**: driver 7" in page_of(read(file))
    Piece(file, "kills", append=False, seed=9).tried({"jvm": 2}, runs=1)
    assert [piece["part"] for piece in read(file)] == ["soak", "kills"]
    assert "**2**: jvm 2" in page_of(read(file))


def test_what_was_tried_on_several_versions_is_also_summed() -> None:
    piece = {"part": "fuzz", "version": "1", "spark": "4", "python": "3", "date": "2026-01-01", "found": []}
    tried = [{"commit": "a", "tried": {"scripts": 2000}}, {"commit": "b", "tried": {"scripts": 500}}]
    page = page_of([{**piece, **each} for each in tried])
    assert "| 2,500 scripts | **all of the following** |" in page
    assert "| 500 scripts | amadou 1 (b), Spark 4, Python 3 |" in page
    assert "all of the following" not in page_of([{**piece, **tried[0]}])


def test_the_page_names_each_failure_and_the_command_that_repeats_it(tmp_path: Path) -> None:
    file = tmp_path / "figures.json"
    piece = Piece(file, "kills", append=False, seed=1)
    piece.tried({"driver": 5}, runs=1, events=10, results=8, lost=2)
    piece.found("2 lost in counts\nmore", "scripts/qualify kills --seed 1")
    page = page_of(read(file))
    assert "| 1 | 10 | 8 | 2 | 0 | 0 |" in page
    assert "2 lost in counts (`scripts/qualify kills --seed 1`)" in page
    assert "more (" not in page


def test_a_page_without_figures_claims_nothing() -> None:
    assert page_of([]).endswith("Nothing was tried with this version yet.\n")
