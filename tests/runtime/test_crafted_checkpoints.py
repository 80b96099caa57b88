"""Checkpoints whose files somebody has changed to do harm are refused when their state is shown."""

import io
import json
import os
import shutil
import zipfile
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import pytest
from tests.archives import unpack_archive

from amadou.errors import CheckpointError, StateDecodeError
from amadou_runtime.savepoint.block import _packed_items
from amadou_runtime.spark.savepoints.checkpoint_state import CheckpointState

STORED: Final = Path(__file__).parent.parent / "stored" / "checkpoints-4" / "orders.tar.xz"
_CHUNK: Final = 512


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    unpack_archive(STORED, tmp_path)
    return tmp_path / "log" / "checkpoint"


def no_spark() -> Any:
    pytest.fail("the files were left to Spark")


def read(checkpoint: Path) -> None:
    list(CheckpointState(str(checkpoint), no_spark).blocks())


def change_snapshots(checkpoint: Path, change: Callable[[dict[str, bytes]], None]) -> None:
    """Change the files in the zip files of snapshots."""
    for path in checkpoint.glob("state/*/*/*.zip"):
        with zipfile.ZipFile(path) as archive:
            files = {name: archive.read(name) for name in archive.namelist()}
        change(files)
        with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
            for name, content in files.items():
                archive.writestr(name, content)
        written = path.read_bytes()
        sums = [zlib.crc32(written[at : at + _CHUNK]).to_bytes(4, "big") for at in range(0, len(written), _CHUNK)]
        path.with_name(f".{path.name}.crc").write_bytes(b"crc\0" + _CHUNK.to_bytes(4, "big") + b"".join(sums))


def rename(checkpoint: Path, field: str, name: str) -> None:
    def change(files: dict[str, bytes]) -> None:
        form, described = files["metadata"].decode().splitlines()
        metadata = json.loads(described)
        for file in metadata["sstFiles"]:
            file[field] = name
        files["metadata"] = f"{form}\n{json.dumps(metadata)}".encode()

    change_snapshots(checkpoint, change)


def test_a_checkpoint_whose_files_were_packed_again_can_be_read(checkpoint: Path) -> None:
    change_snapshots(checkpoint, lambda files: None)
    read(checkpoint)


