"""Finds zip files that contain something else if they are read from their beginning, as Java's `ZipInputStream` does,
than by the directory at their end, as Python does.
"""

import struct
import zipfile
import zlib
from typing import Final

_HEADER: Final = struct.Struct("<4s2xHH8xIIHH")
"""Header before a file: signature, flags, method, compressed and original size, lengths of name and extra field."""
_DESCRIPTOR: Final = struct.Struct("<4s4xII")
"""What follows a file whose header has no sizes: signature, compressed and original size."""
_SIZES_FOLLOW: Final = 0x08


def check_read_order(archive: zipfile.ZipFile) -> None:
    """Check that a zip file consists of the files in its directory, one after another, and that headers agree with it.

    :param archive: a file whose contents have a total size for which there is memory
    :raises ValueError: the zip file consists of something else
    """
    file, at = archive.fp, 0
    assert file is not None
    for info in sorted(archive.infolist(), key=lambda info: info.header_offset):
        _check(info.header_offset == at, info)
        file.seek(at)
        signature, flags, method, *sizes, name_length, extra_length = _HEADER.unpack(file.read(_HEADER.size))
        described = [info.compress_size, info.file_size]
        _check((signature, flags, method) == (b"PK\x03\x04", info.flag_bits, info.compress_type), info)
        _check(file.read(name_length).decode("ascii") == info.filename, info)
        file.seek(extra_length, 1)
        content = file.read(info.compress_size)
        if method == zipfile.ZIP_DEFLATED:
            stream = zlib.decompressobj(-zlib.MAX_WBITS)
            size = len(stream.decompress(content, info.file_size + 1))
            _check(stream.eof and not stream.unused_data and size == info.file_size, info)
        else:
            _check(method == zipfile.ZIP_STORED and not flags & _SIZES_FOLLOW, info)
        if flags & _SIZES_FOLLOW:
            signature, *sizes = _DESCRIPTOR.unpack(file.read(_DESCRIPTOR.size))
            _check(signature == b"PK\x07\x08", info)
        _check(sizes == described, info)
        at = file.tell()
    if at != archive.start_dir:
        raise ValueError("there is something else between its files and its directory")


def _check(fits: bool, info: zipfile.ZipInfo) -> None:
    if not fits:
        raise ValueError(f"{info.filename} is not what its directory says")
