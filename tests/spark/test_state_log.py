"""The log of a key range: small, and never wrong in silence."""

import random
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.spark.log_storage import MemorySegments, opened

from amadou.errors import RunError, StateDecodeError
from amadou_runtime.store.log import segments as log_segments
from amadou_runtime.store.log.entries import StoreFigures
from amadou_runtime.store.log.limits import Limits
from amadou_runtime.store.log.merging import merged
from amadou_runtime.store.log.segments import Log

Changes = dict[bytes, tuple[bytes | None, int | None]]
COUNTER = b"12345678"


def store(segments: MemorySegments, directory: Path, changes: Changes, extra: bytes = b"") -> StoreFigures:
    with opened(segments, directory) as entries:
        return entries.store(changes, {}, extra)


def test_a_new_range_is_empty(tmp_path: Path) -> None:
    with opened(MemorySegments(), tmp_path) as entries:
        assert (entries.extra, entries.lost_unlogged, entries.next_time()) == (None, False, None)
        assert entries.get([b"a"]) == [None]
        assert entries.ids(b"") == []


def test_figures_count_live_entries(tmp_path: Path) -> None:
    segments = MemorySegments()
    store(segments, tmp_path, {b"a": (b"123", 5), b"bb": (b"", None)})
    figures = store(segments, tmp_path, {b"a": (b"1234", None), b"none": (None, None)}, b"extra")
    assert (figures.entries, figures.bytes) == (2, 5 + 2)
    assert store(segments, tmp_path, {b"a": (None, None), b"bb": (None, None)}).bytes == 0


def test_a_batch_that_changes_no_entry_writes_no_segment(tmp_path: Path) -> None:
    segments = MemorySegments()
    store(segments, tmp_path, {b"a": (b"1", 5)}, b"x")
    before = segments.copy()
    assert store(segments, tmp_path, {b"a": (b"1", 5), b"b": (None, None)}, b"x").bytes_written == 0
    assert segments.stored_head == before.stored_head
    assert store(segments, tmp_path, {}, b"y").bytes_written < 200
    assert segments.segments == before.segments
    with opened(segments, tmp_path) as entries:
        assert entries.extra == b"y"


def test_large_batches_are_divided_into_segments(tmp_path: Path) -> None:
    segments = MemorySegments()
    store(segments, tmp_path, {b"%d" % i: (random.randbytes(1000), None) for i in range(3000)})
    assert len(segments.segments) > 3
    assert max(map(len, segments.segments.values())) < 2 * log_segments.SEGMENT_BYTES


@pytest.mark.parametrize(
    ("entries", "value"), [(500, 1_000), (20, 25_000), pytest.param(15_000, 20, marks=pytest.mark.qualify)]
)
def test_a_merge_has_a_small_part_of_the_log_in_memory(entries: int, value: int, tmp_path: Path) -> None:
    segments = MemorySegments()
    for _ in range(40):
        store(segments, tmp_path, {random.randbytes(8): (random.randbytes(value), None) for _ in range(entries)})
    assert len(segments.segments) >= 40
    tracemalloc.start()
    try:
        merged_entries = sum(len(part) for part in merged(Log(segments, "3"), tmp_path / "spill"))
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert merged_entries == 40 * entries
    assert peak < segments.size / 3


def uniform(ids: list[bytes], batch: int) -> Changes:
    return {id_: (random.randbytes(8), None) for id_ in random.sample(ids, 500)}


def skewed(ids: list[bytes], batch: int) -> Changes:
    return {ids[int(random.paretovariate(0.5)) % len(ids)]: (random.randbytes(8), None) for _ in range(500)}


def inserts(ids: list[bytes], batch: int) -> Changes:
    return {b"%015d" % (batch * 500 + i): (random.randbytes(8), None) for i in range(500)}


def queue(ids: list[bytes], batch: int) -> Changes:
    dead = {b"%015d" % ((batch - 3) * 500 + i): (None, None) for i in range(500)}
    return {**dead, **inserts(ids, batch)}


def ttl(ids: list[bytes], batch: int) -> Changes:
    expired: Changes = dict.fromkeys(random.sample(ids, 100), (None, None))
    return expired | {id_: (random.randbytes(8), batch * 1000) for id_ in random.sample(ids, 500)}


@pytest.mark.parametrize(
    "workload",
    [queue, ttl, *(pytest.param(each, marks=pytest.mark.qualify) for each in (uniform, skewed, inserts))],
)
def test_the_log_stays_small_and_cleaning_is_cheap(
    workload: Callable[[list[bytes], int], Changes], tmp_path: Path
) -> None:
    segments = MemorySegments()
    ids = [random.randbytes(15) for _ in range(5000)]
    changed = written = 0
    for batch in range(200):
        changes = workload(ids, batch)
        figures = store(segments, tmp_path, changes)
        changed += sum(len(id_) + len(value or b"") + 8 * (time is not None) for id_, (value, time) in changes.items())
        written += figures.bytes_written
    assert written <= 3 * changed
    assert segments.size <= 2.5 * figures.bytes + 3 * (1 << 16)


