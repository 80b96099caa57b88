"""Draws changes of what amadou reads. Bytes are damaged; or values inside are replaced, and all checksums and sizes
around them are made right again, as somebody can who means harm.
"""

import hashlib
import json
import random
import struct
import zlib
from base64 import b64decode, b64encode
from collections.abc import Callable
from contextlib import suppress
from functools import cache, partial
from typing import Any

import msgpack
import pyarrow as pa

from amadou.text import shortened
from amadou_runtime.spark.savepoints.state_files import _decompressed, _records


class Draw(random.Random):
    """Draws an input.

    :ivar notes: what was changed, for people
    """

    def __init__(self, seed: int, number: int) -> None:
        super().__init__(f"{seed} {number}")
        self.notes: list[str] = []

    def happens(self, chance: float) -> bool:
        return self.random() < chance

    def times(self) -> range:
        """How often something is changed: mostly once."""
        return range(self.choice((1, 1, 1, 1, 2, 5)))

    def note(self, text: str) -> None:
        self.notes.append(shortened(text, 120))


def nested(depth: int) -> Any:
    value: Any = []
    for _ in range(depth):
        value = [value]
    return value


def extensions(depth: int) -> bytes:
    """Return a packed tuple in a tuple, and so on."""
    packed = b"\xc0"
    for _ in range(depth):
        packed = msgpack.packb(msgpack.ExtType(1, b"\x91" + packed))
    return packed


_MARK = "\x02odd\x03"
"""Stands for what no value is written as: one of the texts or bytes below."""
_VALUES: tuple[Any, ...] = (
    *(None, True, False, 0, 1, -1, 7, 1 << 31, 1 << 53, 10**18, (1 << 63) - 1, -(1 << 63), (1 << 64) - 1),
    *(0.5, -0.0, 1e308, float("nan"), float("inf"), -float("inf")),
    *("", "x", "\0", "..", "a" * 5_000, "\u2028", "2025-01-01T00:00:00+00:00", "0001-01-01T00:00:00+23:59"),
    *([], [[]], [1, 2], ["x", "y"], {}, {"": 1}, {"a": {"b": []}}, nested(70), nested(400)),
)
_JSON_VALUES = (*_VALUES, 10**30, "\ud800", {"$decimal": "x"}, {"$map": [[[], 1]]}, {"$set": [[]]}, _MARK, _MARK)
_JSON_TEXTS = (
    *("[" * 100_000, "[" * 990 + "]" * 990, '{"a":' * 50_000, "9" * 5_000, "1" + "0" * 400, "1e999", "NaN"),
    *('"\\ud800"', '"\\u0000"', '"\\', f'"{"x" * 1_000_000}"', "", "-", "nul", "\ufeff1", '"a" "b"', "-Infinity"),
)
_PAYLOADS = (
    *(b"", b"\xff", b"\x90", b"\x91\x90", b"\x91\x80", b"\x92\x01", b"\xc0", b"\xa1x", b"NaN", b"sNaN", b"1e999999999"),
    *(b"\x92\xa9os:system\x80", b"\x92\xa3a:b\xa1x", b"\x92\xafdecimal:Decimal\x80", bytes(4), bytes(16), b"\xff" * 8),
    *(b"9" * 10_000, b"\xd3\x80" + bytes(7), b"\xcb\x7f\xf0" + bytes(6), b"\xff" * 100_000, extensions(80)),
)
"""Contents of msgpack's extensions."""
_FRAGMENTS = (
    *(b"", b"\xc1", b"\xa2\xff\xfe", b"\xa3\xed\xa0\x80", b"\x81\x90\xc0", b"\x81\x80\xc0", extensions(200)),
    *(b"\xdd\xff\xff\xff\xff", b"\xdf\xff\xff\xff\xff", b"\xc6\xff\xff\xff\xff", b"\xdb\xff\xff\xff\xff"),
    *(b"\xd6\xff\xff\xff\xff\xff", b"\xd7\xff" + b"\xff" * 8, b"\xc7\x0c\xff" + b"\xff" * 12, b"\xd4\xff\x00"),
    *(b"\x91" * 1_000 + b"\xc0", b"\x91" * 5_000 + b"\xc0", b"\xdd\x00\x10\x00\x00" + b"\xc0" * (1 << 20)),
    *(b"\xdd\x00\x10\x00\x00" + empty * (1 << 20) for empty in (b"\x80", b"\x90", b"\xd4\x02\x90")),
)
"""Bytes in the place of packed values: invalid, cut, too deep or too many, and keys and times that cannot be."""


