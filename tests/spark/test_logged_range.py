"""A key range gives the same results on the log store as on the groups store, whatever the form of its key groups."""

import shutil
import tempfile
from pathlib import Path
from secrets import token_hex
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from tests.conformance.handlers import SECOND, at
from tests.runtime.test_group_by_key import BATCHES, Counting, Everything, chunk_of, job_of
from tests.spark.log_storage import MemorySegments, opened
from tests.spark.test_state_figures import process

from amadou import Job, MemorySink, MemorySource
from amadou.engine import pack
from amadou.event_time import to_micros
from amadou_plugins.aggregates import Count
from amadou_plugins.windows import TumblingWindow, windowed
from amadou_runtime.core.batch_driver import BatchDriver
from amadou_runtime.core.events import Chunk, pack_events
from amadou_runtime.core.group_batch import GroupResult
from amadou_runtime.core.key_group import KeyGroup
from amadou_runtime.core.operator import Operator
from amadou_runtime.core.stored import StoredRange
from amadou_runtime.store import packed_group as packed_group_module
from amadou_runtime.store.entries import Change
from amadou_runtime.store.log.entries import RangeEntries
from amadou_runtime.store.log.forms import Forms
from amadou_runtime.store.log.logged_range import GroupEntries, LoggedRange
from amadou_runtime.store.packed_group import packed_group
from amadou_runtime.store.packed_range import PackedRange
from amadou_runtime.testing.difference import in_fixed_order

FORMS = {
    "one entry": Forms(small=1 << 30, sparse=1, dense=0, batches=3, entry=0),
    "entry per key": Forms(small=-1, sparse=1, dense=0, batches=1, entry=0),
    "in turns": Forms(small=-1, sparse=1, dense=1, batches=1, entry=0),
}


