"""A file with the blocks of a savepoint, ordered by position, and an index to find the block of a key.

The file consists of the compressed blocks, the compressed index, and a trailer of fixed size with the index's place.
`docs/savepoints.md` describes the format.
"""

import hashlib
import os
import struct
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from types import TracebackType
from typing import IO, Final, NamedTuple, NoReturn

import attrs

from amadou.engine import pack, unpack
from amadou.errors import SavepointError
from amadou_runtime.formats.documents import UNREADABLE
from amadou_runtime.formats.inflating import deflated, inflated
from amadou_runtime.savepoint.block import Block

_MAGIC: Final = b"amadou1\n"
_LEVEL: Final = 1
_TRAILER = struct.Struct(">QII8s")
"""Place, size and checksum of the index, and `_MAGIC`."""
_READ: Final = 1 << 20


class Place(NamedTuple):
    """Where a block is in its file.

    :param first: the block's first position; see `Block`
    :param last: the block's last position
    :param keys: number of keys
    :param offset: offset of the compressed block in the file, in bytes
    :param size: size of the compressed block in bytes
    :param checksum: CRC-32 of the compressed block
    """

    first: int
    last: int
    keys: int
    offset: int
    size: int
    checksum: int


@attrs.frozen
class StateFileInfo:
    """Description of a complete file.

    :param name: the file's name
    :param bytes: the file's size
    :param sha256: the file's SHA-256 hash, as hexadecimal digits
    :param first: first position of the file's blocks
    :param last: last position of the file's blocks
    :param keys: number of keys
    """

    name: str
    bytes: int
    sha256: str
    first: int
    last: int
    keys: int


class StateFileWriter:
    """Writes a file of blocks. As a context manager, it removes the file if the block fails.

    :raises OSError: the file cannot be written
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file: IO[bytes] = open(path, "xb")  # noqa: SIM115  closed by `finish` or `_discard`
        self._hash = hashlib.sha256()
        self._places: list[Place] = []
        self._offset = 0

    def __enter__(self) -> "StateFileWriter":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is not None:
            self._discard()

    def write(self, block: Block) -> None:
        """Write a block."""
        data = deflated(block.pack(), _LEVEL)
        checksum = zlib.crc32(data)
        self._places.append(Place(block.first, block.last, block.keys, self._offset, len(data), checksum))
        self._write(data)

    def _write(self, data: bytes) -> None:
        self._file.write(data)
        self._hash.update(data)
        self._offset += len(data)

    def finish(self) -> StateFileInfo | None:
        """Complete the file. Return its description; `None` if no block was written, and there is no file."""
        places = self._places
        if not places:
            self._discard()
            return None
        index = deflated(pack([list(place) for place in places]), _LEVEL)
        trailer = _TRAILER.pack(self._offset, len(index), zlib.crc32(index), _MAGIC)
        self._write(index)
        self._write(trailer)
        self._file.flush()
        os.fsync(self._file.fileno())
        self._file.close()
        return StateFileInfo(
            self._path.name,
            self._offset,
            self._hash.hexdigest(),
            min(place.first for place in places),
            max(place.last for place in places),
            sum(place.keys for place in places),
        )

    def _discard(self) -> None:
        self._file.close()
        self._path.unlink(missing_ok=True)


class StateFile:
    """Reads a file of blocks.

    :param path: the file
    :param savepoint: the savepoint's directory, for errors
    """

    def __init__(self, path: Path, savepoint: str) -> None:
        self._path = path
        self._savepoint = savepoint

    def blocks(self, first: int = 0, last: int | None = None) -> Iterator[Block]:
        """Yield the blocks that overlap an interval of positions, in order.

        :raises SavepointError: the file is damaged or missing
        """
        with self._opened() as file:
            for place in self._index(file):
                if place.last >= first and (last is None or place.first <= last):
                    yield self._block(file, place)

    def check_hash(self, expected: str, on_read: Callable[[int], None]) -> None:
        """Compare the file's hash with the expected one.

        :param on_read: called with the number of bytes read since the last call
        :raises SavepointError: the hash is wrong, or the file is missing
        """
        found = hashlib.sha256()
        with self._opened() as file:
            while data := file.read(_READ):
                found.update(data)
                on_read(len(data))
        if found.hexdigest() != expected:
            self._fail("its hash differs from the one in the manifest")

    def _opened(self) -> IO[bytes]:
        try:
            return open(self._path, "rb")
        except OSError as error:
            self._fail(error.strerror or str(error), error)

    def _index(self, file: IO[bytes]) -> list[Place]:
        try:
            file.seek(-_TRAILER.size, os.SEEK_END)
            offset, size, checksum, magic = _TRAILER.unpack(file.read())
            if magic != _MAGIC or offset + size > os.fstat(file.fileno()).st_size:
                raise ValueError("it has no trailer")
            file.seek(offset)
            index = file.read(size)
            if zlib.crc32(index) != checksum:
                raise ValueError("the checksum of its index is wrong")
            places = [Place(*place) for place in unpack(inflated(index))]
            if not all(type(part) is int and part >= 0 for place in places for part in place):
                raise ValueError("its index has other values than positions")
            return places
        except (OSError, struct.error, *UNREADABLE) as error:
            self._fail(str(error), error)

    def _block(self, file: IO[bytes], place: Place) -> Block:
        try:
            if place.offset + place.size > os.fstat(file.fileno()).st_size:
                raise ValueError(f"it ends before the block at {place.offset}")
            file.seek(place.offset)
            data = file.read(place.size)
            if len(data) != place.size or zlib.crc32(data) != place.checksum:
                raise ValueError(f"the checksum of the block at {place.offset} is wrong")
            return Block.unpack(place.first, place.last, place.keys, inflated(data))
        except (OSError, *UNREADABLE) as error:
            self._fail(str(error) or type(error).__name__, error)

    def _fail(self, damage: str, cause: Exception | None = None) -> NoReturn:
        raise SavepointError(
            self._savepoint,
            f"the file {self._path.name} is damaged or incomplete ({damage}). Copy the savepoint again, or use another",
        ) from cause