def odd_value(draw: Draw) -> Any:
    """Return a value that is most likely wrong, wherever it is."""
    return draw.choice(_VALUES)


def changed(draw: Draw, tree: Any, odd: Callable[[], Any], where: str) -> Any:
    """Return a tree with a change at a random place: a value is removed, repeated, moved or replaced.

    :param odd: draws a value in the place of another
    """
    if draw.happens(0.85):
        if type(tree) is dict and tree:
            return _changed_map(draw, tree, odd, where)
        if type(tree) is list and tree:
            return _changed_list(draw, tree, odd, where)
        packed, put = _packed_in(tree)
        if packed:
            return put(changed_packed(draw, packed, f"{where}→"))
    value = odd()
    draw.note(f"{where} = {value!r}")
    return value


def _changed_map(draw: Draw, tree: dict[Any, Any], odd: Callable[[], Any], where: str) -> Any:
    key = draw.choice(list(tree))
    kind = draw.random()
    if kind < 0.1:
        draw.note(f"{where} without {key!r}")
        return {name: value for name, value in tree.items() if name != key}
    if kind < 0.2:
        other = odd()
        name = str(other) if isinstance(other, list | dict) else other
        draw.note(f"{where} also with {name!r}")
        return {**tree, name: tree[key]}
    return {**tree, key: changed(draw, tree[key], odd, f"{where}.{key}")}


def _changed_list(draw: Draw, tree: list[Any], odd: Callable[[], Any], where: str) -> Any:
    at = draw.randrange(len(tree))
    kind = draw.choice(("without", "twice", "instead of", *(["in"] * 8)))
    if kind == "in":
        return [*tree[:at], changed(draw, tree[at], odd, f"{where}[{at}]"), *tree[at + 1 :]]
    draw.note(f"{kind} {where}[{at}]")
    new = {"without": [], "twice": [tree[at], tree[at]], "instead of": [draw.choice(tree)]}[kind]
    return [*tree[:at], *new, *tree[at + 1 :]]


def _packed_in(value: Any) -> tuple[bytes, Callable[[bytes], Any]]:
    """Return packed bytes that a value contains, if any, and the function that puts others in their place."""
    packed: bytes = b""
    put: Callable[[bytes], Any] = bytes
    if isinstance(value, msgpack.ExtType):
        packed, put = value.data, partial(msgpack.ExtType, value.code)
    elif isinstance(value, bytes):
        packed = value
    elif isinstance(value, str) and len(value) >= 16:
        with suppress(ValueError):
            packed, put = b64decode(value, validate=True), lambda new: b64encode(new).decode()
    with suppress(Exception):
        msgpack.unpackb(packed, strict_map_key=False)
        return packed, put
    return b"", put


def changed_packed(draw: Draw, packed: bytes, where: str) -> bytes:
    """Return packed bytes with other values, also inside of what is packed again inside of them."""

    def odd() -> Any:
        kind = draw.randrange(4)
        if kind == 0:
            return msgpack.ExtType(draw.randrange(12), draw.choice(_PAYLOADS))
        return draw.choice((_MARK, b"", b"\xff", b"\x92\x01")) if kind == 1 else odd_value(draw)

    tree = msgpack.unpackb(packed, strict_map_key=False)
    for _ in draw.times():
        tree = changed(draw, tree, odd, where)
    new, mark, fragment = msgpack.packb(tree), msgpack.packb(_MARK), draw.choice(_FRAGMENTS)
    if mark in new:
        draw.note(f"odd: {fragment[:20]!r}")
    return bytes(new.replace(mark, fragment))


def changed_json(draw: Draw, text: str | bytes, where: str = "$") -> str:
    """Return JSON with other values."""
    tree = json.loads(text)
    for _ in draw.times():
        tree = changed(draw, tree, lambda: draw.choice(_JSON_VALUES), where)
    new, mark, other = json.dumps(tree), json.dumps(_MARK), draw.choice(_JSON_TEXTS)
    if mark in new:
        draw.note(f"odd: {other[:20]}")
    return new.replace(mark, other)


