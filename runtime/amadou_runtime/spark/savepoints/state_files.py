"""Reads the state of one key range from the files that Spark's RocksDB state store writes to a local checkpoint. This
needs neither Java nor a Spark session, which alone takes several seconds to start.

Spark writes a changelog for each version of a partition's state, and a snapshot now and then: a zip file with RocksDB's
own files, except for the SST files, which are in a directory beside it. Batch N writes version N + 1. Keys and values
are Spark's `UnsafeRow`, after a byte with the version of this encoding.
"""

import base64
import json
import struct
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final, Protocol

import attrs

from amadou_runtime.spark.spread import spark_hash

_OPERATOR: Final = "state/0"
_BLOCK: Final = struct.Struct("<8sBIII")
"""Header of a block of Java's LZ4 streams: magic, token, compressed and original size, checksum."""
_MAGIC: Final = b"LZ4Block"
_STORED: Final = 0x10
"""In the token of a block that is not compressed."""
_SIZE: Final = struct.Struct(">i")
_PUT, _DELETE, _END = 0x01, 0x10, 0x00
_RECORD_TYPES: Final = b"\x00\x02v2"
"""Begins a changelog whose records have a type."""
_LOG_FAMILY: Final = 2
"""Number of the column family that Spark creates for the log, after the default one."""


class UnknownFilesError(Exception):
    """The files are incomplete, or in a form that this module does not know. Spark may know it."""


class RangeFiles:
    """The files with the state of a key range.

    :param checkpoint: the checkpoint
    :param store: the checkpoint's store
    :param number: the number of the range
    """

    def __init__(self, checkpoint: Path, store: str, number: int) -> None:
        operator = checkpoint / _OPERATOR
        with _as_unknown():
            partitions = sum(each.name.isdecimal() for each in operator.iterdir())
            self._directory = operator / str(spark_hash(number) % partitions)
        self._form: _Form = _LogForm(number) if store == "log" else _GroupsForm(number)

    def rows(self, batch: int) -> dict[int, bytes]:
        """Return the rows of the range as of a batch, by number; see `stored_rows`.

        :raises UnknownFilesError: the files cannot be read
        """
        version = batch + 1
        with _as_unknown():
            snapshots = (int(path.stem) for path in self._directory.glob("*.zip"))
            snapshot = max((each for each in snapshots if each <= version), default=0)
            rows = self._snapshot(snapshot) if snapshot else {}
        for later in range(snapshot, version):
            for number, packed in self.changes(later).items():
                if packed is None:
                    rows.pop(number, None)
                else:
                    rows[number] = packed
        return rows

    def changes(self, batch: int) -> dict[int, bytes | None]:
        """Return the rows of the range that a batch has changed, by number. A removed row is `None`.

        :raises UnknownFilesError: the files cannot be read
        """
        with _as_unknown():
            records = _records(_decompressed((self._directory / f"{batch + 1}.changelog").read_bytes()))
            return {
                self._form.number(key): None if value is None else self._form.packed(value)
                for key, value in records
                if key.startswith(self._form.prefix)
            }

    def _snapshot(self, version: int) -> dict[int, bytes]:
        from rocksdict import AccessType, Options, Rdict

        with TemporaryDirectory(prefix="amadou-snapshot-") as directory:
            with zipfile.ZipFile(self._directory / f"{version}.zip") as archive:
                archive.extractall(directory)
            form, described = (Path(directory) / "metadata").read_text().splitlines()
            metadata = json.loads(described)
            if form != "v1" or metadata.get("columnFamilyMapping", {}).get("log", _LOG_FAMILY) != _LOG_FAMILY:
                raise UnknownFilesError(f"the snapshot has an unknown form: {form} {described}")
            for file in metadata["sstFiles"]:
                stored = self._directory / "SSTs" / file["dfsSstFileName"]
                (Path(directory) / file["localFileName"]).symlink_to(stored.absolute())
            opened = Rdict(directory, Options(raw_mode=True), access_type=AccessType.read_only(False))
            try:
                rows: dict[int, bytes] = {}
                items: Iterator[tuple[Any, Any]] = opened.items(from_key=self._form.prefix)
                for key, value in items:
                    if not key.startswith(self._form.prefix):
                        break
                    packed = self._form.packed(value)
                    if packed is not None:
                        rows[self._form.number(key)] = packed
                return rows
            finally:
                opened.close()


class _Form(Protocol):
    """The form of the rows of a key range.

    :ivar prefix: the beginning of the rows' keys
    """

    @property
    def prefix(self) -> bytes: ...

    def number(self, key: bytes) -> int:
        """Return the number of the row with a key."""

    def packed(self, value: bytes) -> bytes | None:
        """Return the content of a row."""


@attrs.frozen
class _GroupsForm:
    """A range is a single row. Its value has the state as a row in a row, and the timeout.

    :param range: the number of the range
    """

    range: int
    _key = struct.Struct("<xqq")
    _value = struct.Struct("<xqIIq")
    _state = struct.Struct("<qII")

    @property
    def prefix(self) -> bytes:
        return self._key.pack(0, self.range)

    def number(self, key: bytes) -> int:
        _check(key == self.prefix)
        return 0

    def packed(self, value: bytes) -> bytes | None:
        nulls, size, offset, _ = self._value.unpack_from(value)
        if nulls & 1:
            return None
        _check(offset == self._value.size - 1 and size <= len(value) - self._value.size)
        nulls, size, offset = self._state.unpack_from(value, self._value.size)
        if nulls:
            return None
        begin = self._value.size + offset
        _check(offset == self._state.size and begin + size <= len(value) < begin + size + 8)
        return value[begin : begin + size]


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
        begin = self._value.size
        _check(nulls == 0 and offset == begin - 1 and begin + size <= len(value) < begin + size + 8)
        return base64.b64decode(value[begin : begin + size], validate=True)


def _decompressed(content: bytes) -> bytes:
    """Return the content of a file that Java's LZ4 streams have written."""
    import pyarrow as pa

    parts: list[bytes] = []
    at = 0
    while True:
        magic, token, stored, size, _ = _BLOCK.unpack_from(content, at)
        _check(magic == _MAGIC)
        if size == 0:  # the end
            return b"".join(parts)
        part = content[at + _BLOCK.size : at + _BLOCK.size + stored]
        at += _BLOCK.size + stored
        parts.append(part if token & _STORED else pa.decompress(part, size, codec="lz4_raw", asbytes=True))


def _records(changelog: bytes) -> Iterator[tuple[bytes, bytes | None]]:
    """Yield the keys and values in a changelog; the value of a removed key is `None`."""
    has_types = changelog.startswith(_RECORD_TYPES)
    at = len(_RECORD_TYPES) if has_types else 0

    def sized() -> bytes | None:
        nonlocal at
        (size,) = _SIZE.unpack_from(changelog, at)
        at += _SIZE.size + max(size, 0)
        _check(at <= len(changelog))
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
    except UnknownFilesError:
        raise
    except Exception as error:  # the libraries raise many kinds of errors
        raise UnknownFilesError(str(error)) from error
