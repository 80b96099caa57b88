"""Reads the state of one key range from the files that Spark's RocksDB state store writes to a local checkpoint. This
needs neither Java nor a Spark session, which alone takes several seconds to start.

Spark writes a changelog for each version of a partition's state, and a snapshot now and then: a zip file with RocksDB's
own files, except for the SST files, which are in a directory beside it. Batch N writes version N + 1. Keys and values
are Spark's `UnsafeRow`, after a byte with the version of this encoding. What Spark would check is checked here, too:
Hadoop's checksums of changelogs and zip files, and RocksDB's of SST files.
"""

import base64
import io
import json
import struct
import zipfile
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final, NoReturn

import attrs

from amadou.errors import CheckpointError
from amadou.text import shown_value
from amadou_runtime.formats.inflating import most_inflated
from amadou_runtime.spark.savepoints.zip_order import check_read_order
from amadou_runtime.spark.spread import spark_hash

_PARTITIONS: Final = "spark.sql.shuffle.partitions"
_NEWER: Final = {
    "spark.sql.streaming.stateStore.encodingFormat": "unsaferow",
    "spark.sql.streaming.stateStore.rowChecksum.enabled": "false",
}
"""Settings that older versions of Spark lack, with the only values for which these versions write files."""
_PROVIDER: Final = "spark.sql.streaming.stateStore.providerClass"
_STORES: Final = ("org.apache.spark.sql.execution.streaming.state.", "com.databricks.sql.streaming.state.")
"""The packages that have classes of stores."""
_KNOWN: Final = {
    _PROVIDER: f"{_STORES[0]}RocksDBStateStoreProvider",
    "spark.sql.streaming.flatMapGroupsWithState.stateFormatVersion": "2",
    **_NEWER,
}
"""The settings with which the files have a known form. Spark writes those that it has to the offsets of each batch."""
_CRC_MAGIC: Final = b"crc\0"
_BLOCK: Final = struct.Struct("<8sBIII")
"""Header of a block of Java's LZ4 streams: magic, token, compressed and original size, checksum."""
_MAGIC: Final = b"LZ4Block"
_STORED: Final = 0x10
"""In the token of a block that is not compressed."""
_SIZE: Final = struct.Struct(">i")
_PUT, _DELETE, _END = 0x01, 0x10, 0x00
_VERSION: Final = b"\x00\x02v"
"""Begins a changelog with a version. Those without a version have records without a type."""
_RECORD_TYPES: Final = _VERSION + b"2"
_SHOWN: Final = 80
_LOG_FAMILY: Final = 2
"""Number of the column family that Spark creates for the log, after the default one."""


class UnknownFilesError(Exception):
    """The files are incomplete, or in a form that this module does not know. Spark may know it."""


def partitions_with_state(checkpoint: Path, batch: int) -> int:
    """Return the number of partitions of the state that a batch has stored.

    :raises UnknownFilesError: the files have an unknown form
    :raises CheckpointError: the files are not regular ones
    """
    with _as_unknown():
        settings = {**_NEWER, **_settings(checkpoint / "offsets" / str(batch))}
        unknown = {name: settings.get(name) for name, value in _KNOWN.items() if settings.get(name) != value}
        if unknown:
            raise UnknownFilesError(f"state is stored with {unknown}")
        return int(settings[_PARTITIONS])