def damaged(draw: Draw, data: bytes) -> bytes:
    """Return other bytes: cut, with other bits, or with bytes that are missing or too many."""
    at, size = draw.randrange(len(data) + 1), draw.choice((1, 4, 64))
    kind = draw.choice(("cut", "bits", "without", "with", "zero", "twice"))
    draw.note(f"{kind} at {at} of {len(data)} bytes")
    if kind == "bits":
        bits = bytearray(data)
        for _ in draw.times() if data else ():
            bits[draw.randrange(len(data))] ^= 1 << draw.randrange(8)
        return bytes(bits)
    rest = {
        "cut": b"",
        "without": data[at + size :],
        "with": draw.randbytes(size) + data[at:],
        "zero": bytes(size) + data[at + size :],
        "twice": data[max(at - size, 0) :],
    }
    return data[:at] + rest[kind]


# Compression. What decompresses to far more is made before memory is limited: see `bombs`.


def deflated(draw: Draw, data: bytes) -> bytes:
    """Return compressed data, which is rarely damaged, or decompresses to far more."""
    if draw.happens(0.004):
        name = draw.choice(("zeros", "items", "maps"))
        draw.note(f"decompresses to far more: {name}")
        return bombs()[name]
    compressed = zlib.compress(data, 1)
    return damaged(draw, compressed) if draw.happens(0.03) else compressed


def as_lz4(draw: Draw, data: bytes) -> bytes:
    """Return data in the form of `formats/compressed.py`, rarely with a wrong size, or so that it becomes large."""
    if draw.happens(0.004):
        name = draw.choice(("lz4", "lz4 maps"))
        draw.note(f"decompresses to far more: {name}")
        return bombs()[name]
    size = len(data)
    if draw.happens(0.04):
        size = draw.choice((0, max(size - 1, 0), size + 1, 300 << 20, 1 << 40, (1 << 64) - 1))
        draw.note(f"size {size:,} instead of {len(data):,}")
    return _lz4(data, size)


def _lz4(data: bytes, size: int) -> bytes:
    return size.to_bytes(8, "big") + bytes(pa.compress(data, "lz4", asbytes=True))


@cache
def bombs() -> dict[str, bytes]:
    """Return small data that decompresses to 128 MiB, to a packed list of 60 million items, or to 8 million maps, which
    take 600 MB.
    """
    items = b"\xdd" + (60_000_000).to_bytes(4, "big") + bytes(60_000_000)
    maps = b"\xdd" + (8_000_000).to_bytes(4, "big") + b"\x80" * 8_000_000
    return {
        "zeros": zlib.compress(bytes(128 << 20), 1),
        "items": zlib.compress(items, 1),
        "maps": zlib.compress(maps, 1),
        "lz4": _lz4(items, len(items)),
        "lz4 maps": _lz4(maps, len(maps)),
    }


# Files of savepoints and checkpoints

_TRAILER = struct.Struct(">QII8s")


def crafted_state(draw: Draw, content: bytes) -> bytes:
    """Return a file of blocks (see `savepoint/state_file.py`) with other values in a block, or in the index."""
    offset, size, _, magic = _TRAILER.unpack(content[-_TRAILER.size :])
    places = msgpack.unpackb(zlib.decompress(content[offset : offset + size]))
    blocks = [content[place[3] : place[3] + place[4]] for place in places]
    in_index = draw.happens(0.2)
    if not in_index:
        at = draw.randrange(len(blocks))
        blocks[at] = deflated(draw, changed_packed(draw, zlib.decompress(blocks[at]), f"block {at} "))
    body = b""
    for place, block in zip(places, blocks, strict=True):
        place[3:] = [len(body), len(block), zlib.crc32(block)]
        body += block
    index = msgpack.packb(places)
    index = deflated(draw, changed_packed(draw, index, "index ")) if in_index else zlib.compress(index)
    return body + index + _TRAILER.pack(len(body), len(index), zlib.crc32(index), magic)


def crafted_reference(draw: Draw, content: bytes) -> bytes:
    """Return the file of a reference with other values."""
    return b64encode(deflated(draw, changed_packed(draw, zlib.decompress(b64decode(content)), "reference ")))


def sealed(text: str) -> str:
    """Return a savepoint's manifest with the right checksum."""
    try:
        fields = json.loads(text)
        fields.pop("checksum", None)
        digest = hashlib.sha256(json.dumps(fields, sort_keys=True).encode()).hexdigest()
        return json.dumps({**fields, "checksum": digest})
    except (ValueError, TypeError, AttributeError, RecursionError):  # no checksum makes it right
        return text