@pytest.mark.parametrize("form", FORMS)
@settings(max_examples=50, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(batches=BATCHES, losses=st.lists(st.sampled_from(["view", "batch", None, None]), min_size=12, max_size=12))
@example(batches=[([("a", 0, "tumbling")], 0, False), ([], 0, False)], losses=["view", "view"])
@example(
    batches=[
        ([], 43, False),
        ([("a", 0, "count")], 0, False),
        ([(b"a", 0, "name")], 0, False),
        ([("a", 0, "count")], 63, False),
        ([], 0, False),
    ],
    losses=["view"] * 5,
)
def test_a_key_range_gives_the_same_results_on_both_stores(
    form: str, batches: Any, losses: list[str | None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(packed_group_module, "_SWEEPS", 1 << 40)  # state is removed when it expires, in both forms
    directory, segments, packed, watermark = Path(tempfile.mkdtemp()), MemorySegments(), None, None
    run = 0
    try:
        for (events, reached, restarts), loss in zip(batches, losses, strict=False):
            run += restarts or loss == "view"  # a lost view loses in-memory state, as a new run does
            operator = Operator(job_of(Everything()), run=str(run))
            chunks = [(3, chunk) for chunk in chunk_of(events)]
            if loss == "view":
                shutil.rmtree(directory)
            if loss == "batch":
                with opened(segments.copy(), directory, operator.run) as entries:
                    failed = LoggedRange(entries, FORMS[form])
                    BatchDriver(operator, failed).process_groups(chunks, watermark)
                    failed.store()
            groups = PackedRange(packed)
            expected = BatchDriver(operator, groups).process_groups(chunks, watermark)
            expected_state = state_of(groups, operator)
            packed = groups.pack()
            with opened(segments, directory, operator.run) as entries:
                form_of(entries)  # asserts that there is one form
                logged = LoggedRange(entries, FORMS[form])
                processed = BatchDriver(operator, logged).process_groups(chunks, watermark)
                assert shown(processed) == shown(expected)
                assert state_of(logged, operator) == expected_state
                status, other = logged.store().status, groups.status(packed)
            assert (status.keys, status.timers_pending, status.held) == (other.keys, other.timers_pending, other.held)
            assert (status.next_timer is None) == (other.next_timer is None)
            watermark = max(watermark or 0, to_micros(at(reached)))
    finally:
        shutil.rmtree(directory, ignore_errors=True)


def shown(processed: dict[int, GroupResult]) -> dict[int, Any]:
    """Return the results of key groups with outputs, counters or events."""
    results = {number: (each.outputs, each.counts, each.calls) for number, each in processed.items()}
    return {number: each for number, each in results.items() if each[0] or each[1].counters or each[1].events}


def state_of(stored: StoredRange, operator: Operator) -> bytes | None:
    group = stored.group(3)
    loaded = KeyGroup(group, operator.run)
    group.load_all(loaded)
    return in_fixed_order(packed_group(loaded))


def form_of(entries: RangeEntries) -> str:
    """Return the form of the only key group of a range: `p` for one entry, `k` for an entry per key."""
    kinds = {id_[2:3] for id_ in entries.ids(b"")}
    assert kinds == {b"p"} or b"p" not in kinds, "an entry of the other form is left"
    return "p" if b"p" in kinds else "k"


def forms_of(directory: Path, batches: list[list[int]], **settings: int) -> str:
    """Return the form of a key group after each batch."""
    segments, forms = MemorySegments(), ""
    for records in batches:
        with opened(segments, directory) as entries:
            key_range = LoggedRange(entries, Forms(**settings))
            process(key_range, records)
            key_range.store()
        with opened(segments, directory) as entries:
            forms += form_of(entries)
    return forms


def test_a_key_group_takes_the_form_that_suits_its_last_batches(tmp_path: Path) -> None:
    some, third, most = [1, 2], [*range(4)], [*range(6)]
    batches = [[*range(10)], some, some, third, some, some, some, most, some, most, most, most, some]
    assert forms_of(tmp_path, batches) == "ppppppkkkkkpp"


def test_a_key_group_with_small_values_stays_in_one_entry_longer(tmp_path: Path) -> None:
    segments, forms = MemorySegments(), []
    for touched in [600, *[60] * 4, *[10] * 4]:
        outputs_of_batch(
            segments, tmp_path, job_of(Counting()), "1", chunk_of([(key, 2, "count") for key in range(touched)]), 1
        )
        with opened(segments, tmp_path) as entries:
            forms.append(form_of(entries))
    assert forms == ["p"] * 7 + ["k"] * 2


def test_a_large_key_group_never_stays_in_one_entry(tmp_path: Path) -> None:
    batches = [[1, 2], [3], [4, 5, 6], *[[*range(10)]] * 5]
    assert forms_of(tmp_path, batches, large=20_000) == "ppkkkkkk"  # each key has 4,000 bytes


def outputs_of_batch(
    segments: MemorySegments, directory: Path, job: Job, run: str, chunks: list[Chunk], reached: int
) -> int:
    """Return the number of values that a batch collects."""
    with opened(segments, directory, run) as entries:
        key_range = LoggedRange(entries)
        groups = [(3, chunk) for chunk in chunks]
        processed = BatchDriver(Operator(job, run=run), key_range).process_groups(groups, to_micros(at(reached)))
        key_range.store()
    return sum(len(values) for group in processed.values() for values in group.outputs.values())


def test_retained_columns_of_windows_survive_sparse_batches(tmp_path: Path) -> None:
    window = windowed(key="key", timestamp="at", window=TumblingWindow(50 * SECOND, Count()))
    before = Job("everything", window, {"in": MemorySource()}, {"results": MemorySink()})
    without, segments = job_of(Counting(), retired={"window": "keep"}), MemorySegments()
    events = Chunk("in", b"", pack_events([part for key in range(50) for part in (key, at(1), {})]))
    assert outputs_of_batch(segments, tmp_path, before, "1", [events], 0) == 0
    for count in (600, 1, 1, 1, 1):
        outputs_of_batch(segments, tmp_path, without, "2", chunk_of([(key, 2, "count") for key in range(count)]), 1)
    assert outputs_of_batch(segments, tmp_path, before, "3", [], 100) == 50


def test_held_events_do_not_change_the_form_of_a_key_group(tmp_path: Path) -> None:
    segments, job, written = MemorySegments(), job_of(Counting()), []
    for batch in range(8):
        events = chunk_of([(f"{batch} {number}", 1, token_hex(100)) for number in range(100)])
        with opened(segments, tmp_path) as entries:
            key_range = LoggedRange(entries)
            limits = {"in": to_micros(at(-5))}
            BatchDriver(Operator(job), key_range).process_groups(
                [(3, each) for each in events], to_micros(at(0)), limits
            )
            written.append(key_range.store().counts.state_bytes_written)
    assert max(written[5:]) < 1.2 * min(written[5:])


def test_a_key_group_processed_twice_in_a_batch_sees_the_changes_of_the_first_time(tmp_path: Path) -> None:
    only_logged, both, new = (b"\0\3k" + name for name in (b"a", b"b", b"c"))
    segments = MemorySegments()
    with opened(segments, tmp_path) as entries:
        entries.store({only_logged: (b"1", 5), both: (b"1", 5)}, {both: (b"2", 5)}, pack(["epoch", {}]))
    with opened(segments, tmp_path) as entries:
        key_range = LoggedRange(entries)
        key_range.logged |= {only_logged: Change(None, None), both: Change(None, None), new: Change(b"3", 4)}
        group = GroupEntries(key_range, 3, "epoch", was_taken=True)
        assert [*group.ids()] == [*group.due(5)] == [both, new]
        assert [*group.due(3)] == []