class RangeFiles:
    """The files with the state of a key range. The methods raise a CheckpointError for files that could do harm, also
    if Spark read them.

    :param checkpoint: the checkpoint
    :param store: the checkpoint's store
    :param number: the number of the range
    :param partitions: the number of partitions; see `partitions_with_state`
    :param operator: see `CheckpointMetadata.operator_of`
    """

    def __init__(self, checkpoint: Path, store: str, number: int, partitions: int, operator: int = 0) -> None:
        self._directory = checkpoint / "state" / str(operator) / str(spark_hash(number) % partitions)
        self._is_log = store == "log"
        self._form: _GroupsForm | _LogForm = _LogForm(number) if self._is_log else _GroupsForm(number)

    def rows(self, batch: int) -> dict[int, bytes]:
        """Return the rows of the range as of a batch, by number; see `stored_rows`.

        :raises UnknownFilesError: the files cannot be read
        """
        version = batch + 1
        with _as_unknown():
            snapshots = (int(path.stem) for path in self._directory.glob("*.zip"))
            snapshot = max((each for each in snapshots if each <= version), default=0)
            if self._is_log and not snapshot:
                raise UnknownFilesError("only a snapshot tells the number of the log's column family")
            changes: dict[int, bytes | None] = {}
            later = version
            while later > snapshot and not self._is_complete(changes):
                changes = {**self._changed(later), **changes}
                later -= 1
            rows = self._snapshot(snapshot) if snapshot and not self._is_complete(changes) else {}
            apply_changes(rows, changes)
            return rows

    def _is_complete(self, changes: Mapping[int, bytes | None]) -> bool:
        """Return `True` if changes contain all rows of the range, so that older files need not be read."""
        return not self._is_log and bool(changes)

    def changes(self, batch: int) -> dict[int, bytes | None]:
        """Return the rows of the range that a batch has changed, by number. A removed row is `None`.

        :raises UnknownFilesError: the files cannot be read
        """
        with _as_unknown():
            return self._changed(batch + 1)

    def _changed(self, version: int) -> dict[int, bytes | None]:
        return {
            self._form.number(key): None if value is None else self._form.packed(value)
            for key, value in _records(_decompressed(_checked(self._directory / f"{version}.changelog")))
            if key.startswith(self._form.prefix)
        }

    def _snapshot(self, version: int) -> dict[int, bytes]:
        from rocksdict import AccessType, Options, Rdict

        with TemporaryDirectory(prefix="amadou-snapshot-") as name:
            directory = Path(name)
            path = self._directory / f"{version}.zip"
            with zipfile.ZipFile(io.BytesIO(_checked(path))) as archive:
                _check_size(path, archive)
                archive.extractall(directory)
            form, described = (directory / "metadata").read_text().splitlines()
            metadata = json.loads(described)
            families = metadata.get("columnFamilyMapping", {})
            if form != "v1" or metadata.get("logFiles") or (self._is_log and families.get("log") != _LOG_FAMILY):
                raise UnknownFilesError(f"the snapshot has an unknown form: {form} {described}")
            _check_names(path, metadata)
            for file in metadata["sstFiles"]:
                stored = _regular(self._directory / "SSTs" / file["dfsSstFileName"])
                (directory / file["localFileName"]).symlink_to(stored.absolute())
            opened = Rdict(name, Options(raw_mode=True), access_type=AccessType.read_only(False))
            try:
                return self._rows_in(opened.iter())
            finally:
                opened.close()

    def _rows_in(self, entries: Any) -> dict[int, bytes]:
        """Return the rows of the range, from an iterator of RocksDB."""
        rows: dict[int, bytes] = {}
        entries.seek(self._form.prefix)
        while entries.valid() and entries.key().startswith(self._form.prefix):
            packed = self._form.packed(entries.value())
            if packed is not None:
                rows[self._form.number(entries.key())] = packed
            entries.next()
        entries.status()  # raises an error if the iterator ended because of a damaged block
        return rows


def apply_changes(rows: dict[int, bytes], changes: Mapping[int, bytes | None]) -> None:
    """Change the rows of a range; see `RangeFiles.changes`."""
    for number, packed in changes.items():
        if packed is None:
            rows.pop(number, None)
        else:
            rows[number] = packed


