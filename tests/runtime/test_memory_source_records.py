"""Records that a `MemorySource` stores in a checkpoint of Spark: data that no code runs to read."""

import base64
import pickle
from datetime import date, datetime, timedelta, timezone
from decimal import Decimal
from enum import Enum
from pathlib import Path
from typing import Any, NamedTuple
from uuid import UUID

import attrs
import pyarrow as pa
import pytest

from amadou import KeyedEvent, MemorySource
from amadou.engine import pack
from amadou.errors import AmadouError, SourceError


class Color(Enum):
    RED = "red"


@attrs.frozen
class Item:
    name: str
    parts: "tuple[Item, ...]" = ()


class Pair(NamedTuple):
    left: Any
    right: Any


class Unsupported:
    """Has no fields, so it cannot be stored."""

    def __repr__(self) -> str:
        return "Unsupported()"


AT = datetime(2025, 1, 1, tzinfo=timezone.utc)
RECORDS: list[Any] = [
    None,
    b"\x80\x04\x95\n",
    "a\nb",
    {"n": 1, (1, 2): [2**70, -0.5]},
    [{1, 2}, frozenset("ab"), date(2025, 1, 1), timedelta(microseconds=1), Decimal("1.50"), UUID(int=1)],
    Item("a", (Item("b"),)),
    Pair(Color.RED, [Item("c")]),
    KeyedEvent("k", AT, {"at": AT}),
]


def lines_in(directory: Path) -> list[bytes]:
    return [line for path in sorted(directory.iterdir()) for line in path.read_bytes().splitlines()]


def records_in(directory: Path) -> list[Any]:
    return list(MemorySource.to_records(pa.array([line.decode() for line in lines_in(directory)])))


def test_a_memory_source_reads_the_records_that_it_has_stored_for_spark(tmp_path: Path) -> None:
    MemorySource(RECORDS)._write(tmp_path / "in")
    assert records_in(tmp_path / "in") == RECORDS
    assert [type(record) for record in records_in(tmp_path / "in")] == [type(record) for record in RECORDS]


def test_a_memory_source_stores_only_the_records_that_were_added(tmp_path: Path) -> None:
    source = MemorySource(RECORDS[:2])
    for added in ([], [], RECORDS[2:4], RECORDS[4:]):
        source.add(*added)
        source._write(tmp_path)
    assert [path.name for path in sorted(tmp_path.iterdir())] == [
        "packed-000000002-at-000000000.txt",
        "packed-000000002-at-000000002.txt",
        "packed-000000004-at-000000004.txt",
    ]
    assert records_in(tmp_path) == RECORDS


def test_a_memory_source_pickles_no_record(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("dumps", "dump", "loads", "load"):
        monkeypatch.delattr(pickle, name)
    MemorySource(RECORDS)._write(tmp_path)
    assert [base64.b64decode(line) for line in lines_in(tmp_path)] == list(map(pack, RECORDS))
    assert records_in(tmp_path) == RECORDS


@pytest.mark.parametrize(
    ("record", "problem"),
    [
        (
            Unsupported(),
            r"cannot store Unsupported\(\) .*Unsupported is not supported: use str, int, .* an attrs class",
        ),
        ([{"a": (Unsupported(),)}], r"cannot store Unsupported\(\) "),
        (len, "cannot store <built-in function len>"),
        (1j, "cannot store 1j"),
        ("\ud800", "surrogates not allowed"),
        (datetime(2025, 1, 1), "has no time zone: use an aware datetime"),
        (Item(5), r"cannot store 5 \(int\) as str"),  # type: ignore[arg-type]
    ],
    ids=["object", "inside", "function", "complex", "surrogate", "naive time", "field"],
)
def test_a_record_that_cannot_be_stored_is_an_error_and_no_record_is_stored(
    record: Any, problem: str, tmp_path: Path
) -> None:
    source = MemorySource(["stored"])
    source._write(tmp_path)
    source.add("not stored", record)
    with pytest.raises(AmadouError, match=problem):
        source._write(tmp_path)
    assert records_in(tmp_path) == ["stored"]


def test_pickled_records_of_an_earlier_version_are_refused_with_a_way_out(tmp_path: Path) -> None:
    class Runs:
        def __reduce__(self) -> Any:
            return Path.mkdir, (tmp_path / "ran",)

    directory = tmp_path / "memory" / "in"
    directory.mkdir(parents=True)
    pickled = directory / "records-000000001-at-000000000.txt"
    pickled.write_bytes(base64.b64encode(pickle.dumps(Runs())))
    for records in ([], ["a"], ["a", "b"]):
        with pytest.raises(
            SourceError, match=r"memory/in are pickled.*: use a new checkpoint; or give .* another name"
        ):
            MemorySource(records)._write(directory)
    assert list(directory.iterdir()) == [pickled]
    with pytest.raises((AmadouError, ValueError)):
        list(MemorySource.to_records(pa.array([pickled.read_text()])))
    assert not (tmp_path / "ran").exists()
