"""The local view is only a cache: whatever happens to its files, results are the same."""

import fcntl
import multiprocessing
import os
import pickle
import random
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

import attrs
import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from tests.spark.log_storage import MemorySegments, opened

from amadou.errors import RunError
from amadou_runtime.store.log import files, tree, view
from amadou_runtime.store.log.entries import StoreFigures
from amadou_runtime.store.log.limits import LIMITS, Limits

Changes = dict[bytes, tuple[bytes | None, int | None]]
FEW_INDEXED = Limits(indexed=10)
SMALL = Limits(outdated=0, segments=3, merged=2, indexed=1, free=30_000)


def store(
    segments: MemorySegments, directory: Path, changes: Changes, unlogged: Changes | None = None, run: str = "run 1"
) -> StoreFigures:
    with opened(segments, directory, run) as entries:
        entries.get([*changes])
        return entries.store(changes, unlogged or {}, b"")


def content(segments: MemorySegments, directory: Path) -> dict[bytes, bytes | None]:
    with opened(segments, directory) as entries:
        ids = entries.ids(b"")
        return dict(zip(ids, entries.get(ids), strict=True))


def data_file(directory: Path) -> Path:
    (file,) = directory.rglob("g-*/data.mdb")
    return file


def filled(directory: Path, count: int = 2000, limits: Limits = LIMITS) -> MemorySegments:
    segments = MemorySegments(limits)
    store(segments, directory, {b"%06d" % i: (b"value %06d" % i, i) for i in range(count)})
    store(segments, directory, {b"x": (b"1", None)})
    return segments


def test_reads_return_the_state_before_the_batch(tmp_path: Path) -> None:
    segments = MemorySegments()
    store(segments, tmp_path, {b"a": (b"1", 10), b"b": (b"2", -5)}, {b"a": (b"u", 7)})
    with opened(segments, tmp_path) as entries:
        entries.store({b"a": (b"3", None), b"b": (None, None)}, {b"a": (None, None)}, b"")
        assert entries.get([b"b", b"c", b"a", b"b"]) == [b"2", None, b"1", b"2"]
        assert entries.get_unlogged([b"a", b"b"]) == [b"u", None]
        assert entries.next_time() == -5
        assert entries.next_time({b"b"}) == 7
        assert entries.next_time({b"b"}, {b"a"}) == 10
        assert entries.due(9) == [b"b", b"a"]
    with opened(segments, tmp_path) as entries:
        assert entries.get([b"b", b"a"]) == [None, b"3"]
        assert entries.next_time() is None


def test_due_entries_are_in_the_order_of_their_times(tmp_path: Path) -> None:
    segments = MemorySegments()
    times = {b"%d" % i: random.randrange(-(10**17), 10**17) for i in range(200)}
    store(segments, tmp_path, {id_: (b"", time) for id_, time in times.items()})
    with opened(segments, tmp_path) as entries:
        assert entries.due(0) == sorted((id_ for id_ in times if times[id_] <= 0), key=times.__getitem__)
        assert entries.next_time() == min(times.values())
        assert entries.due(min(times.values()) - 1) == []


def indexed(segments: MemorySegments, directory: Path) -> int:
    """Number of entries in the index."""
    content(segments, directory)  # the next batch applies the changes
    opened_tree = tree.Tree(data_file(directory).parent, 0, segments.limits)
    with opened_tree._env.begin() as txn:
        count = opened_tree._indexes[tree.Kind.LOGGED]._count(txn)
    opened_tree.close()
    return count


