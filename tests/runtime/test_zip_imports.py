"""Zip files on the Python path are read again only if they have changed."""

import sys
import zipimport
from pathlib import Path
from typing import Any
from zipfile import ZipFile

import pytest

from amadou_runtime.spark.zip_imports import keep_zip_directories

pytestmark = pytest.mark.skipif(
    sys.version_info >= (3, 13), reason="Python 3.13 reads directories of archives only if they changed"
)


@pytest.fixture
def read(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Paths of the archives that are read in a process with `keep_zip_directories`."""
    archives: list[str] = []
    module: Any = zipimport
    original = module._read_directory

    def recorded(archive: str) -> Any:
        archives.append(archive)
        return original(archive)

    monkeypatch.setattr(zipimport, "_read_directory", recorded)
    monkeypatch.setattr(zipimport.zipimporter, "invalidate_caches", module.zipimporter.invalidate_caches)
    keep_zip_directories.__wrapped__()
    return archives


def archive_with(path: Path, *modules: str) -> str:
    with ZipFile(path, "w") as archive:
        for name in modules:
            archive.writestr(f"{name}.py", "")
    return str(path)


def test_an_archive_that_has_not_changed_is_read_once(tmp_path: Path, read: list[str]) -> None:
    path = archive_with(tmp_path / "modules.zip", "package/__init__", "package/inner")
    importers = [zipimport.zipimporter(path), zipimport.zipimporter(f"{path}/package")]
    read.clear()
    for _ in range(3):
        for importer in importers:
            importer.invalidate_caches()
    assert read == [path]
    assert importers[0].find_spec("package") is not None
    assert importers[1].find_spec("inner") is not None


def test_an_archive_that_has_changed_is_read_again(tmp_path: Path, read: list[str]) -> None:
    path = archive_with(tmp_path / "modules.zip", "first")
    importer = zipimport.zipimporter(path)
    importer.invalidate_caches()
    archive_with(tmp_path / "modules.zip", "first", "second")
    importer.invalidate_caches()
    assert importer.find_spec("second") is not None
    (tmp_path / "modules.zip").unlink()
    importer.invalidate_caches()
    assert importer.find_spec("second") is None
    archive_with(tmp_path / "modules.zip", "first", "second")
    importer.invalidate_caches()
    assert importer.find_spec("second") is not None


def test_a_file_that_is_no_longer_an_archive_is_read_each_time(tmp_path: Path, read: list[str]) -> None:
    path = archive_with(tmp_path / "modules.zip", "first")
    importer = zipimport.zipimporter(path)
    (tmp_path / "modules.zip").write_bytes(b"not a zip file")
    read.clear()
    for _ in range(2):
        importer.invalidate_caches()
    assert read == [path] * 2
    assert importer.find_spec("first") is None