@attrs.frozen
class _GroupsForm:
    """The form of rows on the store *groups*. A range is a single row. Its value has the state as a row in a row, and
    the timeout. `_LogForm` has the same attributes and methods.

    :param range: the number of the range
    """

    range: int
    _key = struct.Struct("<xqq")
    _value = struct.Struct("<bqIIq")
    _state = struct.Struct("<qII")

    @property
    def prefix(self) -> bytes:
        """The beginning of the rows' keys."""
        return self._key.pack(0, self.range)

    def number(self, key: bytes) -> int:
        """Return the number of the row with a key."""
        _check(key == self.prefix)
        return 0

    def packed(self, value: bytes) -> bytes | None:
        """Return the content of a row."""
        version, nulls, size, offset, _ = self._value.unpack_from(value)
        if (version, nulls, size, offset) == (0, 1, 0, 0):
            return None
        _check((version, nulls, offset) == (0, 0, self._value.size - 1) and size == len(value) - self._value.size)
        nulls, size, offset = self._state.unpack_from(value, self._value.size)
        if (nulls, size, offset) == (1, 0, 0):
            return None
        _check(nulls == 0)
        _check(offset == self._state.size)
        return _last_field(value, self._value.size + offset, size)


@attrs.frozen
class _LogForm:
    """The key consists of the column family, the size of the range's row, this row, and the row with the number. The
    value is base64 text. Each of these rows contains another row, except for the value.

    :param range: the number of the range
    """

    range: int
    _begin = struct.Struct("<hI")
    _row = struct.Struct("<xqIIqq")
    _value = struct.Struct("<xqII")

    @property
    def prefix(self) -> bytes:
        return self._begin.pack(_LOG_FAMILY, self._row.size) + self._row.pack(0, 16, 16, 0, self.range)

    def number(self, key: bytes) -> int:
        *form, number = self._row.unpack(key[len(self.prefix) :])
        _check(form == [0, 16, 16, 0])
        return int(number)

    def packed(self, value: bytes) -> bytes | None:
        nulls, size, offset = self._value.unpack_from(value)
        _check(nulls == 0 and offset == self._value.size - 1)
        return base64.b64decode(_last_field(value, self._value.size, size), validate=True)


def _last_field(value: bytes, begin: int, size: int) -> bytes:
    """Return the last field of a row, after which the row is only filled to a multiple of eight bytes."""
    _check(begin + size <= len(value) < begin + size + 8)
    return value[begin : begin + size]


def check_for_spark(checkpoint: Path) -> None:
    """Check a checkpoint before Spark reads its state: Spark would write files that snapshots name anywhere, and create
    an object of any class that the offsets of a batch name.

    What Spark may read differently than this function is refused.

    :raises CheckpointError: a snapshot names a file outside of its directory, the offsets name a class that is none of
        Spark's stores, or one of these files cannot be read
    """
    for path in (checkpoint / "offsets").glob("[0-9]*"):
        with _refused_unless_readable(path):
            provider = _settings(path).get(_PROVIDER, _STORES[0])
            if not str(provider).startswith(_STORES):
                _refuse(path, f"names a class that is no store ({shown_value(provider, _SHOWN)})")
    for path in (checkpoint / "state").rglob("*.zip"):
        with _refused_unless_readable(path), zipfile.ZipFile(_regular(path)) as archive:
            _check_size(path, archive)
            if len(set(archive.namelist())) != len(archive.namelist()):
                _refuse(path, "contains two files with one name")
            check_read_order(archive)
            form, _, described = archive.read("metadata").partition(b"\n")
            if not form.removeprefix(b"v").isdigit():  # Java also ends a line at other characters
                raise ValueError(f"its version is {form!r:.{_SHOWN}}")
            _check_names(path, _json(described.decode()))


@contextmanager
def _refused_unless_readable(path: Path) -> Iterator[None]:
    """Refuse a checkpoint if a file in it cannot be read; ignore a file that a run has removed."""
    try:
        yield
    except CheckpointError:
        raise
    except FileNotFoundError:
        pass
    except Exception as error:  # zipfile raises many kinds of errors
        _refuse(path, f"cannot be read ({error})")


def _settings(offsets: Path) -> dict[str, Any]:
    """Return the settings in the offsets of a batch. Spark ends lines only at line feeds and carriage returns."""
    _, described, *_ = [*_regular(offsets).read_text(encoding="utf-8").split("\n"), ""]
    return dict(_json(described)["conf"]) if described.strip() else {}


def _json(text: str) -> Any:
    """Parse JSON whose objects have each name once: of two values of a name, Java might take the other one."""

    def once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        found = dict(pairs)
        if len(found) != len(pairs):
            raise ValueError("an object has a name twice")
        return found

    return json.loads(text, object_pairs_hook=once)