def test_many_small_batches_make_few_segments(tmp_path: Path) -> None:
    segments = MemorySegments()
    store(segments, tmp_path, {b"%015d" % i: (COUNTER, None) for i in range(20_000)})
    for batch in range(300):
        store(segments, tmp_path, {b"%015d" % (batch * 37): (b"%8d" % batch, None)})
    assert len(segments.segments) < 150


def test_deleted_entries_do_not_return_when_segments_are_cleaned(tmp_path: Path) -> None:
    segments, model = MemorySegments(Limits(outdated=0, segments=4, merged=3)), dict[bytes, bytes]()
    for batch in range(120):
        changes: Changes = {}
        for _ in range(random.randrange(4)):
            value = random.choice([None, b"%d" % batch])
            changes[b"%d" % random.randrange(20)] = value, None
        store(segments, tmp_path / "view", changes)
        for id_, (value, _) in changes.items():
            model.pop(id_, None) if value is None else model.update({id_: value})
        with opened(segments, tmp_path / f"{batch}") as rebuilt:
            assert dict(zip(rebuilt.ids(b""), rebuilt.get(rebuilt.ids(b"")), strict=True)) == model
    assert len(segments.segments) < 10


def test_a_view_that_missed_a_dropped_tombstone_cannot_catch_up(tmp_path: Path) -> None:
    segments = MemorySegments(Limits(outdated=0))
    store(segments, tmp_path, {b"%d" % i: (COUNTER, None) for i in range(20)})
    before = Log(segments, "3").head.token
    store(segments, tmp_path, {b"7": (None, None)})
    assert Log(segments, "3").head.after(before) == 1
    for batch in range(8):
        store(segments, tmp_path, {b"%d" % i: (b"%8d" % batch, None) for i in range(20) if i != 7})
    assert all(segment.tombstones == 0 for segment in Log(segments, "3").head.segments)
    assert Log(segments, "3").head.after(before) is None


def test_a_log_without_entries_has_no_segments_and_no_tombstones(tmp_path: Path) -> None:
    segments = MemorySegments()
    store(segments, tmp_path, {b"%d" % i: (b"1" * 1000, None) for i in range(500)})
    store(segments, tmp_path, {b"%d" % i: (None, None) for i in range(500)})
    assert segments.segments == {}


@pytest.mark.parametrize(
    "damage",
    [
        lambda segment: segment[: len(segment) // 2],
        lambda segment: segment[:-1] + bytes([segment[-1] ^ 1]),
        lambda segment: b"",
    ],
    ids=["cut", "changed", "emptied"],
)
def test_a_damaged_segment_is_an_error_that_names_it(damage: Callable[[bytes], bytes], tmp_path: Path) -> None:
    segments = MemorySegments()
    store(segments, tmp_path / "a", {b"a": (b"1", None)})
    store(segments, tmp_path / "a", {b"b": (b"1", None)})
    segments.segments[2] = damage(segments.segments[2])
    for _ in range(2):
        with pytest.raises(RunError, match=r"key range 3 is damaged: .*segment 2.*Restore .*backup.*new checkpoint"):
            store(segments, tmp_path / "b", {})


def test_a_missing_or_swapped_segment_is_an_error(tmp_path: Path) -> None:
    segments = MemorySegments()
    store(segments, tmp_path / "a", {b"a": (b"1", None)})
    store(segments, tmp_path / "a", {b"b": (b"1", None)})
    swapped = segments.copy()
    swapped.segments = {1: segments.segments[2], 2: segments.segments[1]}
    with pytest.raises(RunError, match="checksum of segment 1 is wrong"):
        store(swapped, tmp_path / "b", {})
    del segments.segments[1]
    with pytest.raises(RunError, match="segment 1 is missing"):
        store(segments, tmp_path / "c", {})


def test_a_damaged_head_is_an_error(tmp_path: Path) -> None:
    segments = MemorySegments()
    store(segments, tmp_path, {b"a": (b"1", None)})
    segments.stored_head = (segments.stored_head or b"")[:-2]
    with pytest.raises(RunError, match="checksum of the head is wrong"):
        store(segments, tmp_path, {})


def test_a_log_of_another_release_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    segments = MemorySegments()
    with monkeypatch.context() as patch:
        patch.setattr(log_segments, "_VERSION", 3)
        store(segments, tmp_path, {b"a": (b"1", None)})
    with pytest.raises(StateDecodeError, match="reads only version 2 of a key range's log"):
        store(segments, tmp_path, {})