def sealed_with(manifest: bytes, name: str, content: bytes) -> str:
    """Return a savepoint's manifest with the right size and hash of a file."""
    fields = json.loads(manifest)
    for file in (*fields["files"], *fields["state_files"]):
        if name in (file["name"], f"state/{file['name']}"):
            file.update(bytes=len(content), sha256=hashlib.sha256(content).hexdigest())
    return sealed(json.dumps(fields))


def hadoop_checksums(content: bytes, size: int = 512) -> bytes:
    """Return the file with Hadoop's checksums of a file."""
    chunks = (content[at : at + size] for at in range(0, len(content), size))
    return b"crc\0" + size.to_bytes(4, "big") + b"".join(zlib.crc32(chunk).to_bytes(4, "big") for chunk in chunks)


_BLOCK = struct.Struct("<8sBIII")
_LOG_VALUE = struct.Struct("<xqII")
_GROUPS_VALUE = struct.Struct("<bqIIqqII")
"""The forms of Spark's files and rows: see `spark/savepoints/state_files.py`."""


def crafted_changelog(draw: Draw, content: bytes, *, is_log: bool) -> bytes:
    """Return a changelog of Spark with other values in a segment, the head or a range, or with other bytes.

    :param is_log: `False` for one of the store `groups`
    """
    entries = [*_records(_decompressed(content))]
    family = b"\x02\x00" if is_log else b""
    stored = [at for at, (key, value) in enumerate(entries) if value is not None and key.startswith(family)]
    is_crafted = bool(stored) and draw.happens(0.8)
    if is_crafted:
        at = draw.choice(stored)
        key, value = entries[at]
        assert value is not None
        number = int.from_bytes(key[-8:], "little")
        entries[at] = key, crafted_segment(draw, value, number) if is_log else crafted_range(draw, value)
    changelog = b"\x00\x02v2" + b"".join(b"\x01" + _sized(key) + _sized(value) for key, value in entries) + b"\x00"
    return _in_block(changelog if is_crafted else damaged(draw, changelog))


def _sized(part: bytes | None) -> bytes:
    return (-1).to_bytes(4, "big", signed=True) if part is None else len(part).to_bytes(4, "big") + part


def _in_block(content: bytes) -> bytes:
    """Return a file as Java's LZ4 streams write it, with one block, which is not compressed."""
    block = _BLOCK.pack(b"LZ4Block", 0x10, len(content), len(content), 0) + content if content else b""
    return block + _BLOCK.pack(b"LZ4Block", 0x10, 0, 0, 0)


def crafted_segment(draw: Draw, value: bytes, number: int) -> bytes:
    """Return Spark's row of a segment of a log, or of its head, with other values."""
    size = _LOG_VALUE.unpack_from(value)[1]
    segment = b64decode(value[_LOG_VALUE.size : _LOG_VALUE.size + size])
    packed = pa.decompress(segment[12:], int.from_bytes(segment[4:12], "big"), "lz4", asbytes=True)
    new = as_lz4(draw, changed_packed(draw, packed, f"segment {number} "))
    checksum = zlib.crc32(new, zlib.crc32(number.to_bytes(8, "big")))
    text = b64encode(checksum.to_bytes(4, "big") + new)
    return _filled(_LOG_VALUE.pack(0, len(text), 16) + text, 1)


def crafted_range(draw: Draw, value: bytes) -> bytes:
    """Return Spark's row of a key range on the store `groups`, with other values."""
    *_, timeout, _, size, _ = _GROUPS_VALUE.unpack_from(value)
    stored = value[_GROUPS_VALUE.size : _GROUPS_VALUE.size + size]
    packed = pa.decompress(stored[8:], int.from_bytes(stored[:8], "big"), "lz4", asbytes=True)
    new = as_lz4(draw, changed_packed(draw, packed, "range "))
    filled = _filled(new, 0)
    return _GROUPS_VALUE.pack(0, 0, 16 + len(filled), 24, timeout, 0, len(new), 16) + filled


def _filled(row: bytes, before: int) -> bytes:
    """Fill a row, after some bytes before it, to a multiple of eight bytes."""
    return row + bytes(-(len(row) - before) % 8)