def _check_size(path: Path, archive: zipfile.ZipFile) -> None:
    most = most_inflated(path.stat().st_size)
    if sum(info.file_size for info in archive.infolist()) > most:
        _refuse(path, f"decompresses to more than {most:,} bytes")


def _check_names(path: Path, metadata: Mapping[str, Any]) -> None:
    """Check the names of files in the metadata of a snapshot."""
    for file in (*(metadata.get("sstFiles") or ()), *(metadata.get("logFiles") or ())):
        for field, name in file.items():
            if field.endswith("FileName") and (
                not isinstance(name, str) or name in ("", "..") or Path(name).name != name
            ):
                _refuse(path, f"names a file outside of it ({shown_value(name, _SHOWN)})")


def _refuse(path: Path, why: str) -> NoReturn:
    raise CheckpointError(str(path.parent), f"{path.name} {why}. Do not use this checkpoint")


def _regular(path: Path) -> Path:
    """Return the path of a file, unless it is a pipe, for example, which could not be read to its end."""
    if path.exists() and not path.is_file():
        _refuse(path, "is not a regular file")
    return path


def _checked(path: Path) -> bytes:
    """Return the content of a file, after comparing it with the checksums that Hadoop has written for it."""
    content, checksums = (_regular(each).read_bytes() for each in (path, path.with_name(f".{path.name}.crc")))
    (size,) = _SIZE.unpack_from(checksums, len(_CRC_MAGIC))
    chunks = (content[at : at + size] for at in range(0, len(content), size))
    computed = b"".join(zlib.crc32(chunk).to_bytes(4, "big") for chunk in chunks)
    if checksums != _CRC_MAGIC + _SIZE.pack(size) + computed:
        raise UnknownFilesError(f"{path} is damaged")
    return content


def _decompressed(content: bytes) -> bytes:
    """Return the content of a file that Java's LZ4 streams have written."""
    import pyarrow as pa

    most = most_inflated(len(content))
    found = io.BytesIO()  # takes half as much memory as a list of parts and their concatenation
    at = 0
    while True:  # the checksums of the blocks are those of the file
        magic, token, stored, size, _ = _BLOCK.unpack_from(content, at)
        _check(magic == _MAGIC)
        if size == 0:  # the end
            return found.getvalue()
        if found.tell() + size > most:
            raise UnknownFilesError(f"{len(content):,} bytes would be more than {most:,} bytes when decompressed")
        part = content[at + _BLOCK.size : at + _BLOCK.size + stored]
        at += _BLOCK.size + stored
        found.write(part if token & _STORED else pa.decompress(part, size, codec="lz4_raw", asbytes=True))


def _records(changelog: bytes) -> Iterator[tuple[bytes, bytes | None]]:
    """Yield the keys and values in a changelog; the value of a removed key is `None`."""
    has_types = changelog.startswith(_VERSION)
    _check(changelog.startswith(_RECORD_TYPES) or not has_types)
    at = len(_RECORD_TYPES) if has_types else 0

    def sized() -> bytes | None:
        nonlocal at
        (size,) = _SIZE.unpack_from(changelog, at)
        at += _SIZE.size + max(size, 0)
        _check(size >= -1 and at <= len(changelog))
        return None if size < 0 else changelog[at - size : at]

    while True:
        type_ = _PUT
        if has_types:
            type_ = changelog[at]
            at += 1
            if type_ == _END:
                return
            _check(type_ in (_PUT, _DELETE))
        key = sized()
        if key is None:
            return
        yield key, sized()


def _check(is_known: bool) -> None:
    if not is_known:
        raise UnknownFilesError("rows have an unknown form")


@contextmanager
def _as_unknown() -> Iterator[None]:
    """Convert errors from reading files into an `UnknownFilesError`."""
    try:
        yield
    except (UnknownFilesError, CheckpointError):
        raise
    except Exception as error:  # the libraries raise many kinds of errors
        raise UnknownFilesError(str(error)) from error