@pytest.mark.parametrize("distinct", [1, 3, 40, 10**6], ids=["one time", "three times", "40 times", "any times"])
def test_timers_fire_when_the_index_has_only_the_first_times(distinct: int, tmp_path: Path) -> None:
    segments = MemorySegments(FEW_INDEXED)
    times = {b"%d" % i: random.randrange(distinct) for i in range(400)}
    store(segments, tmp_path, {id_: (b"", time) for id_, time in times.items()})
    for _ in range(500):
        with opened(segments, tmp_path) as entries:
            now = entries.next_time()
            if now is None:
                break
            assert now <= min(times.values(), default=now)
            due = entries.due(now)
            assert {*due} == {id_ for id_, time in times.items() if time <= now}
            assert entries.next_time() == min(times.values(), default=None)
            changes: Changes = dict.fromkeys(due[: 1 + len(due) // 2], (None, None))
            if len(times) > 10 and due:
                changes[random.choice([*times])] = b"", now + random.randrange(1 + distinct // 5)
            times = {id_: time for id_, time in times.items() if id_ not in changes}
            left = entries.next_time(changes)
            assert left is None or left <= min(times.values(), default=left)
            assert left is not None or times == {}
            times |= {id_: time for id_, (_, time) in changes.items() if time is not None}
            entries.store(changes, {}, b"")
    assert times == {}
    assert indexed(segments, tmp_path) == 0


def test_a_time_before_which_all_entries_have_moved_is_passed_once(tmp_path: Path) -> None:
    segments = MemorySegments(FEW_INDEXED)
    store(segments, tmp_path, {b"%03d" % i: (b"", i) for i in range(400)})
    store(segments, tmp_path, {b"%03d" % i: (b"", 1000 + i) for i in range(400)})
    with opened(segments, tmp_path) as entries:
        horizon = entries.next_time()
        assert horizon is not None
        assert horizon < 400
        assert entries.due(horizon) == []
        assert entries.next_time() == 1000
        entries.store({}, {}, b"")
    with opened(segments, tmp_path) as entries:
        assert entries.next_time() == 1000
        assert entries.due(1001) == [b"000", b"001"]


def test_times_beyond_the_index_cost_nothing(tmp_path: Path) -> None:
    segments = MemorySegments(FEW_INDEXED)
    store(segments, tmp_path, {b"%03d" % i: (b"", i) for i in range(400)})
    before = indexed(segments, tmp_path)
    store(segments, tmp_path, {b"%03d" % i: (b"", 1000 + i) for i in range(200, 400)})
    assert indexed(segments, tmp_path) == before < 60


def test_an_index_that_grows_is_cut(tmp_path: Path) -> None:
    segments = MemorySegments(FEW_INDEXED)
    for batch in range(40):
        store(segments, tmp_path, {b"%d %d" % (batch, i): (b"", -10 * batch - i) for i in range(10)})
    with opened(segments, tmp_path) as entries:
        assert entries.due(-395) == [b"39 %d" % i for i in (9, 8, 7, 6, 5)]
        assert len(entries.due(0)) == 400
    assert indexed(segments, tmp_path) < 200


def test_ids_are_found_by_prefix(tmp_path: Path) -> None:
    segments = MemorySegments()
    store(segments, tmp_path, dict.fromkeys((b"a", b"ab", b"abc", b"b", b"\xff", b"\xff\xff"), (b"", None)))
    with opened(segments, tmp_path) as entries:
        assert entries.ids(b"ab") == [b"ab", b"abc"]
        assert entries.ids(b"\xff") == [b"\xff", b"\xff\xff"]
        assert len(entries.ids(b"")) == 6


def test_a_batch_after_another_needs_no_segment(tmp_path: Path) -> None:
    segments = filled(tmp_path)
    segments.read.clear()
    assert store(segments, tmp_path, {b"000001": (b"new", None)}).view_hit
    assert segments.read == []


def test_a_batch_that_failed_costs_nothing(tmp_path: Path) -> None:
    segments = filled(tmp_path)
    for attempt in range(6):
        store(segments.copy(), tmp_path, {b"000001": (b"attempt %d" % attempt, None)})
    assert len([*tmp_path.rglob("pending-*")]) <= 3
    figures = store(segments, tmp_path, {b"y": (b"", None)})
    assert (figures.view_hit, figures.rebuild_seconds) == (True, 0)
    assert content(segments, tmp_path)[b"000001"] == b"value 000001"


def test_the_committed_attempt_counts_of_two_that_run_at_once(tmp_path: Path) -> None:
    segments = filled(tmp_path)
    loser = segments.copy()
    one = multiprocessing.get_context("fork").Process(target=store, args=(loser, tmp_path, {b"x": (b"loser", None)}))
    with opened(segments, tmp_path) as entries:
        one.start()
        one.join()
        assert one.exitcode == 0
        entries.store({b"x": (b"winner", None)}, {}, b"")
    figures = store(segments, tmp_path, {})
    assert figures.view_hit
    assert content(segments, tmp_path)[b"x"] == b"winner"


def test_a_late_attempt_does_not_move_the_view_back(tmp_path: Path) -> None:
    segments = filled(tmp_path)
    late = segments.copy()
    store(segments, tmp_path, {b"x": (b"2", None)})
    store(segments, tmp_path, {b"x": (b"3", None)})
    with opened(late, tmp_path) as entries:
        assert entries.get([b"x"]) == [b"1"]
        entries.store({b"x": (b"late", None)}, {}, b"")
    assert store(segments, tmp_path, {}).view_hit
    assert content(segments, tmp_path)[b"x"] == b"3"
    assert [*tmp_path.rglob("private-*")] == []


def test_two_attempts_in_one_process_do_not_disturb_each_other(tmp_path: Path) -> None:
    segments = filled(tmp_path)
    other = segments.copy()
    with opened(segments, tmp_path) as first, opened(other, tmp_path) as second:
        assert first.get([b"x"]) == second.get([b"x"]) == [b"1"]
        second.store({b"x": (b"2", None)}, {}, b"")
        first.store({b"x": (b"3", None)}, {}, b"")
    assert content(segments, tmp_path)[b"x"] == b"3"
    assert content(other, tmp_path / "other")[b"x"] == b"2"


def _hold(lock: Path, is_held: Any) -> None:
    with open(lock, "wb") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        is_held.set()
        signal.pause()


@pytest.fixture
def locked(tmp_path: Path) -> Iterator[Callable[[], Any]]:
    """Another process that locks the view until the end of the context."""

    @contextmanager
    def lock() -> Iterator[None]:
        context = multiprocessing.get_context("fork")
        is_held = context.Event()
        holder = context.Process(target=_hold, args=(tmp_path / "3" / "lock", is_held))
        holder.start()
        try:
            assert is_held.wait(20)
            yield
        finally:
            holder.kill()
            holder.join()

    return lock


def test_a_batch_does_not_wait_long_for_another_process(locked: Callable[[], Any], tmp_path: Path) -> None:
    segments = filled(tmp_path, limits=Limits(wait=0.2, patience=0.2))
    with locked():
        figures = store(segments, tmp_path, {b"x": (b"2", None)})
        assert not figures.view_hit
    assert [*tmp_path.rglob("private-*")] == []
    assert content(segments, tmp_path)[b"x"] == b"2"


def test_a_view_at_the_head_can_be_read_while_another_process_has_it(locked: Callable[[], Any], tmp_path: Path) -> None:
    segments = filled(tmp_path, limits=Limits(wait=0.2, patience=0.2))
    store(segments, tmp_path, {}, {b"w": (b"1", None)})
    content(segments, tmp_path)
    with locked():
        with opened(segments, tmp_path) as entries:
            assert not entries.lost_unlogged
            assert entries.get_unlogged([b"w"]) == [b"1"]
            assert entries.store({b"x": (b"2", None)}, {b"w": (b"2", None)}, b"").view_hit
        with opened(segments.copy(), tmp_path) as entries:
            assert entries.lost_unlogged, "the changes could not be applied"
            assert entries.get([b"x"]) == [b"2"]
    with opened(segments, tmp_path) as entries:
        assert not entries.lost_unlogged
        assert entries.get_unlogged([b"w"]) == [b"2"]


def test_a_batch_waits_longer_if_it_would_lose_unlogged_entries(
    locked: Callable[[], Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    segments = filled(tmp_path, limits=Limits(wait=0.2, patience=20))
    store(segments, tmp_path, {}, {b"w": (b"1", None)})
    with ExitStack() as stack:
        stack.enter_context(locked())
        monkeypatch.setattr(view._Opening, "_snapshot", lambda *_: stack.close())
        with opened(segments, tmp_path) as entries:
            assert entries.get_unlogged([b"w"]) == [b"1"]


def test_the_view_catches_up_with_the_newer_segments_only(tmp_path: Path) -> None:
    segments = filled(tmp_path / "a")
    store(segments, tmp_path / "b", {})
    for i in range(5):
        store(segments, tmp_path / "a", {b"x": (None, None), b"000001": (b"%d" % i, 7 * i)})
    segments.read.clear()
    figures = store(segments, tmp_path / "b", {})
    assert not figures.view_hit
    assert segments.read == [3, 4, 5, 6, 7]
    assert content(segments, tmp_path / "b") == content(segments, tmp_path / "a")
    with opened(segments, tmp_path / "a") as first, opened(segments, tmp_path / "b") as second:
        assert first.due(10**6) == second.due(10**6)


def test_a_view_older_than_the_history_is_rebuilt(tmp_path: Path) -> None:
    segments = filled(tmp_path / "a")
    store(segments, tmp_path / "b", {})
    for i in range(30):
        store(segments, tmp_path / "a", {b"000001": (b"%d" % i, None)})
    segments.read.clear()
    assert content(segments, tmp_path / "b") == content(segments, tmp_path / "a")
    assert 1 in segments.read


def test_unlogged_entries_live_in_the_view_only(tmp_path: Path) -> None:
    segments = filled(tmp_path / "a")
    store(segments, tmp_path / "a", {}, {b"w": (b"1", 5)})
    with opened(segments, tmp_path / "a") as entries:
        assert not entries.lost_unlogged
        assert entries.get_unlogged([b"w"]) == [b"1"]
        entries.store({}, {b"w": (b"2", None), b"v": (b"3", None)}, b"")
    for directory, run in ((tmp_path / "b", "run 1"), (tmp_path / "a", "run 2")):
        with opened(segments.copy(), directory, run) as entries:
            assert entries.lost_unlogged
            assert entries.get_unlogged([b"w", b"v"]) == [None, None]
            assert not {b"w", b"v"}.intersection(entries.due(10**6))
    store(segments, tmp_path / "a", {}, {b"u": (b"4", None)}, run="run 2")
    with opened(segments, tmp_path / "a", "run 2") as entries:
        assert not entries.lost_unlogged
        assert entries.get_unlogged([b"w", b"u"]) == [None, b"4"]


def test_unlogged_entries_that_were_lost_elsewhere_do_not_return_with_an_older_view(tmp_path: Path) -> None:
    segments = filled(tmp_path / "a")
    store(segments, tmp_path / "a", {}, {b"w": (b"1", 5)})
    content(segments, tmp_path / "a")
    store(segments, tmp_path / "b", {})
    with opened(segments, tmp_path / "a") as entries:
        assert entries.get_unlogged([b"w"]) == [None]
        assert b"w" not in entries.due(10**6)
        assert b"w" not in entries.ids(b"")


def test_lost_unlogged_entries_are_reported_until_the_range_is_stored(tmp_path: Path) -> None:
    segments = filled(tmp_path)
    store(segments, tmp_path, {}, {b"w": (b"1", 5)})
    shutil.rmtree(tmp_path)
    for _ in range(2):
        with opened(segments, tmp_path) as entries:
            assert entries.lost_unlogged
    store(segments, tmp_path, {})
    with opened(segments, tmp_path) as entries:
        assert not entries.lost_unlogged


def overwrite_values(file: Path) -> None:
    file.write_bytes(file.read_bytes().replace(b"value 0000", b"VALUE 0000"))


def truncate(file: Path) -> None:
    os.truncate(file, file.stat().st_size // 2)


def empty(file: Path) -> None:
    file.write_bytes(b"")


def overwrite_header(file: Path) -> None:
    with open(file, "r+b") as opened_file:
        opened_file.write(b"\xff" * 8192)


def remove(file: Path) -> None:
    file.unlink()


def remove_entries(file: Path) -> None:
    """Leave a file that LMDB can read."""
    file.unlink()
    tree.Tree(file.parent, 0, LIMITS).close()


@pytest.mark.parametrize("damage", [overwrite_values, truncate, empty, overwrite_header, remove, remove_entries])
def test_a_damaged_view_is_rebuilt(damage: Callable[[Path], None], tmp_path: Path) -> None:
    segments = filled(tmp_path)
    expected = content(segments, tmp_path)
    damage(data_file(tmp_path))
    assert content(segments, tmp_path) == expected
    assert content(segments, tmp_path) == expected
    store(segments, tmp_path, {b"x": (b"2", None)})
    assert content(segments, tmp_path) == expected | {b"x": b"2"}
    assert store(segments, tmp_path, {}).view_hit


def test_damage_that_would_lose_unlogged_entries_ends_the_batch(tmp_path: Path) -> None:
    segments = filled(tmp_path)
    store(segments, tmp_path, {}, {b"w": (b"1", None)})
    store(segments, tmp_path, {}, {b"v": (b"1", None)})
    overwrite_values(data_file(tmp_path))
    with pytest.raises(RunError, match=r"key range 3 in .* was damaged and has been removed"):
        content(segments, tmp_path)
    with opened(segments, tmp_path) as entries:
        assert entries.lost_unlogged


def test_a_view_from_before_a_restart_of_the_machine_is_not_trusted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    segments = filled(tmp_path)
    monkeypatch.setattr(files, "_BOOT", tmp_path / "boot")
    (tmp_path / "boot").write_text("another boot")
    assert not store(segments, tmp_path, {}).view_hit
    assert store(segments, tmp_path, {}).view_hit


def test_a_torn_pending_file_is_ignored(tmp_path: Path) -> None:
    segments = filled(tmp_path)
    store(segments, tmp_path, {b"x": (b"2", None)})
    for file in tmp_path.rglob("pending-*"):
        truncate(file)
    assert content(segments, tmp_path)[b"x"] == b"2"


READER = """
import sys, pickle
from pathlib import Path
from tests.spark.test_state_view import content
print(len(content(pickle.loads(Path(sys.argv[1]).read_bytes()), Path(sys.argv[2]))))
"""


def test_a_view_that_kills_its_readers_is_rebuilt(tmp_path: Path) -> None:
    segments = filled(tmp_path)
    content(segments, tmp_path)
    (tmp_path / "segments").write_bytes(pickle.dumps(segments))
    file = data_file(tmp_path)
    pages = bytearray(file.read_bytes())
    for start in range(0, len(pages), 4096):
        if b"value 0010" in pages[start : start + 4096]:
            pages[start : start + 4096] = bytes(4096)  # LMDB aborts the process that comes to such a page
    file.write_bytes(pages)
    command = [sys.executable, "-c", READER, str(tmp_path / "segments"), str(tmp_path)]
    outcomes = []
    for _ in range(4):
        path = {"PYTHONPATH": os.pathsep.join(sys.path)}
        done = subprocess.run(command, capture_output=True, text=True, check=False, env=os.environ | path)
        outcomes.append(done.stdout.strip() or done.returncode)
    assert outcomes == [-signal.SIGABRT, -signal.SIGABRT, "2001", "2001"]


def test_a_full_disk_is_a_clear_error_and_the_run_goes_on_when_there_is_space(small_disk: Path, tmp_path: Path) -> None:
    segments = filled(small_disk / "views")
    ballast = small_disk / "ballast"
    with suppress(OSError):
        ballast.write_bytes(bytes(4 << 20))
    model: dict[bytes, bytes | None] = content(segments, tmp_path / "other")
    failed = False
    for i in range(30):
        attempt = segments.copy()
        changes: Changes = {b"%d %d" % (i, j): (random.randbytes(500), j) for j in range(20)}
        error = error_of(attempt, small_disk / "views", changes)
        if error is None:
            segments = attempt
            model |= {id_: value for id_, (value, _) in changes.items()}
            continue
        assert all(part in str(error) for part in ("disk is full or failing", "spark.local.dir", str(small_disk)))
        assert content(attempt, tmp_path / f"{i}") == model
        failed = True
        ballast.unlink(missing_ok=True)
    assert failed
    assert content(segments, small_disk / "views") == model


def error_of(segments: MemorySegments, directory: Path, changes: Changes) -> RunError | None:
    try:
        store(segments, directory, changes)
    except RunError as error:
        return error
    return None


def test_a_file_size_limit_is_a_clear_error(tmp_path: Path) -> None:
    segments = filled(tmp_path)
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    changes: Changes = {b"%d" % i: (random.randbytes(1000), None) for i in range(500)}
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, limits[1]))
    try:
        with pytest.raises(RunError, match="disk is full or failing"):
            store(segments.copy(), tmp_path, changes)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    store(segments, tmp_path, changes)
    assert len(content(segments, tmp_path)) == 2501


def test_the_view_shrinks_after_deletes(tmp_path: Path) -> None:
    segments = MemorySegments()
    store(segments, tmp_path, {b"%d" % i: (random.randbytes(1000), i) for i in range(10_000)})
    store(segments, tmp_path, {b"%d" % i: (None, None) for i in range(9_900)})
    figures = store(segments, tmp_path, {})
    assert figures.view_bytes < 3 * figures.bytes + (1 << 20)
    assert len([*tmp_path.rglob("g-*")]) == 1
    with opened(segments, tmp_path) as entries:
        assert len(entries.due(10**6)) == 100


@pytest.mark.parametrize(
    "time",
    [
        lambda batch: None,
        lambda batch: random.randrange(10**12),
        lambda batch: random.randrange(3) * 10**9,
        lambda batch: batch * 10**6 + random.randrange(10**6),
    ],
    ids=["no times", "random times", "equal times", "times that move on"],
)
def test_the_disk_space_is_bounded(
    time: Callable[[int], int | None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tree, "APPLIED", 10)  # the pages of two transactions are a small part of a larger view
    segments = MemorySegments(FEW_INDEXED)
    ids = [random.randbytes(15) for _ in range(20_000)]
    store(segments, tmp_path, {id_: (random.randbytes(8), time(0)) for id_ in ids})
    content(segments, tmp_path)
    for batch in range(1, 15):
        figures = store(segments, tmp_path, {id_: (random.randbytes(8), time(batch)) for id_ in ids[batch::100]})
        file = data_file(tmp_path).stat()
        assert file.st_blocks * 512 < 3 * figures.bytes


def test_a_rewritten_view_has_everything(tmp_path: Path) -> None:
    segments = MemorySegments()
    store(segments, tmp_path, {b"%d" % i: (random.randbytes(1000), i) for i in range(5_000)}, {b"u": (b"1", 3)})
    store(segments, tmp_path, {b"%d" % i: (None, None) for i in range(4_950)})
    before = {*tmp_path.rglob("g-*")}
    with opened(segments, tmp_path):
        pass
    assert before != {*tmp_path.rglob("g-*")}
    with opened(segments, tmp_path) as entries:
        assert entries.get_unlogged([b"u"]) == [b"1"]
        assert entries.due(4_950) == [b"4950", b"u"]
        assert len(entries.ids(b"")) == 51


def test_a_view_may_be_removed_during_a_batch(tmp_path: Path) -> None:
    segments = filled(tmp_path / "views")
    with opened(segments, tmp_path / "views") as entries:
        shutil.rmtree(tmp_path / "views")
        assert entries.get([b"x"]) == [b"1"]
        entries.store({b"x": (b"2", None)}, {}, b"")
    assert content(segments, tmp_path / "views")[b"x"] == b"2"


def test_a_process_that_dies_while_a_view_changes_leaves_a_usable_one(tmp_path: Path) -> None:
    segments = filled(tmp_path)
    changes: Changes = {b"%06d" % i: (b"new", i + 1) for i in range(0, 2000, 2)}
    store(segments, tmp_path, changes, {b"u": (b"1", 2)})
    expected = content(segments, tmp_path / "other")
    for commits in (1, 2, 5, 9):
        child = os.fork()
        if child == 0:
            _die_after(commits)
            with suppress(BaseException):
                content(segments, tmp_path)
            os._exit(1)
        assert os.waitpid(child, 0)[1] == signal.SIGKILL
        if commits == 1:
            continue  # a second death in a row comes next
        assert content(segments, tmp_path) == expected
        with opened(segments, tmp_path) as entries:
            assert entries.next_time() == 1
        store(segments, tmp_path, changes := {id_: (b"%d" % commits, time) for id_, (_, time) in changes.items()})
        expected = content(segments, tmp_path / "other")


def _die_after(commits: int) -> None:
    """Kill this process in an LMDB commit."""
    from amadou_runtime.store.log.tree import Tree

    write, left = Tree._write, [commits]

    def dying(self: Tree, steps: Any, limit: int) -> None:
        def counted() -> Iterator[Any]:
            for step in steps:
                left[0] -= 1
                if left[0] == 0:
                    os.kill(os.getpid(), signal.SIGKILL)
                yield step

        write(self, counted(), limit)

    Tree._write = dying  # type: ignore[method-assign]


IDS = st.integers(0, 12).map(lambda i: b"id %d" % i)
VALUES = st.none() | st.binary(max_size=6)
TIMES = st.none() | st.integers(-(10**6), 10**6)
CHANGES = st.dictionaries(IDS, st.tuples(VALUES, TIMES), max_size=6)


@attrs.define
class Model:
    """The expected content of a range."""

    logged: dict[bytes, tuple[bytes, int | None]] = attrs.Factory(dict)
    unlogged: dict[bytes, tuple[bytes, int | None]] = attrs.Factory(dict)
    extra: bytes | None = None

    def after(self, changes: Changes, unlogged: Changes, is_lost: bool, extra: bytes) -> "Model":
        both = (self.logged, changes), ({} if is_lost else self.unlogged, unlogged)
        return Model(
            *({k: (v, t) for k, (v, t) in {**old, **new}.items() if v is not None} for old, new in both), extra
        )


class Views(RuleBasedStateMachine):
    """Batches, crashes and damage in any order."""

    @initialize()
    def begin(self) -> None:
        self.stack = ExitStack()
        self.root = Path(self.stack.enter_context(_directory()))
        self.directory = self.root / "0"
        self.segments, self.model = MemorySegments(SMALL), Model()
        self.older: list[tuple[MemorySegments, Model]] = []
        self.run = 0

    def _batch(
        self, segments: MemorySegments, model: Model, changes: Changes, unlogged: Changes, extra: bytes
    ) -> Model:
        with opened(segments, self.directory, f"run {self.run}") as entries:
            lost = entries.lost_unlogged
            assert not lost or model.unlogged
            expected = {} if lost else model.unlogged
            probes = [b"id %d" % i for i in range(13)]
            assert entries.get(probes) == [model.logged.get(id_, (None,))[0] for id_ in probes]
            assert entries.get_unlogged(probes) == [expected.get(id_, (None,))[0] for id_ in probes]
            both = {*model.logged, *expected}
            assert sorted(entries.ids(b"id 1")) == sorted(id_ for id_ in both if id_.startswith(b"id 1"))
            timed = [*model.logged.items(), *expected.items()]
            assert sorted(entries.due(0)) == sorted({id_ for id_, (_, at) in timed if at is not None and at <= 0})
            times = [time for known in (model.logged, expected) for _, time in known.values() if time is not None]
            following = entries.next_time()
            if following is None or not times or following >= min(times):
                assert times == [] or following == min(times)
            else:
                entries.due(min(times) - 1)
                assert entries.next_time() == min(times), "after a scan, the time is exact"
            assert entries.extra == model.extra
            figures = entries.store(changes, unlogged, extra)
        after = model.after(changes, unlogged, lost, extra)
        size = sum(
            len(id_) + len(value) + (8 if time is not None else 0) for id_, (value, time) in after.logged.items()
        )
        assert (figures.entries, figures.bytes) == (len(after.logged), size)
        return after

    @rule(changes=CHANGES, unlogged=CHANGES, extra=st.sampled_from([b"", b"x"]))
    def commit(self, changes: Changes, unlogged: Changes, extra: bytes) -> None:
        self.older = [*self.older[-3:], (self.segments.copy(), self.model)]
        self.model = self._batch(self.segments, self.model, changes, unlogged, extra)

    @rule(changes=CHANGES, unlogged=CHANGES)
    def fail(self, changes: Changes, unlogged: Changes) -> None:
        self._batch(self.segments.copy(), self.model, changes, unlogged, b"failed")

    @rule(changes=CHANGES, back=st.integers(1, 4))
    def late_attempt(self, changes: Changes, back: int) -> None:
        if len(self.older) >= back:
            segments, model = self.older[-back]
            self._batch(segments.copy(), model, changes, {}, b"late")

    @rule(directory=st.sampled_from("01"))
    def move(self, directory: str) -> None:
        self.directory = self.root / directory

    @rule()
    def restart(self) -> None:
        self.run += 1

    @rule(what=st.sampled_from(["g-*", "pending-*", "current", "data.mdb", "lock.mdb", "use-*", "*"]))
    def remove(self, what: str) -> None:
        for path in [*self.directory.rglob(what)]:
            shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)

    @rule(what=st.sampled_from(["pending-*", "current", "data.mdb"]), share=st.floats(0, 0.99))
    def truncate(self, what: str, share: float) -> None:
        for path in self.directory.rglob(what):
            os.truncate(path, int(path.stat().st_size * share))

    @rule(what=st.sampled_from(["pending-*", "current"]), at=st.floats(0, 0.99))
    def overwrite(self, what: str, at: float) -> None:
        for path in self.directory.rglob(what):
            data = bytearray(path.read_bytes() or b" ")
            data[int(at * len(data))] ^= 85
            path.write_bytes(data)

    @invariant()
    def disk_is_bounded(self) -> None:
        if hasattr(self, "directory") and self.directory.exists():
            assert len([*self.directory.rglob("g-*")]) <= 1
            assert [*self.directory.rglob("private-*")] == []

    def teardown(self) -> None:
        if hasattr(self, "stack"):
            self.stack.close()


def _directory() -> Any:
    return tempfile.TemporaryDirectory(ignore_cleanup_errors=True)


TestViews = Views.TestCase
TestViews.settings = settings(
    max_examples=40, stateful_step_count=30, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
