"""Directories for state and records can only be read by the user of the process, or by those whom a setting names."""

import stat
from pathlib import Path

import pytest

from amadou.errors import PlatformError
from amadou.paths import make_directory


def mode_of(path: Path) -> str:
    return f"{stat.S_IMODE(path.stat().st_mode):o}"


@pytest.mark.parametrize(("given", "mode"), [(None, "700"), ("", "700"), ("750", "750"), ("0775", "775")])
def test_a_new_directory_and_its_new_parents_have_the_mode_of_the_setting(
    given: str | None, mode: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("AMADOU_DIRECTORY_MODE", raising=False)
    if given is not None:
        monkeypatch.setenv("AMADOU_DIRECTORY_MODE", given)
    make_directory(tmp_path / "jobs" / "state")
    assert [mode_of(path) for path in (tmp_path / "jobs", tmp_path / "jobs" / "state")] == [mode, mode]


def test_the_mode_of_a_directory_that_exists_stays(tmp_path: Path) -> None:
    (tmp_path / "state").mkdir()
    (tmp_path / "state").chmod(0o755)
    make_directory(tmp_path / "state")
    assert mode_of(tmp_path / "state") == "755"


def test_a_file_in_place_of_the_directory_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "state").touch()
    with pytest.raises(FileExistsError):
        make_directory(tmp_path / "state")


@pytest.mark.parametrize("given", ["rwx", "7777", "888", "-1"])
def test_a_setting_that_is_not_a_mode_is_an_error(given: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AMADOU_DIRECTORY_MODE", given)
    with pytest.raises(PlatformError, match="AMADOU_DIRECTORY_MODE must be the permissions"):
        make_directory(tmp_path / "state")