def test_a_snapshot_creates_no_file_outside_of_its_directory(checkpoint: Path, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    rename(checkpoint, "localFileName", str(outside))
    with pytest.raises(CheckpointError, match="names a file outside of it"):
        read(checkpoint)
    assert not os.path.lexists(outside)


@pytest.mark.parametrize("name", ["../outside.sst", "..", ".", "", "a/b", "/etc/hosts", 5])
def test_a_snapshot_reads_no_file_outside_of_its_directory(checkpoint: Path, name: Any) -> None:
    rename(checkpoint, "dfsSstFileName", name)
    with pytest.raises(CheckpointError, match="names a file outside of it"):
        read(checkpoint)


@pytest.mark.parametrize("field", ["localFileName", "dfsSstFileName"])
def test_a_snapshot_that_names_a_file_outside_is_not_left_to_spark(checkpoint: Path, field: str) -> None:
    rename(checkpoint, field, "../../outside.sst")
    for checksums in list(checkpoint.glob("state/*/*/.*.zip.crc")):  # amadou does not read files without checksums
        checksums.unlink()
    with pytest.raises(CheckpointError, match="names a file outside of it"):
        read(checkpoint)


def test_a_checkpoint_that_names_a_class_as_its_store_is_not_left_to_spark(checkpoint: Path) -> None:
    for path in (checkpoint / "offsets").glob("[0-9]*"):
        path.write_text(path.read_text().replace("org.apache.spark.sql.execution.streaming.state.Rocks", "evil.Rocks"))
    with pytest.raises(CheckpointError, match=r"names a class that is no store \('evil.RocksDBStateStoreProvider'\)"):
        read(checkpoint)


EVIL: Final = b'{"conf":{"spark.sql.streaming.stateStore.providerClass":"evil.Store"}}'
"""The settings in the offsets of a batch, with a class that Spark would load."""


@pytest.mark.parametrize(
    "described",
    [
        EVIL[:-1] + b',"a":"\xff"}',
        EVIL[:-1] + ',"\u2028":1}'.encode(),
        EVIL + b" end",
        EVIL[:-1] + b',"conf":{}}',
        b'"\\ud800"',
        b"[" * 100_000,
    ],
    ids=["not UTF-8", "a line for Python alone", "more than JSON", "a name twice", "a text", "deep"],
)
def test_offsets_that_spark_might_read_differently_are_not_left_to_spark(checkpoint: Path, described: bytes) -> None:
    for path in (checkpoint / "offsets").glob("[0-9]*"):
        form, _, *offsets = path.read_bytes().split(b"\n")
        path.write_bytes(b"\n".join([form, described, *offsets]))
    with pytest.raises(CheckpointError, match=r"cannot be read|names a class that is no store"):
        read(checkpoint)


def test_metadata_of_a_snapshot_that_java_would_read_differently_is_not_left_to_spark(checkpoint: Path) -> None:
    evil = b'v1\r{"sstFiles":[{"localFileName":"/tmp/x","dfsSstFileName":"y"}]}\n'
    change_snapshots(checkpoint, lambda files: files.update(metadata=evil + files["metadata"].partition(b"\n")[2]))
    with pytest.raises(CheckpointError, match="cannot be read"):
        read(checkpoint)


def hidden_entry(evil: bytes) -> bytes:
    """Return a file of a zip file with its header, without a directory."""
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w") as archive:
        archive.writestr("metadata", evil)
        end = archive.start_dir
    return made.getvalue()[:end]


@pytest.mark.parametrize("place", ["before", "after", "inside"])
def test_a_snapshot_with_a_file_that_only_java_reads_is_not_left_to_spark(checkpoint: Path, place: str) -> None:
    evil = hidden_entry(b'v1\n{"sstFiles":[{"localFileName":"/tmp/x","dfsSstFileName":"y"}]}')
    for path in checkpoint.glob("state/*/*/*.zip"):
        written = path.read_bytes()
        with zipfile.ZipFile(path) as archive:
            directory = archive.start_dir
            infos = sorted(archive.infolist(), key=lambda info: info.header_offset)
            files = [(info, archive.read(info)) for info in infos]
        if place == "before":
            path.write_bytes(evil + written)
        elif place == "after":
            end = written.rindex(b"PK\x05\x06") + 16
            moved = (directory + len(evil)).to_bytes(4, "little")
            path.write_bytes(written[:directory] + evil + written[directory:end] + moved + written[end + 4 :])
        else:
            with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
                for info, content in files:
                    archive.writestr(info.filename, content)
                last = archive.infolist()[-1]
                assert archive.fp is not None
                archive.fp.seek(archive.start_dir)
                archive.fp.write(evil)
                last.compress_size += len(evil)
                archive.start_dir = archive.fp.tell()
        with zipfile.ZipFile(path) as archive:
            assert archive.testzip() is None, "Python reads it"
    with pytest.raises(CheckpointError, match="directory"):
        read(checkpoint)


def test_a_snapshot_whose_zip_file_becomes_very_large_is_refused(checkpoint: Path) -> None:
    change_snapshots(checkpoint, lambda files: files.update({"000009.log": bytes(100 << 20)}))
    with pytest.raises(CheckpointError, match="decompresses to more than"):
        read(checkpoint)


@pytest.mark.parametrize("kind", ["offsets/1", "state/*/*/*.zip", "state/*/*/.*.zip.crc", "state/*/*/SSTs/*.sst"])
def test_a_checkpoint_with_a_pipe_is_refused(checkpoint: Path, kind: str) -> None:
    for path in list(checkpoint.glob(kind)):
        path.unlink()
        os.mkfifo(path)
    with pytest.raises(CheckpointError, match="is not a regular file"):
        read(checkpoint)


def test_a_snapshot_that_lacks_a_file_is_left_to_spark(checkpoint: Path) -> None:
    for path in checkpoint.glob("state/*/*/SSTs"):
        shutil.rmtree(path)
    with pytest.raises(pytest.fail.Exception, match="left to Spark"):
        read(checkpoint)


@pytest.mark.parametrize("packed", [b"", b"\x01", b"\x92\x01", b"\x91\xc1"])
def test_held_events_that_are_no_packed_list_are_an_error(packed: bytes) -> None:
    assert list(_packed_items(b"\x92\x01\x02")) == [b"\x01", b"\x02"]
    with pytest.raises(StateDecodeError, match="it is no packed list"):
        list(_packed_items(packed))
